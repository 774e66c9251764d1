package volume

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/hawserfs/hawser/cluster"
)

func (e *dataEnv) states(ino cluster.Ino) []State {
	var list []State
	e.view.States(ino, func(s *State) bool {
		c := *s
		c.Owner = slices.Clone(s.Owner)
		list = append(list, c)
		return true
	})
	return list
}

// TestStatesModel compares states with a model that has a map for each file:
// shares, upgrades, drops, the release of clients, and the files that states
// keep when their names are gone.
func TestStatesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := newData(t)
		defer e.close()
		e.open("a", "n1")
		const files = 3
		var inos [files]cluster.Ino
		var linked, alive [files]bool
		model := [files]map[StateID]State{}
		for i := range inos {
			inos[i] = e.create(fmt.Sprint("f", i))
			model[i], linked[i], alive[i] = map[StateID]State{}, true, true
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			i := rapid.IntRange(0, files-1).Draw(t, "file")
			ino := inos[i]
			s := State{
				Other:  StateID{byte(rapid.IntRange(1, 4).Draw(t, "other"))},
				Kind:   rapid.SampledFrom([]uint8{StateOpen, StateOpen, StateOpen, StateLock}).Draw(t, "kind"),
				Client: uint64(rapid.IntRange(1, 2).Draw(t, "client")),
				Owner:  []byte{byte(rapid.IntRange(7, 8).Draw(t, "owner"))},
			}
			if s.Kind == StateOpen {
				s.Access = uint8(rapid.IntRange(1, 3).Draw(t, "access"))
				s.Deny = rapid.SampledFrom([]uint8{0, 0, 0, 1, 2, 3}).Draw(t, "deny")
			} else {
				s.Digest = LockOwner{9}
			}
			conflict := false
			for _, o := range model[i] {
				same := o.Client == s.Client && bytes.Equal(o.Owner, s.Owner)
				conflict = conflict || o.Other != s.Other && !same && s.Kind == StateOpen && (o.Deny&s.Access != 0 || s.Deny&o.Access != 0)
			}
			settle := func() {
				for j := range model {
					alive[j] = alive[j] && (linked[j] || len(model[j]) > 0)
				}
			}
			put := func(err error) {
				want := cluster.OK
				switch {
				case !alive[i]:
					want = cluster.ESTALE
				case conflict:
					want = cluster.ESHARE
				default:
					model[i][s.Other] = s
				}
				if !errors.Is(err, want.Err()) {
					t.Fatalf("%+v: %v, want %v", s, err, want)
				}
			}
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			default:
				put(errOf(e.apply("a", PutState{Ino: ino, State: s})))
			case 0:
				if s.Kind == StateOpen && linked[i] {
					put(errOf(e.apply("a", Create{
						Cred: cluster.Cred{}, Dir: cluster.RootIno, Name: fmt.Sprint("f", i), Type: cluster.TypeRegular, Gen: 1, Open: &s,
						Attr: cluster.SetAttr{Mask: cluster.SetSize},
					})))
				}
			case 1:
				if s.Kind == StateLock {
					put(errOf(e.apply("a", Lock{Ino: ino, Owner: s.Digest, Client: s.Client, End: 9, State: &s})))
				}
			case 2, 3:
				e.must("a", DropStates{Refs: []StateRef{{ino, s.Other}, {ino, StateID{99}}, {12345, s.Other}}})
				delete(model[i], s.Other)
			case 4:
				e.releaseClient(s.Client, 0)
				for j := range model {
					for id, o := range model[j] {
						if o.Client == s.Client {
							delete(model[j], id)
						}
					}
				}
			case 5:
				if linked[i] {
					e.must("a", Remove{Dir: cluster.RootIno, Name: fmt.Sprint("f", i)})
					linked[i] = false
					e.must("a", ReleaseUnlinked{Inos: []cluster.Ino{ino}})
				}
			}
			settle()
			if rapid.Bool().Draw(t, "reap") {
				e.must("a", Reap{Max: 100})
			}
			denying := false
			for j := range model {
				var want []State
				for id := range byte(5) {
					if o, ok := model[j][StateID{id}]; ok {
						want = append(want, o)
						denying = denying || o.Deny != 0
					}
				}
				if got := e.states(inos[j]); !reflect.DeepEqual(got, want) {
					t.Fatalf("file %d: states %+v, want %+v", j, got, want)
				}
				if _, ok := e.view.Inode(inos[j]); alive[j] && !ok {
					t.Fatalf("file %d is gone", j)
				}
			}
			if e.view.Denying() != denying {
				t.Fatalf("denying: %v", !denying)
			}
			for client := uint64(1); client <= 2; client++ {
				n := 0
				e.view.ClientStates(client, func(ino cluster.Ino, s *State) bool {
					o, ok := model[slices.Index(inos[:], ino)][s.Other]
					if !ok || o.Client != client {
						t.Fatalf("client %d has %+v", client, s)
					}
					n++
					return true
				})
				for j := range model {
					for _, o := range model[j] {
						if o.Client == client {
							n--
						}
					}
				}
				if n != 0 {
					t.Fatalf("client %d has %d states too many", client, n)
				}
			}
			e.check()
		}
		e.replay()
	})
}

