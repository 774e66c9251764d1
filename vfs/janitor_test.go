package vfs_test

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/vfs"
)

// watched is a group whose janitor is watched: how often it looks at the lists
// of unlinked files, and what events it hears.
type watched struct {
	*group
	follows atomic.Bool                        // this node does not lead
	deaf    atomic.Bool                        // events that wake the janitor are not heard
	looks   atomic.Int64                       // at the unlinked files that can be freed
	tell    atomic.Pointer[func(events []any)] // makes the front-end hear events
}

func (w *watched) IsLeader() bool { return !w.follows.Load() }

// Ascend and Get make a watched group its own Reader.
func (w *watched) Ascend(lower, upper []byte, fn func(key, value []byte) bool) {
	if bytes.HasPrefix(lower, []byte{'U', 1}) {
		w.looks.Add(1)
	}
	w.machine.Reader().Ascend(lower, upper, fn)
}

func (w *watched) Get(dst, key []byte) ([]byte, bool) { return w.machine.Reader().Get(dst, key) }

func (w *watched) subscribe(fn func(index uint64, events []any)) (cancel func()) {
	told := func(events []any) { fn(0, events) }
	w.tell.Store(&told)
	return w.machine.Subscribe(func(index uint64, events []any) {
		for _, e := range events {
			switch e.(type) {
			case volume.EventReapable, fsm.WriterFenced:
				if w.deaf.Load() {
					continue
				}
			}
			fn(index, []any{e})
		}
	})
}

func (w *watched) open(t *testing.T, b *blobs) *env {
	s, err := vfs.New(vfs.Config{
		Key: vfs.HandleKey{1}, Node: "a", Placer: b, Blobs: b, Now: now, Nonce: func() uint64 { return uint64(now()) },
		CacheBytes: 16 << 20, ReleaseEvery: 5 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Mount(vfs.Mount{
		Volume: vfs.Volume{ID: 1, Name: "main", FSID: vfs.FSID{Major: 1, Minor: 1}},
		Group:  w, View: volume.View{Reader: w}, Subscribe: w.subscribe, Snapshot: w.machine.Snapshot,
	})
	e := &env{T: t, System: s, group: w.group, blobs: b}
	t.Cleanup(e.close)
	return e
}

func newWatched(t *testing.T) (*watched, *env) {
	w := &watched{group: newGroup(t, strict, 0)}
	return w, w.open(t, &blobs{group: w.group, data: map[cluster.BlobID][]byte{}})
}

func (e *env) unlink(name string) cluster.Ino {
	e.Helper()
	f := e.create(name)
	if _, err := e.Remove(req(), e.root(), name); err != nil {
		e.Fatal(err)
	}
	return f.Ino
}

// freed waits until an inode is gone.
func (w *watched) freed(t *testing.T, ino cluster.Ino, within time.Duration) bool {
	t.Helper()
	v := volume.View{Reader: w.machine.Reader()}
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, ok := v.Inode(ino); !ok {
			return true
		}
	}
	return false
}

// ready waits until nobody holds an unlinked inode.
func (w *watched) ready(t *testing.T, ino cluster.Ino) {
	t.Helper()
	v := volume.View{Reader: w.machine.Reader()}
	for range 5000 {
		ready := false
		v.Unlinked(func(u volume.Unlinked) bool {
			ready = ready || u.Ino == ino && len(u.Holders) == 0
			return true
		})
		if ready {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the file is still held")
}

// quiet waits until the janitor looks no more.
func (w *watched) quiet(t *testing.T) {
	t.Helper()
	for range 100 {
		n := w.looks.Load()
		time.Sleep(50 * time.Millisecond) // ten rounds of the janitor
		if w.looks.Load() == n {
			return
		}
	}
	t.Fatal("the janitor looks for unlinked files each time, though nothing happens")
}

const soon = 5 * time.Second

// TestJanitor: what is unlinked is freed soon, and then nobody looks for more.
func TestJanitor(t *testing.T) {
	w, e := newWatched(t)
	for _, name := range []string{"f", "g"} {
		if !w.freed(t, e.unlink(name), soon) {
			t.Fatal("not freed")
		}
		w.quiet(t)
	}
}

// TestJanitorMissesNothing: each way to come to a state with something to free,
// without having seen the event of it.
func TestJanitorMissesNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(*testing.T, *watched, *env)
	}{
		{"lead", func(_ *testing.T, w *watched, _ *env) {
			// It heard of the file while it followed.
			w.follows.Store(false)
		}},
		{"restart", func(t *testing.T, w *watched, e *env) {
			w.deaf.Store(true)
			e.stop()
			w.follows.Store(false)
			w.open(t, e.blobs)
		}},
		{"state replaced", func(_ *testing.T, w *watched, _ *env) {
			w.follows.Store(false)
			(*w.tell.Load())([]any{fsm.Restored{}})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, e := newWatched(t)
			w.quiet(t)
			w.follows.Store(true)
			w.deaf.Store(c.name == "state replaced")
			ino := e.unlink("f")
			w.ready(t, ino)
			if w.freed(t, ino, 50*time.Millisecond) {
				t.Fatal("freed by a follower")
			}
			c.then(t, w, e)
			if !w.freed(t, ino, soon) {
				t.Error("not freed")
			}
		})
	}
}

// TestJanitorRetries: a step that was refused is taken again, without an event.
func TestJanitorRetries(t *testing.T) {
	w, e := newWatched(t)
	w.quiet(t)
	var tried atomic.Int32
	w.faults(func(cmd []byte) fault {
		env, _, err := fsm.ParseCommand(cmd)
		if err == nil && env.Kind == volume.KindReap && tried.Add(1) == 1 {
			w.deaf.Store(true)
			w.do(t, &fsm.FenceWriter{Writer: env.Writer})
		}
		return none
	})
	if !w.freed(t, e.unlink("f"), soon) || tried.Load() < 2 {
		t.Errorf("not freed after %d steps", tried.Load())
	}
}

// TestJanitorDeadNode: what a writer held that was fenced long ago is freed,
// though no command says that it is ready.
func TestJanitorDeadNode(t *testing.T) {
	w, e := newWatched(t)
	long := fsm.Envelope{Time: now() - 2*volume.HoldTime}
	cmd := fsm.AppendCommand(nil, long, &fsm.OpenWriter{Node: "b", Nonce: 1})
	_, result := w.apply(cmd)
	body, err := fsm.SplitResult(result)
	if err != nil {
		t.Fatal(err)
	}
	id, err := fsm.DecodeOpenWriter(body)
	if err != nil {
		t.Fatal(err)
	}
	ino := e.unlink("f")
	w.quiet(t)
	if w.freed(t, ino, 50*time.Millisecond) {
		t.Fatal("freed while b may have it open")
	}
	w.apply(fsm.AppendCommand(nil, long, &fsm.FenceWriter{Writer: id}))
	if !w.freed(t, ino, soon) {
		t.Error("not freed")
	}
	if err := e.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}
