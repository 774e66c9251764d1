package vfstest

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

var stateTests = map[string]func(*T){
	"shares":         testShares,
	"states":         testStates,
	"state-unlinked": testStateUnlinked,
	"watch-changes":  testWatchChanges,
	"watch":          testWatch,
}

func share(other byte, client uint64, access, deny uint8) vfs.State {
	return vfs.State{Other: vfs.StateID{other}, Client: client, Access: access, Deny: deny, Owner: []byte{other}}
}

// testShares: opens exclude each other as they say (RFC 8881 §9.7), and nothing
// of the file changes if one is refused.
func testShares(t *T) {
	const r, w, rw = vfs.ShareRead, vfs.ShareWrite, vfs.ShareRead | vfs.ShareWrite
	for _, c := range []struct {
		a, ad, b, bd uint8
		want         vfs.Errno
	}{
		{r, 0, rw, 0, cluster.OK},
		{r, w, r, w, cluster.OK},
		{r, w, w, 0, cluster.ESHARE},
		{w, 0, r, w, cluster.ESHARE},
		{rw, rw, r, 0, cluster.ESHARE},
		{r, 0, w, r, cluster.ESHARE},
		{w, r, w, r, cluster.OK},
	} {
		f := t.file("f")
		t.write(f, 0, []byte("data"), vfs.FileSync)
		t.ok(t.FS.PutState(req(Root), f, share(1, 1, c.a, c.ad)))
		t.result("put", t.FS.PutState(req(Root), f, share(2, 2, c.b, c.bd)), c.want)
		open := share(3, 3, c.b, c.bd)
		_, err := t.FS.Create(req(Root), t.Dir, "f", vfs.CreateArgs{
			Type: cluster.TypeRegular, Open: &open, Attr: vfs.SetAttr{Mask: cluster.SetSize},
		})
		size := uint64(4)
		if c.want == cluster.OK {
			size = 0
		}
		t.result("create", err, c.want)
		if got := t.attr(f).Size; got != size {
			t.Errorf("%+v: size %d", c, got)
		}
		for access, bit := range map[uint32]uint8{vfs.AccessRead: r, vfs.AccessModify: w} {
			want := cluster.OK
			if c.ad&bit != 0 {
				want = cluster.ELOCKED
			}
			t.ok(t.FS.DropState(req(Root), f, vfs.StateID{2}, true))
			t.ok(t.FS.DropState(req(Root), f, vfs.StateID{3}, true))
			t.result("denied to others", t.FS.Denied(req(Root), f, vfs.StateID{9}, access), want)
			t.result("denied to itself", t.FS.Denied(req(Root), f, vfs.StateID{1}, access), cluster.OK)
		}
		t.ok(t.FS.DropState(req(Root), f, vfs.StateID{1}, true))
		_, err = t.FS.Remove(req(Root), t.Dir, "f")
		t.ok(err)
	}
	t.fails(t.FS.PutState(req(Root), t.Dir, share(1, 1, r, 0)), cluster.EISDIR)

	// What was dropped without waiting for it denies nothing, and keeps nobody from denying.
	f, g := t.file("f"), t.file("g")
	for i, f := range []vfs.File{f, g} {
		t.ok(t.FS.PutState(req(Root), f, share(1, 1, rw, 0)))
		t.ok(t.FS.DropState(req(Root), f, vfs.StateID{1}, false))
		if i == 0 {
			t.result("put after a drop", t.FS.PutState(req(Root), f, share(2, 2, r, rw)), cluster.OK)
			continue
		}
		open := share(2, 2, r, rw)
		_, err := t.FS.Create(req(Root), t.Dir, "g", vfs.CreateArgs{Type: cluster.TypeRegular, Open: &open})
		t.result("create after a drop", err, cluster.OK)
	}
}

