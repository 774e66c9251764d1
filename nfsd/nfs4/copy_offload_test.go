package nfs4

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// offloaded starts a copy of the whole of src that goes on.
func offloaded(t *testing.T, dst, src *client.File) *client.Copying {
	t.Helper()
	c, err := dst.CopyRange(soon(t), 0, src, 0, 0, false)
	if err != nil || c.Copy == nil || c.Count != 0 {
		t.Fatalf("%+v, %v", c, err)
	}
	return c.Copy
}

// records returns how many copies are recorded for a client.
func (r *rig) records(id uint64) (n int) {
	_ = r.fs.ClientStates(rootRequest(r.t), id, func(_ vfs.File, s vfs.State) bool {
		if s.Kind == vfs.StateCopy {
			n++
		}
		return true
	})
	return n
}

// A copy that goes on after its answer: how far it has come can be asked, and the client
// is told when it has ended (RFC 7862 §4.8, §15.9, §16.1). Holes stay holes.
func TestOffload(t *testing.T) {
	r, gate := copyRig(t, nil)
	c := r.mounted(client.Options{Callbacks: true})
	src, dst := file(t, c, "main", "src"), file(t, c, "other", "dst")
	fill(t, src, 0, 9<<20)
	fill(t, src, 40<<20, 5000)
	if err := src.Truncate(soon(t), 50<<20); err != nil {
		t.Fatal(err)
	}
	fill(t, dst, 20<<20, 1<<20) // where there is to be a hole
	open := gate.close(4 << 20)
	before := gate.writes.Load()
	going := offloaded(t, dst, src)
	until(t, "one step is done", func() bool {
		done, ended, _, err := going.Status(soon(t))
		if err != nil || ended {
			t.Fatal(ended, err)
		}
		return done == 4<<20
	})
	if c.Executed(proto.CBOffload) != 0 || r.records(c.ID()) != 1 {
		t.Fatal("told too early, or not recorded")
	}
	open()
	o, err := going.Wait(soon(t))
	if err != nil || o.Status != proto.OK || o.Count != 50<<20 || o.Committed != proto.FileSync {
		t.Fatalf("%+v, %v", o, err)
	}
	if !bytes.Equal(content1(t, dst), content1(t, src)) {
		t.Fatal("the copy differs")
	}
	if n := gate.writes.Load() - before; n > 5 {
		t.Fatalf("%d writes: holes are written", n)
	}
	if at, _, err := dst.Seek(soon(t), 9<<20, proto.ContentData); err != nil || at != 40<<20 {
		t.Fatal(at, err)
	}
	until(t, "it is forgotten", func() bool { return r.records(c.ID()) == 0 })
	if _, _, _, err := going.Status(soon(t)); !errors.Is(err, proto.ErrBadStateid) {
		t.Fatalf("status of what is over: %v", err)
	}
	if err := going.Cancel(soon(t)); !errors.Is(err, proto.ErrBadStateid) {
		t.Fatalf("cancelling what is over: %v", err)
	}
	if n := r.fs.Opens(mustFile(t, r, dst.FH())); n != 1 {
		t.Fatalf("the destination is held %d times", n)
	}
}

// Nothing is copied after OFFLOAD_CANCEL was answered.
func TestOffloadCancel(t *testing.T) {
	r, gate := copyRig(t, nil)
	c, other := r.mounted(client.Options{Callbacks: true}), r.mounted(client.Options{})
	src, dst := file(t, c, "main", "src"), file(t, c, "other", "dst")
	fill(t, src, 0, 12<<20)
	open := gate.close(4 << 20)
	defer open()
	going := offloaded(t, dst, src)
	until(t, "one step is done", func() bool {
		done, _, _, err := going.Status(soon(t))
		return err == nil && done == 4<<20
	})
	// It is of that client and file alone.
	theirs := file(t, other, "other", "dst")
	for _, x := range []struct {
		f *client.File
		c *client.Copying
	}{{theirs, going.Of(theirs)}, {src, going.Of(src)}} {
		if err := x.c.Cancel(soon(t)); !errors.Is(err, proto.ErrBadStateid) {
			t.Fatalf("%v", err)
		}
	}
	if err := going.Cancel(soon(t)); err != nil {
		t.Fatal(err)
	}
	before := gate.writes.Load()
	if r.records(c.ID()) != 0 {
		t.Fatal("it is recorded still, and goes on after a take-over")
	}
	time.Sleep(20 * time.Millisecond)
	if gate.writes.Load() != before || c.Executed(proto.CBOffload) != 0 {
		t.Fatal("it goes on")
	}
	if a, err := c.Getattr(soon(t), dst.FH()); err != nil || a.Size != 4<<20 {
		t.Fatal(a.Size, err)
	}
}

