package vfs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/vfs"
)

func req() *vfs.Request { return vfs.NewRequest(context.Background(), vfs.Cred{}) }

func (e *env) root() vfs.File {
	e.Helper()
	f, _, err := e.Lookup(req(), vfs.Root, "main")
	if err != nil {
		e.Fatal(err)
	}
	return f
}

func (e *env) create(name string) vfs.File {
	e.Helper()
	c, err := e.Create(req(), e.root(), name, vfs.CreateArgs{Type: cluster.TypeRegular, How: vfs.Guarded})
	if err != nil {
		e.Fatal(err)
	}
	return c.File
}

func (e *env) write(f vfs.File, off uint64, p []byte, how vfs.Stability) vfs.Verifier {
	e.Helper()
	_, v, err := e.Write(req(), f, off, p, how)
	if err != nil {
		e.Fatal(err)
	}
	return v
}

func (e *env) read(f vfs.File, off uint64, n int) []byte {
	e.Helper()
	got, err := e.tryRead(f, off, n)
	if err != nil {
		e.Fatal(err)
	}
	return got
}

func (e *env) tryRead(f vfs.File, off uint64, n int) ([]byte, error) {
	d, err := e.Read(req(), f, off, n)
	if err != nil {
		return nil, err
	}
	got := bytes.Join(d.Bufs, nil)
	if d.Release != nil {
		d.Release()
	}
	return got, nil
}

func (e *env) view() volume.View { return volume.View{Reader: e.group.machine.Reader()} }

// eventually waits until fn is true.
func (e *env) eventually(what string, fn func() bool) {
	e.Helper()
	for range 3000 {
		if fn() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	e.Fatal("not so after 3 s: " + what)
}

func fill(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }

// TestFencedDropsHeldData: data held by a front-end that was fenced is never
// committed, since its client may have written it, and more, elsewhere; and
// the client hears of it by the verifier.
func TestFencedDropsHeldData(t *testing.T) {
	for name, lag := range map[string]time.Duration{"leader": 0, "follower": 30 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			var told atomic.Int32
			g := newGroup(t, relaxed, lag)
			e := open(t, g, &blobs{group: g, data: map[cluster.BlobID][]byte{}}, func(c *vfs.Config) {
				c.Fenced = func(vfs.VolumeID) { told.Add(1) }
			})
			f := e.create("f")
			e.write(f, 0, []byte("committed"), vfs.FileSync)
			v := e.write(f, 0, fill('x', 5<<20), vfs.Unstable)
			shown, err := e.Getattr(req(), f)
			if err != nil || shown.Size != 5<<20 {
				t.Fatalf("%+v, %v", shown, err)
			}
			w := e.group.leader.Writers()
			e.group.do(t, &fsm.FenceWriter{Writer: w[len(w)-1].ID})
			e.eventually("the client can commit", func() bool {
				got, err := e.Commit(req(), f)
				if err == nil && got == v {
					t.Fatal("the verifier stays the same")
				}
				if err != nil && !errors.Is(err, cluster.EAGAIN) {
					t.Fatal(err)
				}
				return err == nil
			})
			if got := e.read(f, 0, 100); string(got) != "committed" {
				t.Errorf("%.20q", got)
			}
			e.eventually("the change attribute moves on", func() bool {
				a, err := e.Getattr(req(), f)
				return err == nil && a.Size == 9 && a.Change > shown.Change
			})
			if told.Load() != 1 {
				t.Errorf("told %d times", told.Load())
			}
			e.write(f, 0, []byte("C"), vfs.Unstable)
			if _, err := e.Commit(req(), f); err != nil {
				t.Fatal(err)
			}
			if got := e.read(f, 0, 100); string(got) != "Committed" {
				t.Errorf("%.20q", got)
			}
		})
	}
}