// testStates: what is put is there until it is dropped, by name or with its
// client; putting it again changes it.
func testStates(t *T) {
	f, g := t.file("f"), t.file("g")
	list := func(f vfs.File) []vfs.State {
		s, err := t.FS.States(req(Root), f)
		t.ok(err)
		return s
	}
	of := func(client uint64) (files []vfs.File) {
		t.ok(t.FS.ClientStates(req(Root), client, func(f vfs.File, s vfs.State) bool {
			if s.Client != client {
				t.Errorf("%+v of client %d", s, client)
			}
			files = append(files, f)
			return true
		}))
		return files
	}
	a, b := share(1, 51, vfs.ShareRead, 0), share(2, 52, vfs.ShareWrite, 0)
	locked := vfs.State{Other: vfs.StateID{3}, Kind: vfs.StateLock, Client: 51, Owner: []byte("lo"), Digest: vfs.LockOwner{4}}
	t.ok(t.FS.PutState(req(Root), f, a))
	t.ok(t.FS.PutState(req(Root), f, b))
	t.ok(t.FS.PutState(req(Root), g, a))
	_, err := t.FS.Lock(req(Root), f, vfs.Lock{Owner: locked.Digest, Client: 51, End: 9, Exclusive: true, State: &locked})
	t.ok(err)
	if got := list(f); !reflect.DeepEqual(got, []vfs.State{a, b, locked}) {
		t.Fatalf("%+v", got)
	}
	if got := of(51); !reflect.DeepEqual(got, []vfs.File{f, f, g}) {
		t.Errorf("%v", got)
	}
	if ls, err := t.FS.Locks(req(Root), f, 51); err != nil || len(ls) != 1 || ls[0].End != 9 {
		t.Errorf("%+v, %v", ls, err)
	}
	a.Access |= vfs.ShareWrite
	t.ok(t.FS.PutState(req(Root), f, a))
	t.ok(t.FS.DropState(req(Root), f, b.Other, false)) // not shown any more at once
	t.ok(t.FS.DropState(req(Root), f, vfs.StateID{77}, false))
	if got := list(f); !reflect.DeepEqual(got, []vfs.State{a, locked}) {
		t.Fatalf("%+v", got)
	}
	t.ok(t.FS.PutState(req(Root), f, b)) // not dropped after all
	time.Sleep(150 * time.Millisecond)
	if got := list(f); !reflect.DeepEqual(got, []vfs.State{a, b, locked}) {
		t.Fatalf("%+v", got)
	}
	// A lock that is refused leaves no state.
	other := locked
	other.Other = vfs.StateID{5}
	_, err = t.FS.Lock(req(Root), f, vfs.Lock{Owner: vfs.LockOwner{5}, Client: 52, End: 9, Exclusive: true, State: &other})
	t.fails(err, cluster.ELOCKED)
	t.ok(t.FS.ReleaseClient(context.Background(), 51))
	if got := list(f); !reflect.DeepEqual(got, []vfs.State{b}) || len(list(g)) != 0 || len(of(51)) != 0 {
		t.Fatalf("%+v", got)
	}
	_, err = t.FS.Lock(req(Root), f, vfs.Lock{Owner: vfs.LockOwner{5}, Client: 52, End: 9, Exclusive: true})
	t.ok(err)
	t.ok(t.FS.ReleaseClient(context.Background(), 52))
}

// gone reports whether f is gone within a while.
func (t *T) gone(f vfs.File) bool {
	for range 300 {
		if _, err := t.FS.Getattr(req(Root), f); err != nil {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// testStateUnlinked: a state keeps a file whose names are gone.
func testStateUnlinked(t *T) {
	for name, drop := range map[string]func(f vfs.File){
		"drop":       func(f vfs.File) { t.ok(t.FS.DropState(req(Root), f, vfs.StateID{1}, true)) },
		"drop later": func(f vfs.File) { t.ok(t.FS.DropState(req(Root), f, vfs.StateID{1}, false)) },
		"client":     func(vfs.File) { t.ok(t.FS.ReleaseClient(context.Background(), 61)) },
	} {
		f := t.file(name)
		t.write(f, 0, []byte("data"), vfs.FileSync)
		t.ok(t.FS.PutState(req(Root), f, share(1, 61, vfs.ShareWrite, 0)))
		_, err := t.FS.Remove(req(Root), t.Dir, name)
		t.ok(err)
		time.Sleep(50 * time.Millisecond)
		t.content(f, []byte("data"))
		t.write(f, 4, []byte("more"), vfs.FileSync)
		t.content(f, []byte("datamore"))
		drop(f)
		if !t.gone(f) {
			t.Errorf("%s: not gone", name)
		}
	}
}

// A watcher has the opens of one file, and counts what it is told.
type watcher struct {
	mu       sync.Mutex
	f        vfs.File
	states   []vfs.State
	unlocked int
	changed  int
}

func (w *watcher) Unlinked(f vfs.File) []vfs.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f != w.f {
		return nil
	}
	return w.states
}

func (w *watcher) Unlocked(f vfs.File) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f == w.f {
		w.unlocked++
	}
}

func (w *watcher) Changed(f vfs.File) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f == w.f {
		w.changed++
	}
}