// A copy that fails says why, and how far it has come.
func TestOffloadFails(t *testing.T) {
	r, gate := copyRig(t, nil)
	c := r.mounted(client.Options{Callbacks: true})
	src, dst := file(t, c, "main", "src"), file(t, c, "other", "dst")
	fill(t, src, 0, 12<<20)
	open := gate.close(4 << 20)
	c1, err := dst.CopyRange(soon(t), cluster.MaxFileSize-8<<20, src, 0, 8<<20, false)
	if err != nil || c1.Copy == nil {
		t.Fatal(err)
	}
	going := c1.Copy
	gate.fail.Store(int64(cluster.ENOSPC))
	open()
	if o, err := going.Wait(soon(t)); err != nil || o.Status != proto.ErrNospc {
		t.Fatalf("%+v, %v", o, err)
	}
}

// A client has so many copies under way, and no more: others are made before the answer.
func TestOffloadBounded(t *testing.T) {
	r, gate := copyRig(t, nil)
	c, d := r.mounted(client.Options{Callbacks: true}), r.mounted(client.Options{Callbacks: true})
	src, dst := file(t, c, "main", "src"), file(t, c, "other", "dst")
	fill(t, src, 0, 8<<20)
	open := gate.close(64 << 20)
	defer open()
	for i := range maxClientJobs {
		got, err := dst.CopyRange(soon(t), uint64(64+8*i)<<20, src, 0, 0, false)
		if err != nil || got.Copy == nil {
			t.Fatal(i, err)
		}
	}
	if got, err := dst.CopyRange(soon(t), 0, src, 0, 0, false); err != nil || got.Copy != nil || got.Count != 8<<20 {
		t.Fatalf("%+v, %v", got, err)
	}
	if n := r.records(c.ID()); n != maxClientJobs {
		t.Fatalf("%d are recorded", n)
	}
	srcD, dstD := file(t, d, "main", "src"), file(t, d, "other", "dst2")
	if got, err := dstD.CopyRange(soon(t), 64<<20, srcD, 0, 0, false); err != nil || got.Copy == nil {
		t.Fatalf("%+v, %v", got, err)
	}
}

// A client's end is the end of its copies.
func TestOffloadOfTheDead(t *testing.T) {
	r, gate := copyRig(t, nil)
	c := r.mounted(client.Options{Callbacks: true})
	src, dst := file(t, c, "main", "src"), file(t, c, "other", "dst")
	fill(t, src, 0, 12<<20)
	f := mustFile(t, r, dst.FH())
	open := gate.close(4 << 20)
	offloaded(t, dst, src)
	_ = c.Abort()
	r.advance(11 * time.Second)
	if !r.p.ExpireClient(t.Context(), c.ID()) {
		t.Fatal("not expired")
	}
	open()
	until(t, "it is forgotten", func() bool { return r.records(c.ID()) == 0 && r.fs.Opens(f) == 0 })
}

// A second front-end over the same files and clients.
func (r *rig) successor(reg *memRegistry) *rig {
	next := newRig(r.t, func(c *Config) {
		reg.with(c)
		c.FS = r.p.fs
	})
	next.fs = r.fs
	return next
}

// following has a client find whichever of two front-ends serves it.
func following(at *atomic.Pointer[rig]) client.Options {
	return client.Options{Callbacks: true, Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", at.Load().ln.Addr().String())
	}}
}

// A copy goes on at whoever serves the client next, for Linux waits for CB_OFFLOAD and
// nothing else. Nothing is copied here after the hand-over.
func TestOffloadTakeover(t *testing.T) {
	reg := newRegistry()
	r, gate := copyRig(t, reg.with)
	var at atomic.Pointer[rig]
	at.Store(r)
	c := r.mounted(following(&at))
	src, dst := file(t, c, "main", "src"), file(t, c, "other", "dst")
	data := fill(t, src, 0, 20<<20)
	open := gate.close(8 << 20)
	going := offloaded(t, dst, src)
	until(t, "two steps are done", func() bool {
		done, _, _, err := going.Status(soon(t))
		return err == nil && done == 8<<20
	})
	quiet := make(chan error, 1)
	go func() { quiet <- r.p.Quiesce(context.Background()) }()
	select {
	case <-quiet:
		t.Fatal("a step is under way, and the hand-over does not wait for it")
	case <-time.After(20 * time.Millisecond):
	}
	open()
	if err := <-quiet; err != nil {
		t.Fatal(err)
	}
	before := gate.writes.Load()
	time.Sleep(20 * time.Millisecond)
	if gate.writes.Load() != before {
		t.Fatal("it goes on after the hand-over")
	}
	next := r.successor(reg)
	at.Store(next)
	r.p.Abandon()
	for i := range 1 {
		c.Drop(i)
	}
	next.run()
	if _, _, _, err := going.Status(soon(t)); err != nil && !errors.Is(err, proto.ErrBadStateid) {
		t.Fatal(err)
	}
	if o, err := going.Wait(soon(t)); err != nil || o.Status != proto.OK || o.Count != 20<<20 {
		t.Fatalf("%+v, %v", o, err)
	}
	if !bytes.Equal(content1(t, dst), data) {
		t.Fatal("the copy differs")
	}
	until(t, "it is forgotten", func() bool { return next.records(c.ID()) == 0 })
}