// TestFencedCommand: a command of a fenced front-end has no effect, and is not
// repeated by itself under another writer.
func TestFencedCommand(t *testing.T) {
	e := newEnv(t, strict, nil)
	f := e.create("f")
	e.group.faults(func(cmd []byte) fault {
		env, _, err := fsm.ParseCommand(cmd)
		if err == nil && env.Kind == volume.KindCommitExtents {
			e.group.faults(func([]byte) fault { return none })
			e.group.do(t, &fsm.FenceWriter{Writer: env.Writer})
		}
		return none
	})
	_, _, err := e.Write(req(), f, 0, fill('x', 1<<20), vfs.FileSync)
	if !errors.Is(err, cluster.EAGAIN) {
		t.Fatal(err)
	}
	if a, _ := e.Getattr(req(), f); a.Size != 0 {
		t.Errorf("size %d", a.Size)
	}
	e.write(f, 0, []byte("again"), vfs.FileSync)
	if got := e.read(f, 0, 10); string(got) != "again" {
		t.Errorf("%q", got)
	}
}

// TestReplicaSetChanges: a blob whose replica set has changed before its
// commit is put again, under another id.
func TestReplicaSetChanges(t *testing.T) {
	for name, class := range map[string]cluster.Class{"strict": strict, "relaxed": relaxed} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, class, nil)
			f := e.create("f")
			p := fill('x', 9<<20)
			p[5<<20] = 'y'
			n := 0
			e.group.faults(func(cmd []byte) fault {
				env, _, err := fsm.ParseCommand(cmd)
				if err == nil && env.Kind == volume.KindCommitExtents && n < 2 {
					n++
					set, _ := e.view().ReplicaSet(1)
					e.group.do(t, volume.PutReplicaSet{Set: set})
				}
				return none
			})
			for off := 0; off < len(p); off += 3 << 20 {
				e.write(f, uint64(off), p[off:off+3<<20], vfs.Unstable)
			}
			if _, err := e.Commit(req(), f); err != nil {
				t.Fatal(err)
			}
			for off := 0; off < len(p); off += 3 << 20 {
				if !bytes.Equal(e.read(f, uint64(off), 3<<20), p[off:off+3<<20]) {
					t.Error("content is wrong")
				}
			}
			if n != 2 || e.blobs.puts < 5 {
				t.Errorf("%d changes, %d puts", n, e.blobs.puts)
			}
		})
	}
}

// TestLostData: unstable data that can't be committed is reported where it is
// asked for, and the verifier says so to all others.
func TestLostData(t *testing.T) {
	e := newEnv(t, relaxed, nil)
	f, g := e.create("f"), e.create("g")
	v := e.write(f, 0, fill('x', 100_000), vfs.Unstable)
	e.write(g, 0, []byte("g"), vfs.Unstable)
	shown, _ := e.Getattr(req(), f)
	full := cluster.ENOSPC
	e.blobs.fail = func() error { return full }
	if _, err := e.Commit(req(), f); !errors.Is(err, cluster.ENOSPC) {
		t.Fatalf("commit: %v", err)
	}
	if w, err := e.Commit(req(), g); err != nil || w == v {
		t.Errorf("the other file's commit: %x after %x, %v", w, v, err)
	}
	e.blobs.fail = nil
	if w, err := e.Commit(req(), f); err != nil || w == v {
		t.Errorf("a later commit: %x after %x, %v", w, v, err)
	}
	e.eventually("the change attribute moves on", func() bool {
		a, _ := e.Getattr(req(), f)
		return a.Size == 0 && a.Change > shown.Change
	})
	// Out of reach for a moment is no loss.
	v = e.write(f, 0, fill('y', 100_000), vfs.Unstable)
	e.blobs.fail = func() error { return cluster.EAGAIN }
	if _, err := e.Commit(req(), f); !errors.Is(err, cluster.EAGAIN) {
		t.Fatalf("commit: %v", err)
	}
	e.write(f, 50_000, fill('z', 10), vfs.Unstable)
	e.blobs.fail = nil
	if w, err := e.Commit(req(), f); err != nil || w != v {
		t.Errorf("commit: %x, want %x; %v", w, v, err)
	}
	want := fill('y', 100_000)
	copy(want[50_000:], fill('z', 10))
	if !bytes.Equal(e.read(f, 0, 200_000), want) {
		t.Error("content is wrong")
	}
}