// TestCreateOpen: an open of a file that exists asks its mode and the others'
// shares before anything changes; who makes a file may open it anyhow.
func TestCreateOpen(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	user := cluster.Cred{UID: 1, GID: 1}
	open := func(cred cluster.Cred, name string, other byte, access, deny uint8, how CreateHow, set cluster.SetAttr) error {
		return errOf(e.apply("a", Create{
			Cred: cred, Dir: cluster.RootIno, Name: name, Type: cluster.TypeRegular, How: how, Gen: 1, Verifier: 5,
			Attr: set, Open: &State{Other: StateID{other}, Client: uint64(other), Access: access, Deny: deny},
		}))
	}
	mode := cluster.SetAttr{Mask: cluster.SetMode, Mode: 0o444}
	empty := cluster.SetAttr{Mask: cluster.SetSize}
	if err := open(user, "f", 1, 3, 0, Unchecked, mode); err != nil {
		t.Fatalf("who makes a file may write it: %v", err)
	}
	e.must("a", CommitExtents{Ino: 2, Extents: []NewExtent{inline(0, []byte("data"))}})
	size := func() uint64 { a, _ := e.view.Inode(2); return a.Size }
	for _, c := range []struct {
		name   string
		cred   cluster.Cred
		other  byte
		access uint8
		deny   uint8
		how    CreateHow
		set    cluster.SetAttr
		want   cluster.Errno
		size   uint64
	}{
		{"not writable", user, 2, ShareWrite, 0, Unchecked, cluster.SetAttr{}, cluster.EACCES, 4},
		{"not writable, to be emptied", user, 2, ShareRead, 0, Unchecked, empty, cluster.EACCES, 4},
		{"denies what another does", cluster.Cred{}, 2, ShareRead, ShareWrite, Unchecked, empty, cluster.ESHARE, 4},
		{"guarded", cluster.Cred{}, 2, ShareRead, 0, Guarded, empty, cluster.EEXIST, 4},
		{"read", user, 2, ShareRead, 0, Unchecked, cluster.SetAttr{}, cluster.OK, 4},
		{"emptied", cluster.Cred{}, 3, ShareWrite, 0, Unchecked, empty, cluster.OK, 0},
	} {
		if err := open(c.cred, "f", c.other, c.access, c.deny, c.how, c.set); !errors.Is(err, c.want.Err()) || size() != c.size {
			t.Errorf("%s: %v, size %d", c.name, err, size())
		}
		if has := len(e.states(2)) == int(c.other); has != (c.want == cluster.OK) {
			t.Errorf("%s: %d states", c.name, len(e.states(2)))
		}
	}
	// An exclusive create that is repeated is the same open.
	for range 2 {
		if err := open(user, "x", 9, 3, 1, Exclusive, mode); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(e.states(3)); n != 1 {
		t.Errorf("%d states", n)
	}
	e.check()
}

// TestPutStates: a front-end answers for an unlinked file by recording its
// opens; then it holds the file no more, but they do.
func TestPutStates(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	e.open("b", "n2")
	ino := e.create("f")
	e.remove("a", "f")
	put := PutStates{Files: []FileStates{{Ino: ino, States: []State{{Other: StateID{1}, Client: 1, Access: 1}}}, {Ino: 99}}}
	e.must("a", put)
	e.must("b", ReleaseUnlinked{Inos: []cluster.Ino{ino}})
	if h, ok := e.holders(ino); !ok || len(h) != 0 || e.reap(10).Freed != 0 {
		t.Errorf("holders %v, %v", h, ok)
	}
	e.must("a", put) // late: it does not hold the file any more
	if got := e.states(ino); len(got) != 1 {
		t.Errorf("%+v", got)
	}
	e.takeEvents()
	e.releaseClient(1, 0)
	if ev := e.takeEvents(); !slices.Contains(ev, any(EventUnlocked{Ino: ino})) {
		t.Errorf("events %v", ev)
	}
	if e.reap(10).Freed != 1 {
		t.Error("not reaped")
	}
	if _, err := e.apply("a", PutState{Ino: ino, State: State{Other: StateID{1}}}); !errors.Is(err, cluster.ESTALE) {
		t.Errorf("a state of what is gone: %v", err)
	}
}

// TestReleaseClientBounded: a client with many locks and states goes in bounded
// steps.
func TestReleaseClientBounded(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	other := e.create("g")
	files := []cluster.Ino{other} // several: each lock and state is compared with the others of its file
	for i := range 64 {
		files = append(files, e.create(fmt.Sprintf("f%d", i)))
	}
	const n = maxRelease + 10
	for i := range uint64(n) {
		ino := files[i%uint64(len(files))]
		e.must("a", Lock{Ino: ino, Client: 5, Start: 2 * i, End: 2 * i, Exclusive: true})
		e.must("a", PutState{Ino: ino, State: State{Other: StateID{byte(i), byte(i >> 8)}, Client: 5, Access: 1}})
	}
	e.must("a", PutState{Ino: other, State: State{Other: StateID{0, 0, 1}, Client: 6, Access: 1}})
	e.must("a", Lock{Ino: other, Client: 6, Start: 1 << 20, End: 1 << 20, Exclusive: true})
	if steps := e.releaseClient(5, 0); steps != 3 {
		t.Errorf("%d steps", steps)
	}
	if e.view.HasClient(5) || !e.view.HasClient(6) || len(e.states(other)) != 1 {
		t.Error("the wrong client was released")
	}
	e.check()
}
