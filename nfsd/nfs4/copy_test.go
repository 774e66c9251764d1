package nfs4

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
	"github.com/hawserfs/hawser/vfs/memfs"
)

// A copyFS counts writes, and has those behind an offset wait while it is shut.
type copyFS struct {
	vfs.FS
	from   atomic.Uint64
	shut   atomic.Pointer[chan struct{}]
	writes atomic.Int64
	fail   atomic.Int64 // an Errno
}

func (f *copyFS) Write(r *vfs.Request, file vfs.File, off uint64, p []byte, how vfs.Stability) (vfs.Stability, vfs.Verifier, error) {
	if ch := f.shut.Load(); ch != nil && off >= f.from.Load() {
		select {
		case <-*ch:
		case <-r.Context().Done():
			return 0, 0, r.Context().Err()
		}
	}
	if e := f.fail.Load(); e != 0 {
		return 0, 0, cluster.Errno(e)
	}
	f.writes.Add(1)
	return f.FS.Write(r, file, off, p, how)
}

func (f *copyFS) close(from uint64) (open func()) {
	ch := make(chan struct{})
	f.from.Store(from)
	f.shut.Store(&ch)
	return func() {
		f.shut.Store(nil)
		close(ch)
	}
}

// copyRig has two volumes, behind a gate.
func copyRig(t *testing.T, change func(*Config)) (*rig, *copyFS) {
	mem := memfs.New(memfs.Options{Volumes: []string{"main", "other"}, Class: cluster.Class{Consistency: cluster.Relaxed}})
	gate := &copyFS{FS: mem}
	r := newRig(t, func(c *Config) {
		c.FS = gate
		if change != nil {
			change(c)
		}
	})
	r.fs = mem
	r.run()
	return r, gate
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// fill writes n bytes that are all different from those around.
func fill(t *testing.T, f *client.File, off uint64, n int) []byte {
	t.Helper()
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i%251 + i>>16 + 1)
	}
	if err := f.WriteAll(soon(t), off, p); err != nil {
		t.Fatal(err)
	}
	return p
}