// TestChangeNamesContent: while a file is written, flushed and committed, one
// change attribute stands for one content, and only grows.
func TestChangeNamesContent(t *testing.T) {
	e := newEnv(t, relaxed, func(c *vfs.Config) { c.HoldFor = 4 * time.Millisecond })
	f := e.create("f")
	const writes = 2000
	stop := make(chan struct{})
	var mu sync.Mutex
	seen := map[uint64]string{}
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			last := uint64(0)
			for {
				select {
				case <-stop:
					return
				default:
				}
				a, err := e.Getattr(req(), f)
				if err != nil {
					t.Error(err)
					return
				}
				if a.Change < last {
					t.Errorf("change went back from %x to %x", last, a.Change)
					return
				}
				last = a.Change
				p, err := e.tryRead(f, 0, 100)
				if err != nil {
					t.Error(err)
					return
				}
				if b, _ := e.Getattr(req(), f); b.Change != a.Change {
					continue
				}
				mu.Lock()
				if was, ok := seen[a.Change]; ok && was != string(p) {
					t.Errorf("change %x is of %q and of %q", a.Change, was, p)
				}
				seen[a.Change] = string(p)
				mu.Unlock()
			}
		})
	}
	deadline := time.Now().Add(time.Second)
	for i := range writes {
		if time.Now().After(deadline) {
			break
		}
		e.write(f, uint64(i%3), fmt.Appendf(nil, "%06d", i), vfs.Stability(i%50/49*2))
		time.Sleep(100 * time.Microsecond)
		if i%97 == 0 {
			if _, err := e.Commit(req(), f); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	readers.Wait()
	if len(seen) == 0 {
		t.Error("no state was seen")
	}
}

// TestUnlinked: a file without a name goes when the last front-end has closed it.
func TestUnlinked(t *testing.T) {
	e := newEnv(t, strict, nil)
	gone := func(f vfs.File) bool {
		_, ok := e.view().Inode(f.Ino)
		return !ok
	}
	f, g := e.create("open"), e.create("closed")
	e.write(f, 0, fill('x', 1<<20), vfs.FileSync)
	e.write(g, 0, fill('x', 1<<20), vfs.FileSync)
	if err := e.Open(req(), f); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"open", "closed"} {
		if _, err := e.Remove(req(), e.root(), name); err != nil {
			t.Fatal(err)
		}
	}
	e.eventually("the closed file is freed", func() bool { return gone(g) })
	if err := e.Open(req(), g); !errors.Is(err, cluster.ESTALE) {
		t.Errorf("opening what is gone: %v", err)
	}
	time.Sleep(50 * time.Millisecond)
	if gone(f) {
		t.Fatal("an open file is gone")
	}
	if err := e.Open(req(), f); err != nil {
		t.Errorf("opening it once more: %v", err)
	}
	e.Close(f)
	if got := e.read(f, 1<<20-1, 10); string(got) != "x" {
		t.Errorf("%q", got)
	}
	e.Close(f)
	e.eventually("the file is freed after the last close", func() bool { return gone(f) })
	if u := e.view().Usage(); u.Bytes != 0 {
		t.Errorf("%d bytes used", u.Bytes)
	}
}

// An opener is a front-end's table of opens that are not recorded.
type opener struct {
	mu       sync.Mutex
	opens    map[vfs.File][]vfs.State
	unlocked map[vfs.File]int
}

func (o *opener) Unlinked(f vfs.File) []vfs.State {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.opens[f]
}

func (o *opener) Unlocked(f vfs.File) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unlocked[f]++
}

func (o *opener) told(f vfs.File) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unlocked[f]
}