// What had ended before a take-over is told of, and not copied again over what the client
// may have written since.
func TestOffloadEndedBeforeTakeover(t *testing.T) {
	reg := newRegistry()
	r, gate := copyRig(t, reg.with)
	var at atomic.Pointer[rig]
	at.Store(r)
	c := r.mounted(following(&at))
	src, dst := file(t, c, "main", "src"), file(t, c, "other", "dst")
	fill(t, src, 0, 12<<20)
	j := &copyJob{
		id: vfs.StateID{byte(kindCopy) << 4, 1, 2, 3}, client: c.ID(),
		src: mustFile(t, r, src.FH()), dst: mustFile(t, r, dst.FH()), n: 12 << 20, uid: 3, gid: 4,
	}
	j.done.Store(12 << 20)
	j.end(proto.OK, 77)
	rec := j.record()
	if err := r.fs.PutState(rootRequest(t), j.dst, rec); err != nil {
		t.Fatal(err)
	}
	if back, ok := recordedJob(j.dst, &rec); !ok || back.record().Kind != rec.Kind || !bytes.Equal(back.record().Owner, rec.Owner) {
		t.Fatal("a record does not say what the job is")
	}
	before := gate.writes.Load()
	next := r.successor(reg)
	at.Store(next)
	r.p.Abandon()
	c.Drop(0)
	next.run()
	if _, err := c.Walk(soon(t), "main"); err != nil { // it binds its connection
		t.Fatal(err)
	}
	until(t, "the client is told", func() bool { return c.Executed(proto.CBOffload) == 1 })
	until(t, "it is forgotten", func() bool { return next.records(c.ID()) == 0 })
	if n := gate.writes.Load() - before; n != 0 {
		t.Fatalf("%d writes", n)
	}
}

// A COPY that comes again after a take-over, when its copy has ended and the client was
// told, copies nothing.
func TestOffloadReplay(t *testing.T) {
	for name, full := range map[string]bool{"offloaded": false, "no room the first time": true} {
		t.Run(name, func(t *testing.T) { testOffloadReplay(t, full) })
	}
}

func testOffloadReplay(t *testing.T, full bool) {
	reg := newRegistry()
	r, gate := copyRig(t, reg.with)
	cb := &cbClient{slots: map[uint32]uint32{}}
	r.callbacks = append(r.callbacks, cb.program())
	s := r.newSession("a")
	root := s.root()
	src := s.mustOpen(root, openHow{create: true, name: "src"})
	other := r.fs.AppendHandle(nil, vfs.File{Volume: 2, Ino: cluster.RootIno, Gen: mustGen(t, r, 2)})
	dst := s.mustOpen(other, openHow{create: true, name: "dst"})
	for i := range uint64(10) {
		s.do(putfh(src.fh), writeOp(src.sid, i<<20, proto.FileSync, bytes.Repeat([]byte{7}, 1<<20))).is(proto.OK)
	}
	ops := []op{putfh(src.fh), simple(proto.OpSavefh), putfh(dst.fh), copyOp(src, dst)}
	told, ids := 1, uint32(1)
	if full {
		told, ids = 0, 0
		r.p.copies.mu.Lock()
		r.p.copies.clients[s.clientID] = maxClientJobs
		r.p.copies.mu.Unlock()
	}
	rep := s.do(ops...)
	rep.is(proto.OK)
	until(t, "it is over", func() bool { return cb.executed() == told && r.records(s.clientID) == 0 })
	// The client has not heard of the answer, but that the copy has ended.
	s.slot = 1
	s.do(putfh(dst.fh), writeOp(dst.sid, 0, proto.FileSync, []byte("mine"))).is(proto.OK)
	seq := s.seq[0]
	next := r.successor(reg)
	next.callbacks = r.callbacks
	r.p.Abandon()
	next.run()
	before := gate.writes.Load()
	s.wire, s.r, s.down = next.dial(), next, true
	again := s.wait(s.send(append([]op{s.sequence(0, seq)}, ops...)...))
	again.is(proto.OK)
	for _, o := range []proto.Op{proto.OpPutfh, proto.OpSavefh, proto.OpPutfh, proto.OpCopy} {
		rep.ok(o)
	}
	if n := rep.d.Uint32(); n != ids {
		t.Fatalf("%d callback ids", n)
	}
	first := rep.d.FixedOpaque(rep.d.Remaining())
	again.ok(proto.OpSequence).FixedOpaque(16 + 5*4)
	for _, o := range []proto.Op{proto.OpPutfh, proto.OpSavefh, proto.OpPutfh, proto.OpCopy} {
		again.ok(o)
	}
	if n := again.d.Uint32(); n != ids || !bytes.Equal(again.d.FixedOpaque(again.d.Remaining()), first) {
		t.Fatalf("the answer is another one, with %d callback ids", n)
	}
	time.Sleep(20 * time.Millisecond)
	if n := gate.writes.Load() - before; !full && n != 0 || cb.executed() != told {
		t.Fatalf("it was copied again: %d writes", n)
	}
	_, d := s.one(dst.fh, proto.OpRead, readOp(dst.sid, 0, 4))
	if d.Bool(); string(d.Opaque(4)) != "mine" {
		t.Fatal("what was written since is gone")
	}
}