func (w *watcher) told() (unlocked, changed int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unlocked, w.changed
}

// testWatchChanges: front-ends hear of what is changed, or opened to be, of what is open
// there, and of nothing else.
func testWatchChanges(t *T) {
	f := t.file("f")
	w := &watcher{f: f}
	defer t.FS.Watch(w)()
	change := func(mode uint32) {
		_, err := t.FS.Setattr(req(Root), f, vfs.SetAttr{Mask: cluster.SetMode, Mode: mode}, false)
		t.ok(err)
	}
	quiet := func(what string, fn func()) {
		_, before := w.told()
		fn()
		time.Sleep(100 * time.Millisecond)
		if _, now := w.told(); now != before {
			t.Errorf("%s: told", what)
		}
	}
	hears := func(what string, fn func()) {
		_, before := w.told()
		fn()
		for range 300 {
			if _, now := w.told(); now > before {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%s: nobody is told", what)
	}
	quiet("change of what is not open", func() { change(0o600) })
	t.ok(t.FS.Open(req(Root), f))
	hears("mode", func() { change(0o644) })
	hears("write", func() {
		_, _, err := t.FS.Write(req(Root), f, 0, []byte("x"), vfs.FileSync)
		t.ok(err)
	})
	s := share(1, 71, vfs.ShareRead, 0)
	quiet("open to read", func() { t.ok(t.FS.PutState(req(Root), f, s)) })
	s = share(2, 71, vfs.ShareWrite, 0)
	hears("open to write", func() { t.ok(t.FS.PutState(req(Root), f, s)) })
	quiet("close", func() { t.ok(t.FS.ReleaseClient(context.Background(), 71)) })
	hears("link", func() {
		_, _, err := t.FS.Link(req(Root), f, t.Dir, "g")
		t.ok(err)
	})
	hears("remove", func() {
		_, err := t.FS.Remove(req(Root), t.Dir, "f")
		t.ok(err)
	})
	t.FS.Close(f)
	quiet("change of what is closed", func() { change(0o600) })
}

// testWatch: front-ends hear that locks are free, and are asked for their opens
// of a file that loses its last name.
func testWatch(t *T) {
	f := t.file("f")
	w := &watcher{f: f, states: []vfs.State{share(1, 71, vfs.ShareRead, 0)}}
	cancel := t.FS.Watch(w)
	hears := func(what string, fn func()) {
		before, _ := w.told()
		fn()
		for range 300 {
			if now, _ := w.told(); now > before {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%s: nobody is told", what)
	}
	l := vfs.Lock{Owner: vfs.LockOwner{1}, Client: 71, End: 9, Exclusive: true}
	lock := func() {
		_, err := t.FS.Lock(req(Root), f, l)
		t.ok(err)
	}
	lock()
	hears("unlock", func() { t.ok(t.FS.Unlock(req(Root), f, l)) })
	lock()
	hears("release", func() { t.ok(t.FS.ReleaseClient(context.Background(), 71)) })
	lock()
	l.Exclusive = false
	hears("downgrade", lock)
	hears("release", func() { t.ok(t.FS.ReleaseClient(context.Background(), 71)) })
	t.ok(t.FS.Open(req(Root), f))
	_, err := t.FS.Remove(req(Root), t.Dir, "f")
	t.ok(err)
	recorded := func() bool {
		s, err := t.FS.States(req(Root), f)
		t.ok(err)
		return len(s) == 1 && s[0].Other == vfs.StateID{1}
	}
	for i := 0; !recorded(); i++ {
		if i == 300 {
			t.Fatal("the open is not recorded")
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.FS.Close(f)
	time.Sleep(50 * time.Millisecond)
	if !recorded() {
		t.Error("it is not kept")
	}
	cancel()
	t.ok(t.FS.ReleaseClient(context.Background(), 71))
	if !t.gone(f) {
		t.Error("not gone")
	}
}