// TestRestart: locks are their clients', whatever becomes of the front-end that
// took them. A file that it may have had open when its last name went is kept,
// until a client that comes back to its open has it recorded and closes it.
func TestRestart(t *testing.T) {
	g := newGroup(t, strict, 0)
	b := &blobs{group: g, data: map[cluster.BlobID][]byte{}}
	e := open(t, g, b, nil)
	f := e.create("f")
	if err := e.Open(req(), f); err != nil {
		t.Fatal(err)
	}
	l := vfs.Lock{Owner: vfs.LockOwner{1}, Client: 1, End: 9, Exclusive: true}
	if _, err := e.Lock(req(), f, l); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Remove(req(), e.root(), "f"); err != nil {
		t.Fatal(err)
	}
	e.stop()
	e = open(t, g, b, nil)
	other := l
	other.Owner = vfs.LockOwner{2}
	if c, err := e.Lock(req(), f, other); !errors.Is(err, cluster.ELOCKED) || c == nil {
		t.Fatalf("a lock of another: %v", err)
	}
	if ls, err := e.Locks(req(), f, 1); err != nil || len(ls) != 1 || ls[0].Owner != l.Owner {
		t.Fatalf("locks after a restart: %+v, %v", ls, err)
	}
	id := vfs.StateID{7}
	w := &opener{opens: map[vfs.File][]vfs.State{f: {{Other: id, Client: 1, Access: vfs.ShareRead}}}, unlocked: map[vfs.File]int{}}
	defer e.Watch(w)()
	if err := e.Open(req(), f); err != nil {
		t.Fatalf("coming back to an open: %v", err)
	}
	// The hold of the old incarnation is still there: the new one has none, and
	// its client's open is recorded as that of any other.
	if err := e.PutState(req(), f, w.opens[f][0]); err != nil {
		t.Fatal(err)
	}
	if err := e.ReleaseClient(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	e.eventually("the release is told", func() bool { return w.told(f) > 0 })
	if _, err := e.Lock(req(), f, other); err != nil {
		t.Errorf("a lock after the release: %v", err)
	}
	e.Close(f)
	if _, err := e.Getattr(req(), f); err != nil {
		t.Errorf("what the old incarnation may have had open: %v", err)
	}
}

// TestUnlinkedRecorded: the opens of a file that loses its last name are
// recorded, so that the file outlives the front-end.
func TestUnlinkedRecorded(t *testing.T) {
	g := newGroup(t, strict, 0)
	b := &blobs{group: g, data: map[cluster.BlobID][]byte{}}
	e := open(t, g, b, nil)
	f := e.create("f")
	id := vfs.StateID{7}
	w := &opener{opens: map[vfs.File][]vfs.State{f: {{Other: id, Client: 1, Access: vfs.ShareRead}}}, unlocked: map[vfs.File]int{}}
	cancel := e.Watch(w)
	if err := e.Open(req(), f); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Remove(req(), e.root(), "f"); err != nil {
		t.Fatal(err)
	}
	e.eventually("the open is recorded", func() bool {
		sts, err := e.States(req(), f)
		return err == nil && len(sts) == 1 && sts[0].Other == id
	})
	cancel()
	e.stop()
	e = open(t, g, b, nil)
	time.Sleep(50 * time.Millisecond)
	var found []vfs.File
	if err := e.ClientStates(req(), 1, func(f vfs.File, s vfs.State) bool {
		found = append(found, f)
		return true
	}); err != nil || len(found) != 1 || found[0] != f {
		t.Fatalf("the client's states: %v, %v", found, err)
	}
	if err := e.DropState(req(), f, id, false); err != nil {
		t.Fatal(err)
	}
	e.eventually("it goes with its last state", func() bool {
		_, ok := e.view().Inode(f.Ino)
		return !ok
	})
}

// TestUnlinkedAtOnce: the open that is recorded as a file is created is good,
// although the name was removed before the front-end came to count the open.
func TestUnlinkedAtOnce(t *testing.T) {
	e := newEnv(t, strict, nil)
	state := vfs.State{Other: vfs.StateID{7}, Client: 1, Access: vfs.ShareRead | vfs.ShareWrite}
	c, err := e.Create(req(), e.root(), "f", vfs.CreateArgs{Type: cluster.TypeRegular, How: vfs.Guarded, Open: &state})
	if err != nil {
		t.Fatal(err)
	}
	f := c.File
	if _, err := e.Remove(req(), e.root(), "f"); err != nil {
		t.Fatal(err)
	}
	if err := e.Open(req(), f); err != nil {
		t.Fatalf("the file's own open: %v", err)
	}
	e.write(f, 0, []byte("x"), vfs.FileSync)
	if err := e.DropState(req(), f, state.Other, true); err != nil {
		t.Fatal(err)
	}
	e.Close(f)
	e.eventually("it goes with its last open", func() bool {
		_, ok := e.view().Inode(f.Ino)
		return !ok
	})
}

// TestOldMap: a blob that is gone from all members makes the map be read again.
func TestOldMap(t *testing.T) {
	e := newEnv(t, strict, nil)
	f := e.create("f")
	e.write(f, 0, fill('a', 1<<20), vfs.FileSync)
	e.blobs.mu.Lock()
	for id := range e.blobs.data {
		delete(e.blobs.data, id)
	}
	e.blobs.mu.Unlock()
	before := e.group.reads.Load()
	if _, err := e.tryRead(f, 0, 10); !errors.Is(err, cluster.EIO) {
		t.Errorf("lost data: %v", err)
	}
	if n := e.group.reads.Load() - before; n != 4 {
		t.Errorf("%d rounds of agreement", n)
	}
	e.write(f, 0, fill('b', 1<<20), vfs.FileSync)
	if got := e.read(f, 0, 3); string(got) != "bbb" {
		t.Errorf("%q", got)
	}
}

// TestRounds: a request pays for one agreement, a relaxed one for none.
func TestRounds(t *testing.T) {
	for name, c := range map[string]struct {
		class cluster.Class
		want  int64
	}{"strict": {strict, 1}, "relaxed": {relaxed, 0}} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, c.class, func(c *vfs.Config) { c.Stale = time.Hour })
			f := e.create("f")
			e.write(f, 0, []byte("x"), vfs.FileSync)
			root := e.root()
			before := e.group.reads.Load()
			r := req()
			if _, _, err := e.Lookup(r, root, "f"); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Access(r, f, 1); err != nil {
				t.Fatal(err)
			}
			d, err := e.Read(r, f, 0, 10)
			if err != nil || d.N != 1 {
				t.Fatal(err)
			}
			d.Release()
			if n := e.group.reads.Load() - before; n != c.want {
				t.Errorf("%d rounds", n)
			}
		})
	}
}