func content1(t *testing.T, f *client.File) []byte {
	t.Helper()
	p, err := f.ReadAll(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Within a volume, COPY moves no data: whatever the range, both files refer to the same.
func TestCopyShares(t *testing.T) {
	r, gate := copyRig(t, nil)
	c := r.mounted(client.Options{})
	src, dst := file(t, c, "main", "src"), file(t, c, "main", "dst")
	data := fill(t, src, 0, 3<<20)
	want := fill(t, dst, 0, 1<<20)
	before := gate.writes.Load()
	for _, x := range []struct{ from, to, n uint64 }{
		{0, 0, 4096}, {1, 8191, 100}, {4097, 5, 2 << 20}, {3<<20 - 7, 5 << 20, 7}, {12345, 1<<20 + 1, 0},
	} {
		n := x.n
		if n == 0 {
			n = 3<<20 - x.from
		}
		got, err := dst.CopyRange(soon(t), x.to, src, x.from, x.n, false)
		if err != nil || got.Count != n || got.Copy != nil || got.Committed != proto.FileSync {
			t.Fatalf("%+v: %+v, %v", x, got, err)
		}
		want = append(want, make([]byte, max(0, int(x.to+n)-len(want)))...)
		copy(want[x.to:], data[x.from:x.from+n])
		if !bytes.Equal(content1(t, dst), want) {
			t.Fatalf("%+v: the copy differs", x)
		}
	}
	if n := gate.writes.Load() - before; n != 0 {
		t.Fatalf("%d writes", n)
	}
}

// What COPY and CLONE refuse (RFC 7862 §15.2.3, §15.13.3).
func TestCopyRefused(t *testing.T) {
	r, _ := copyRig(t, nil)
	c := r.mounted(client.Options{})
	ctx := soon(t)
	src, dst, far := file(t, c, "main", "src"), file(t, c, "main", "dst"), file(t, c, "other", "far")
	fill(t, src, 0, 20000)
	for _, x := range []struct {
		name        string
		dst         *client.File
		from, to, n uint64
		clone, copy proto.Status
	}{
		{"whole", dst, 0, 0, 0, 0, 0},
		{"aligned", dst, 4096, 8192, 4096, 0, 0},
		{"up to the end", dst, 4096, 8192, 20000 - 4096, 0, 0},
		{"source unaligned", dst, 1, 0, 4096, proto.ErrInval, 0},
		{"destination unaligned", dst, 0, 1, 4096, proto.ErrInval, 0},
		{"length unaligned", dst, 0, 0, 4097, proto.ErrInval, 0},
		{"source at its end", dst, 20000, 0, 0, proto.ErrInval, 0},
		{"source behind its end", dst, 20480, 0, 0, proto.ErrInval, proto.ErrInval},
		{"more than there is", dst, 4096, 0, 20480, proto.ErrInval, proto.ErrInval},
		{"overflow", dst, 1 << 63, 0, 1 << 63, proto.ErrInval, proto.ErrInval},
		{"within one file", src, 0, 20480, 8192, 0, 0},
		{"overlapping", src, 0, 4096, 8192, proto.ErrInval, proto.ErrInval},
		{"another volume", far, 0, 0, 0, proto.ErrXdev, 0},
	} {
		is := func(what string, err error, want proto.Status) {
			t.Helper()
			if (err != nil || want != 0) && !errors.Is(err, want) {
				t.Errorf("%s of %s: %v, want %v", what, x.name, err, want)
			}
		}
		if err := src.Truncate(ctx, 20000); err != nil {
			t.Fatal(err)
		}
		is("CLONE", x.dst.Clone(ctx, x.to, src, x.from, x.n), x.clone)
		_ = src.Truncate(ctx, 20000)
		_, err := x.dst.Copy(ctx, x.to, src, x.from, x.n)
		is("COPY", err, x.copy)
	}
	s := r.newSession("x")
	dir := s.root()
	o := s.mustOpen(dir, openHow{create: true, name: "f"})
	for _, code := range []proto.Op{proto.OpClone, proto.OpCopy} {
		s.do(putfh(dir), simple(proto.OpSavefh), putfh(o.fh), pairOp(code, o.sid, o.sid)).is(proto.ErrWrongType)
		s.do(putfh(o.fh), simple(proto.OpSavefh), putfh(dir), pairOp(code, o.sid, o.sid)).is(proto.ErrWrongType)
	}
}

// Between volumes the data is copied; before the answer, if the client has it so.
func TestCopyBetweenVolumes(t *testing.T) {
	r, _ := copyRig(t, nil)
	c := r.mounted(client.Options{Callbacks: true})
	src, dst := file(t, c, "main", "src"), file(t, c, "other", "dst")
	data := fill(t, src, 0, 40<<20)
	for at := 0; at < len(data); {
		got, err := dst.CopyRange(soon(t), uint64(at), src, uint64(at), uint64(len(data)-at), true)
		if err != nil || got.Copy != nil || got.Count == 0 || got.Count > maxCopy {
			t.Fatalf("%+v, %v", got, err)
		}
		at += int(got.Count)
	}
	if !bytes.Equal(content1(t, dst), data) {
		t.Fatal("the copy differs")
	}
	// Little is copied at once in any case.
	if got, err := dst.CopyRange(soon(t), 0, src, 5, 1<<20, false); err != nil || got.Copy != nil || got.Count != 1<<20 {
		t.Fatalf("%+v, %v", got, err)
	}
	// And all, if there is no way to tell.
	deaf := r.mounted(client.Options{})
	src2, dst2 := file(t, deaf, "main", "src"), file(t, deaf, "other", "dst")
	if got, err := dst2.CopyRange(soon(t), 0, src2, 0, 0, false); err != nil || got.Copy != nil || got.Count != maxCopy {
		t.Fatalf("%+v, %v", got, err)
	}
}

// A copy of data that is lost while it is copied is not called durable.
func TestCopyNoticesLoss(t *testing.T) {
	r, gate := copyRig(t, nil)
	c := r.mounted(client.Options{Callbacks: true, NoRetry: true})
	src, dst := file(t, c, "main", "src"), file(t, c, "other", "dst")
	fill(t, src, 0, 4<<20)
	open := gate.close(2 << 20)
	got := make(chan error, 1)
	before := gate.writes.Load()
	go func() {
		_, err := dst.Copy(context.Background(), 0, src, 0, 0)
		got <- err
	}()
	until(t, "a part is copied", func() bool { return gate.writes.Load() > before })
	r.fs.LoseUnstable()
	open()
	if err := <-got; !errors.Is(err, proto.ErrDelay) {
		t.Fatalf("%v", err)
	}
	// What goes on after its answer begins anew.
	data := fill(t, src, 0, 12<<20)
	open = gate.close(8 << 20)
	going, err := dst.CopyRange(soon(t), 0, src, 0, 0, false)
	if err != nil || going.Copy == nil {
		t.Fatal(err)
	}
	until(t, "a part is copied", func() bool {
		done, _, _, err := going.Copy.Status(soon(t))
		return err == nil && done == 8<<20
	})
	r.fs.LoseUnstable()
	before = gate.writes.Load()
	open()
	if o, err := going.Copy.Wait(soon(t)); err != nil || o.Status != proto.OK || o.Count != 12<<20 {
		t.Fatalf("%+v, %v", o, err)
	}
	if n := gate.writes.Load() - before; n < 4 {
		t.Fatalf("%d writes after the loss: not all was written again", n)
	}
	if !bytes.Equal(content1(t, dst), data) {
		t.Fatal("the copy differs")
	}
}

// copyOp is a COPY of all that may go on after its answer.
func copyOp(src, dst opened) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpCopy))
		src.sid.Encode(e)
		dst.sid.Encode(e)
		e.FixedOpaque(make([]byte, 24))
		e.Bool(true)
		e.Bool(false)
		e.Uint32(0)
	}
}

// mustGen returns the generation of a volume's root.
func mustGen(t *testing.T, r *rig, v vfs.VolumeID) (gen uint32) {
	t.Helper()
	_, err := r.fs.ReadDir(rootRequest(t), vfs.Root, 0, false, func(d *vfs.Dirent) bool {
		if d.File.Volume == v {
			gen = d.File.Gen
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return gen
}

// pairOp is CLONE or COPY of all.
func pairOp(code proto.Op, src, dst state.Stateid) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(code))
		src.Encode(e)
		dst.Encode(e)
		e.Uint64(0)
		e.Uint64(0)
		e.Uint64(0)
		if code == proto.OpCopy {
			e.Bool(true)
			e.Bool(true)
			e.Uint32(0)
		}
	}
}
