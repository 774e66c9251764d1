package vfs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/vfs"
	"github.com/hawserfs/hawser/vfs/memfs"
)

// strip takes the origin out of a command: the rule is off.
func strip(cmd []byte) []byte {
	env, body, err := fsm.ParseCommand(cmd)
	if err != nil || env.Origin.IsZero() {
		return cmd
	}
	env.Origin, env.Version = fsm.Origin{}, 0
	return fsm.AppendCommand(nil, env, rawCommand{env.Kind, body})
}

type rawCommand struct {
	kind fsm.Kind
	body []byte
}

func (c rawCommand) Kind() fsm.Kind             { return c.kind }
func (c rawCommand) AppendTo(dst []byte) []byte { return append(dst, c.body...) }

// An outcome is what a call returned, as far as it must be the same again.
type outcome struct {
	value any
	errno vfs.Errno
}

func outcomeOf(value any, err error) outcome {
	if err == nil {
		return outcome{value, cluster.OK}
	}
	e, ok := errors.AsType[vfs.Errno](err)
	if !ok {
		e = cluster.EINTERNAL
	}
	return outcome{value, e}
}

// released is the outcome of letting go: of a file that is gone it may fail or not.
func released(err error) outcome {
	if errors.Is(err, cluster.ESTALE) {
		err = nil
	}
	return outcomeOf(nil, err)
}

// An operation is one of a request's: on the file system under test, or on the
// model, whose files are others.
type operation struct {
	name string
	do   func(s vfs.FS, r *vfs.Request, files map[string]vfs.File, root vfs.File) outcome
}

// names are those that clients use. All operations are on them.
var names = []string{"a", "b", "c", "d"}