// TestReadAhead: a sequential reader finds what it reads in the cache.
func TestReadAhead(t *testing.T) {
	e := newEnv(t, strict, func(c *vfs.Config) { c.CacheBytes = 256 << 20 })
	f := e.create("f")
	const size = 32 << 20
	for off := 0; off < size; off += 4 << 20 {
		e.write(f, uint64(off), fill(byte(off>>20), 4<<20), vfs.FileSync)
	}
	for off := 0; off < size; off += 128 << 10 {
		if got := e.read(f, uint64(off), 128<<10); !bytes.Equal(got, fill(byte(off>>22<<2), 128<<10)) {
			t.Fatalf("wrong at %d", off)
		}
	}
	e.blobs.mu.Lock()
	defer e.blobs.mu.Unlock()
	if e.blobs.gets > 40 {
		t.Errorf("%d gets of 32 MiB", e.blobs.gets)
	}
}

// TestAtime: reading sets the access time, once, and is no change.
func TestAtime(t *testing.T) {
	e := newEnv(t, strict, nil)
	f := e.create("f")
	e.write(f, 0, []byte("x"), vfs.FileSync)
	before, _ := e.Getattr(req(), f)
	e.read(f, 0, 1)
	e.eventually("atime is set", func() bool {
		a, _ := e.Getattr(req(), f)
		if a.Change != before.Change || a.Ctime != before.Ctime {
			t.Fatal("reading changed the file")
		}
		return a.Atime > before.Atime
	})
}