// drawOperation draws one.
func drawOperation(t *rapid.T) operation {
	pick := func(what string) string { return rapid.SampledFrom(names).Draw(t, what) }
	name, to := pick("name"), pick("to")
	n := rapid.SampledFrom([]uint64{0, 1, 5000, 20000, 70000}).Draw(t, "n")
	off := rapid.SampledFrom([]uint64{0, 3, 4096, 30000}).Draw(t, "off")
	who := byte(rapid.IntRange(1, 3).Draw(t, "who"))
	flag := rapid.Bool().Draw(t, "flag")
	fill := byte(rapid.IntRange('a', 'z').Draw(t, "fill"))
	state := vfs.State{Other: vfs.StateID{who}, Client: uint64(who), Owner: []byte{who}, Access: who, Deny: uint8(off % 2)}
	lock := vfs.Lock{Owner: vfs.LockOwner{who}, Client: uint64(who), Start: off, End: off + n, Exclusive: flag}
	type calls = func(s vfs.FS, r *vfs.Request, files map[string]vfs.File, root vfs.File) outcome
	all := map[string]calls{
		"create": func(s vfs.FS, r *vfs.Request, files map[string]vfs.File, root vfs.File) outcome {
			args := vfs.CreateArgs{Type: cluster.TypeRegular, Attr: vfs.SetAttr{Mask: cluster.SetSize}}
			if flag {
				args.How, args.Attr = vfs.Guarded, vfs.SetAttr{}
			}
			if who == 1 {
				args.Open = &state
			}
			c, err := s.Create(r, root, name, args)
			if err == nil {
				files[name] = c.File
			}
			return outcomeOf(c, err)
		},
		"remove": func(s vfs.FS, r *vfs.Request, _ map[string]vfs.File, root vfs.File) outcome {
			return outcomeOf(s.Remove(r, root, name))
		},
		"rename": func(s vfs.FS, r *vfs.Request, _ map[string]vfs.File, root vfs.File) outcome {
			a, b, err := s.Rename(r, root, name, root, to)
			return outcomeOf([]vfs.ChangeInfo{a, b}, err)
		},
		"link": func(s vfs.FS, r *vfs.Request, files map[string]vfs.File, root vfs.File) outcome {
			_, c, err := s.Link(r, files[name], root, to)
			return outcomeOf(c, err)
		},
		"setattr": func(s vfs.FS, r *vfs.Request, files map[string]vfs.File, _ vfs.File) outcome {
			a, err := s.Setattr(r, files[name], vfs.SetAttr{Mask: cluster.SetSize, Size: n}, true)
			return outcomeOf(a, err)
		},
		"write": func(s vfs.FS, r *vfs.Request, files map[string]vfs.File, _ vfs.File) outcome {
			how, _, err := s.Write(r, files[name], off, bytes.Repeat([]byte{fill}, int(n)), vfs.Unstable)
			return outcomeOf(how, err)
		},
		"allocate": func(s vfs.FS, r *vfs.Request, files map[string]vfs.File, _ vfs.File) outcome {
			return outcomeOf(nil, s.Allocate(r, files[name], off, n+1))
		},
		"deallocate": func(s vfs.FS, r *vfs.Request, files map[string]vfs.File, _ vfs.File) outcome {
			return outcomeOf(nil, s.Deallocate(r, files[name], off, n))
		},
		"clone": func(s vfs.FS, r *vfs.Request, files map[string]vfs.File, _ vfs.File) outcome {
			return outcomeOf(nil, s.Clone(r, files[name], 0, files[to], off, 0))
		},
		"lock": func(s vfs.FS, r *vfs.Request, files map[string]vfs.File, _ vfs.File) outcome {
			c, err := s.Lock(r, files[name], lock)
			return outcomeOf(c != nil, err)
		},
		"unlock": func(s vfs.FS, r *vfs.Request, files map[string]vfs.File, _ vfs.File) outcome {
			return released(s.Unlock(r, files[name], lock))
		},
		"put": func(s vfs.FS, r *vfs.Request, files map[string]vfs.File, _ vfs.File) outcome {
			return outcomeOf(nil, s.PutState(r, files[name], state))
		},
		"drop": func(s vfs.FS, r *vfs.Request, files map[string]vfs.File, _ vfs.File) outcome {
			return released(s.DropState(r, files[name], state.Other, true))
		},
		"setxattr": func(s vfs.FS, r *vfs.Request, files map[string]vfs.File, _ vfs.File) outcome {
			c, err := s.Setxattr(r, files[name], "x", []byte{fill}, vfs.CreateHow(who-1))
			return outcomeOf(c, err)
		},
		"removexattr": func(s vfs.FS, r *vfs.Request, files map[string]vfs.File, _ vfs.File) outcome {
			c, err := s.Removexattr(r, files[name], "x")
			return outcomeOf(c, err)
		},
	}
	kinds := make([]string, 0, len(all))
	for k := range all {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	kind := rapid.SampledFrom(kinds).Draw(t, "kind")
	return operation{fmt.Sprintf("%s %s %s (%d, %d, %d, %v)", kind, name, to, off, n, who, flag), all[kind]}
}

// A compound is a client's request. It knows the files that its client does.
type compound struct {
	origin vfs.Origin
	ops    []operation
	files  map[string]vfs.File // of the file system
	model  map[string]vfs.File
	done   []outcome // of the operations that were executed at all
}

// A replayTest has two front-ends over one group, and a model.
type replayTest struct {
	front       [2]*env
	log         []string // what was done in this sequence
	root        vfs.File
	model       *memfs.FS
	modelRoot   vfs.File
	files, mods map[string]vfs.File   // by name, when last seen
	open        map[vfs.File]vfs.File // all that were ever made, and the model's
}

// run executes the first n operations of a compound through a front-end, as a
// replay or not: those that were executed before have the outcome that they
// had, the others that of the model.
func (x *replayTest) run(c *compound, by, n int, replay bool) error {
	r := vfs.NewRequest(context.Background(), vfs.Cred{})
	r.SetOrigin(c.origin, replay)
	files := make(map[string]vfs.File)
	for k, f := range c.files {
		files[k] = f
	}
	for i, op := range c.ops[:n] {
		r.SetOp(uint32(i))
		tagged := x.front[0].group.tagged.Load()
		got := op.do(x.front[by], r, files, x.root)
		x.log = append(x.log, fmt.Sprintf("%d by %d: %s: %+v", c.origin.Slot, by, op.name, got))
		if i < len(c.done) {
			if !reflect.DeepEqual(got, c.done[i]) {
				return fmt.Errorf("%s, operation %d: again %+v, first %+v", op.name, i, got, c.done[i])
			}
		} else {
			m := vfs.NewRequest(context.Background(), vfs.Cred{})
			want := op.do(x.model, m, c.model, x.modelRoot)
			if err := x.keep(files, c.model); err != nil {
				return err
			}
			if got.errno != want.errno {
				return fmt.Errorf("%s, operation %d: %v, the model says %v", op.name, i, got.errno, want.errno)
			}
			if got.errno != cluster.OK && x.front[0].group.tagged.Load() == tagged {
				return nil // refused without a command: it may be executed yet
			}
			c.done = append(c.done, got)
		}
		if got.errno != cluster.OK {
			return nil
		}
	}
	return nil
}

// keep opens new files, through each front-end, so that they outlive their names
// on both sides until the end: when they go otherwise is not the model's business.
func (x *replayTest) keep(files, model map[string]vfs.File) error {
	for name, f := range files {
		if _, ok := x.open[f]; ok || f.Ino == unknown.Ino {
			continue
		}
		x.open[f] = model[name]
		if err := errors.Join(x.front[0].Open(req(), f), x.front[1].Open(req(), f), x.model.Open(req(), model[name])); err != nil {
			return fmt.Errorf("opening %s: %w", name, err)
		}
	}
	return nil
}

// unknown is a file that was never there.
var unknown = vfs.File{Volume: 1, Ino: 1 << 40, Gen: 1}

// same compares the file system with the model.
func (x *replayTest) same() error {
	e := x.front[1]
	for _, name := range names {
		f, a, err := e.Lookup(req(), x.root, name)
		mf, ma, merr := x.model.Lookup(req(), x.modelRoot, name)
		if (err == nil) != (merr == nil) {
			return fmt.Errorf("%s: %v, in the model %v", name, err, merr)
		}
		if err != nil {
			continue
		}
		x.files[name], x.mods[name] = f, mf
		states, _ := e.States(req(), f)
		mstates, _ := x.model.States(req(), mf)
		xs, _ := e.Listxattr(req(), f)
		mxs, _ := x.model.Listxattr(req(), mf)
		if a.Size != ma.Size || a.Nlink != ma.Nlink || !slices.Equal(xs, mxs) || len(states) != len(mstates) {
			return fmt.Errorf("%s: size %d, %d links, %v, %d states; in the model %d, %d, %v, %d",
				name, a.Size, a.Nlink, xs, len(states), ma.Size, ma.Nlink, mxs, len(mstates))
		}
		got, err := e.tryRead(f, 0, int(a.Size))
		want, merr := x.model.Read(req(), mf, 0, int(a.Size))
		if err != nil || merr != nil || !bytes.Equal(got, slices.Concat(want.Bufs...)) {
			return fmt.Errorf("%s: other content than in the model (%v, %v)", name, err, merr)
		}
	}
	return nil
}

// replays has clients' requests executed in part or in whole by one front-end,
// and then again by another, with those of others between.
func (x *replayTest) replays(t *rapid.T, session byte) error {
	var waiting []*compound // executed, and to be executed again
	for i := range rapid.IntRange(1, 25).Draw(t, "requests") {
		if len(waiting) > 0 && rapid.Bool().Draw(t, "again") {
			j := rapid.IntRange(0, len(waiting)-1).Draw(t, "which")
			c := waiting[j]
			if err := x.run(c, rapid.IntRange(0, 1).Draw(t, "by"), len(c.ops), true); err != nil {
				return err
			}
			if rapid.Bool().Draw(t, "done") {
				waiting = slices.Delete(waiting, j, j+1)
			}
		} else {
			c := &compound{origin: vfs.Origin{Session: [16]byte{session, 1}, Slot: uint32(i), Seq: 1, Ordered: true}}
			c.files, c.model = make(map[string]vfs.File), make(map[string]vfs.File)
			for _, name := range names {
				c.files[name], c.model[name] = x.files[name], x.mods[name]
				if c.files[name] == (vfs.File{}) { // the client has never seen it
					c.files[name], c.model[name] = unknown, unknown
				}
			}
			for range rapid.IntRange(1, 3).Draw(t, "operations") {
				c.ops = append(c.ops, drawOperation(t))
			}
			n := rapid.IntRange(0, len(c.ops)).Draw(t, "executed")
			if err := x.run(c, rapid.IntRange(0, 1).Draw(t, "by"), n, false); err != nil {
				return err
			}
			waiting = append(waiting, c)
		}
		if err := x.same(); err != nil {
			return err
		}
	}
	return nil
}

func newReplayTest(t *testing.T, off bool) *replayTest {
	g := newGroup(t, strict, 0)
	g.strip.Store(off)
	b := &blobs{group: g, data: map[cluster.BlobID][]byte{}}
	x := &replayTest{model: memfs.New(memfs.Options{}), files: map[string]vfs.File{}, mods: map[string]vfs.File{}, open: map[vfs.File]vfs.File{}}
	x.front[0] = open(t, g, b, nil)
	x.front[1] = open(t, g, b, func(c *vfs.Config) { c.Node = "b" })
	t.Cleanup(func() { // before either looks whether the volume is whole
		x.front[0].stop()
		x.front[1].stop()
	})
	x.root = x.front[0].root()
	var err error
	if x.modelRoot, _, err = x.model.Lookup(req(), vfs.Root, "main"); err != nil {
		t.Fatal(err)
	}
	return x
}

// clear removes everything, for the next sequence.
func (x *replayTest) clear(t *rapid.T) {
	for _, name := range names {
		_, err := x.front[0].Remove(req(), x.root, name)
		_, merr := x.model.Remove(req(), x.modelRoot, name)
		if err == nil && merr != nil {
			t.Fatal(err, merr)
		}
	}
	for client := range uint64(4) {
		if err := errors.Join(x.front[0].ReleaseClient(context.Background(), client), x.model.ReleaseClient(context.Background(), client)); err != nil {
			t.Fatal(err)
		}
	}
	for f, m := range x.open {
		x.front[0].Close(f)
		x.front[1].Close(f)
		x.model.Close(m)
	}
	clear(x.open)
	clear(x.files)
	clear(x.mods)
}

// TestReplays: requests that are executed again, in whole or in part, through
// whatever front-end, are executed once and have the results that they had.
// Without origins in the commands the test fails.
func TestReplays(t *testing.T) {
	for _, off := range []bool{false, true} {
		x := newReplayTest(t, off)
		missed, session := false, byte(0)
		rapid.Check(t, func(t *rapid.T) {
			if missed {
				return
			}
			session++
			x.clear(t)
			x.log = nil
			err := x.replays(t, session)
			if derr := x.front[0].DropSessions(context.Background(), [][16]byte{{session, 1}}); derr != nil {
				t.Fatal(derr)
			}
			switch {
			case off:
				missed = err != nil
			case err != nil:
				t.Fatalf("%v, after\n%s", err, strings.Join(x.log, "\n"))
			}
		})
		if off && !missed {
			t.Error("nobody notices that commands have no origin")
		}
	}
}
