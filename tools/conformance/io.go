package conformance

import (
	"bytes"
	"fmt"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

var bypass = func() client.Stateid {
	s := client.Stateid{Seqid: ^uint32(0)}
	for i := range s.Other {
		s.Other[i] = 0xff
	}
	return s
}()

// read does one READ with a special stateid.
func (t *T) read(c *client.Client, fh client.FH, s client.Stateid, off uint64, n int) (data string, eof bool) {
	t.Get(c, "READ", compound().PutFH(fh).Read(s, off, n), func(d *xdr.Decoder) {
		eof = d.Bool()
		data = d.String(1 << 20)
	}, proto.OpPutfh, proto.OpRead)
	return data, eof
}

var _ = register("read",
	Case{"ranges", "RFC 7530 §16.23, RFC 8881 §18.22", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "x", "0123456789")
		for _, x := range []struct {
			off  uint64
			n    int
			want string
			eof  bool
		}{
			{0, 10, "0123456789", true},
			{0, 100, "0123456789", true},
			{3, 4, "3456", false},
			{9, 1, "9", true},
			{10, 5, "", true},
			{1 << 40, 5, "", true},
		} {
			for _, s := range []client.Stateid{{}, bypass} {
				data, eof := t.read(c, fh, s, x.off, x.n)
				if data != x.want || eof != x.eof {
					t.Fatalf("READ of %d at %d: %q, eof %v; want %q, eof %v", x.n, x.off, data, eof, x.want, x.eof)
				}
			}
		}
		if data, _ := t.read(c, fh, client.Stateid{}, 3, 0); data != "" {
			t.Fatalf("READ of no bytes returned %q", data)
		}
	}},
	Case{"largest-offset", "RFC 7530 §16.23, RFC 8881 §18.22", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "x", "0123456789")
		r := t.Do(c, compound().PutFH(fh).Read(client.Stateid{}, ^uint64(0), 10))
		defer r.Release()
		if r.Status != proto.OK && r.Status != proto.ErrInval && r.Status != proto.ErrFbig {
			t.Fatalf("READ at 2^64-1: %v", r.Status)
		}
	}},
	Case{"empty-file", "RFC 7530 §16.23, RFC 8881 §18.22", All, func(t *T) {
		c := t.Client()
		data, eof := t.read(c, t.Create(c, "x", ""), client.Stateid{}, 0, 100)
		if data != "" || !eof {
			t.Fatalf("READ of an empty file: %q, eof %v", data, eof)
		}
	}},
	Case{"what-is-no-file", "RFC 7530 §16.23, RFC 8881 §18.22", All, func(t *T) {
		c := t.Client()
		want := []proto.Status{proto.ErrInval}
		if t.Minor() > 0 {
			want = append(want, proto.ErrWrongType, proto.ErrSymlink)
		}
		t.Want(c, "READ of a directory", compound().PutFH(t.Dir).Read(client.Stateid{}, 0, 1), proto.ErrIsdir)
		fh, err := c.Symlink(t, t.Dir, "link", "target")
		t.Ok(err, "CREATE")
		t.Want(c, "READ of a symbolic link", compound().PutFH(fh).Read(client.Stateid{}, 0, 1), append(want, proto.ErrSymlink)...)
		fh, err = c.Mknod(t, t.Dir, "fifo", proto.TypeFIFO, 0o666, 0, 0)
		t.Ok(err, "CREATE")
		t.Want(c, "READ of a FIFO", compound().PutFH(fh).Read(client.Stateid{}, 0, 1), want...)
	}},
	Case{"needs-permission", "RFC 7530 §16.23, RFC 8881 §18.22", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "x", "secret")
		t.Ok(c.Setattr(t, fh, client.Stateid{}, &client.SetAttr{Mode: client.Ptr(uint32(0o600))}), "SETATTR")
		t.Want(t.Other(), "READ by another user", compound().PutFH(fh).Read(client.Stateid{}, 0, 10), proto.ErrAccess)
	}},
	Case{"bad-stateids", "RFC 7530 §9.1.4.4, RFC 8881 §8.2.4", All, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		want := []proto.Status{proto.ErrBadStateid}
		if t.Minor() == 0 {
			want = append(want, proto.ErrStaleStateid)
		}
		t.Want(c, "READ with a stateid that never was", compound().PutFH(f.FH()).Read(made(), 0, 1), want...)
		s := f.Stateid()
		s.Seqid += 9
		t.Want(c, "READ with a later stateid", compound().PutFH(f.FH()).Read(s, 0, 1), proto.ErrBadStateid)
		t.Want(c, "READ with 0…0 and seqid 7", compound().PutFH(f.FH()).Read(client.Stateid{Seqid: 7}, 0, 1), proto.ErrBadStateid)
		odd := bypass
		odd.Seqid = 3
		t.Want(c, "READ with f…f and seqid 3", compound().PutFH(f.FH()).Read(odd, 0, 1), want...)
		g := t.Make(c)
		t.Want(c, "READ with another file's stateid", compound().PutFH(f.FH()).Read(g.Stateid(), 0, 1), proto.ErrBadStateid)
	}},
	Case{"of-an-open-for-writing", "RFC 7530 §9.1.6, RFC 8881 §9.1.2", All, func(t *T) {
		c := t.Client()
		t.Create(c, "x", "0123")
		f := t.Open(c, "x", client.OpenHow{Access: proto.ShareAccessWrite})
		t.Want(c, "READ", compound().PutFH(f.FH()).Read(f.Stateid(), 0, 4), proto.OK, proto.ErrOpenmode)
	}},
)

var _ = register("write",
	Case{"read-back", "RFC 7530 §16.36, RFC 8881 §18.32", All, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		model := make([]byte, 0, 1<<18)
		for i, x := range []struct{ off, n int }{{0, 1}, {1, 3}, {2, 7}, {4096, 4096}, {100_000, 65_537}, {4095, 2}, {0, 200_000}, {150_001, 3}} {
			p := bytes.Repeat([]byte{byte(i + 1)}, x.n)
			if grow := x.off + x.n - len(model); grow > 0 {
				model = append(model, make([]byte, grow)...)
			}
			copy(model[x.off:], p)
			t.Ok(f.WriteAll(t, uint64(x.off), p), "WRITE")
			got, err := f.ReadAll(t)
			t.Ok(err, "READ")
			if !bytes.Equal(got, model) {
				t.Fatalf("after WRITE %d the contents (%d bytes) are not what was written (%d bytes)", i, len(got), len(model))
			}
		}
	}},
	Case{"as-durable-as-asked", "RFC 7530 §16.36, RFC 8881 §18.32", All, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		for _, how := range []uint32{proto.Unstable, proto.DataSync, proto.FileSync} {
			w, err := f.Write(t, 0, []byte("data"), how)
			t.Ok(err, "WRITE")
			if w.Committed < how {
				t.Fatalf("WRITE asked for stable %d and got %d", how, w.Committed)
			}
			Equal(t, "count", w.Count, 4)
		}
	}},
	Case{"verifier-stays", "RFC 7530 §16.36, RFC 8881 §18.32", All, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		w, err := f.Write(t, 0, []byte("data"), proto.Unstable)
		t.Ok(err, "WRITE")
		for range 3 {
			again, err := f.Write(t, 4, []byte("data"), proto.Unstable)
			t.Ok(err, "WRITE")
			Equal(t, "the verifier of another WRITE", again.Verifier, w.Verifier)
		}
		v, err := f.Commit(t)
		t.Ok(err, "COMMIT")
		Equal(t, "the verifier of COMMIT", v, w.Verifier)
	}},
	Case{"nothing", "RFC 7530 §16.36, RFC 8881 §18.32", All, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		w, err := f.Write(t, 100, nil, proto.FileSync)
		t.Ok(err, "WRITE of no bytes")
		Equal(t, "count", w.Count, 0)
		Equal(t, "size", t.Attrs(c, f.FH(), proto.AttrSize).Size, 0)
	}},
	Case{"bad-stability", "RFC 7530 §16.36, RFC 8881 §18.32", All, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		t.Want(c, "WRITE", compound().PutFH(f.FH()).Write(f.Stateid(), 0, []byte("x"), 3), proto.ErrBadxdr, proto.ErrInval)
	}},
	Case{"too-far", "RFC 7530 §16.36, RFC 8881 §18.32", All, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		most := t.Attrs(c, f.FH(), proto.AttrMaxfilesize).MaxFileSize
		if most == 0 || most > 1<<63-10 {
			most = 1 << 63
		}
		t.Want(c, "WRITE past maxfilesize", compound().PutFH(f.FH()).Write(f.Stateid(), most+1, []byte("x"), proto.FileSync), proto.ErrFbig, proto.ErrInval)
		Equal(t, "size", t.Attrs(c, f.FH(), proto.AttrSize).Size, 0)
	}},
	Case{"of-an-open-for-reading", "RFC 7530 §9.1.6, RFC 8881 §9.1.2", All, func(t *T) {
		c := t.Client()
		t.Create(c, "x", "0123")
		f := t.Open(c, "x", client.OpenHow{Access: proto.ShareAccessRead})
		_, err := f.Write(t, 0, []byte("x"), proto.FileSync)
		t.Is(err, "WRITE", proto.ErrOpenmode)
		Equal(t, "contents", t.Contents(c, "x"), "0123")
	}},
	Case{"special-stateid", "RFC 7530 §9.1.4.3, RFC 8881 §8.2.3", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "x", "0123")
		t.Want(c, "WRITE with the anonymous stateid", compound().PutFH(fh).Write(client.Stateid{}, 1, []byte("xx"), proto.FileSync), proto.OK)
		Equal(t, "contents", t.Contents(c, "x"), "0xx3")
	}},
	Case{"needs-permission", "RFC 7530 §16.36, RFC 8881 §18.32", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "x", "0123")
		t.Ok(c.Setattr(t, fh, client.Stateid{}, &client.SetAttr{Mode: client.Ptr(uint32(0o644))}), "SETATTR")
		t.Want(t.Other(), "WRITE by another user", compound().PutFH(fh).Write(client.Stateid{}, 0, []byte("x"), proto.FileSync), proto.ErrAccess)
	}},
	Case{"what-is-no-file", "RFC 7530 §16.36, RFC 8881 §18.32", All, func(t *T) {
		c := t.Client()
		t.Want(c, "WRITE to a directory", compound().PutFH(t.Dir).Write(client.Stateid{}, 0, []byte("x"), proto.FileSync), proto.ErrIsdir)
		fh, err := c.Symlink(t, t.Dir, "link", "target")
		t.Ok(err, "CREATE")
		want := []proto.Status{proto.ErrInval, proto.ErrSymlink}
		if t.Minor() > 0 {
			want = append(want, proto.ErrWrongType)
		}
		t.Want(c, "WRITE to a symbolic link", compound().PutFH(fh).Write(client.Stateid{}, 0, []byte("x"), proto.FileSync), want...)
		t.Want(c, "COMMIT of a directory", compound().PutFH(t.Dir).Commit(0, 0), proto.ErrIsdir)
	}},
	Case{"commit-ranges", "RFC 7530 §16.3, RFC 8881 §18.3", All, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		_, err := f.Write(t, 0, bytes.Repeat([]byte("x"), 10_000), proto.Unstable)
		t.Ok(err, "WRITE")
		for _, x := range []struct {
			off uint64
			n   uint32
		}{{0, 0}, {0, 10}, {5000, 0}, {100_000, 7}} {
			t.Want(c, fmt.Sprintf("COMMIT of %d at %d", x.n, x.off), compound().PutFH(f.FH()).Commit(x.off, x.n), proto.OK)
		}
		t.Want(c, "COMMIT that ends past 2^64", compound().PutFH(f.FH()).Commit(^uint64(0)-5, 100), proto.ErrInval, proto.OK)
	}},
	Case{"clears-set-uid", "RFC 7530 §6.2.4, RFC 8881 §6.2.4", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "x", "0123")
		t.Ok(c.Setattr(t, fh, client.Stateid{}, &client.SetAttr{Mode: client.Ptr(uint32(0o6777))}), "SETATTR")
		t.Want(t.Other(), "WRITE by another user", compound().PutFH(fh).Write(client.Stateid{}, 0, []byte("x"), proto.FileSync), proto.OK)
		Equal(t, "mode", t.Attrs(c, fh, proto.AttrMode).Mode, 0o777)
	}},
)

var _ = register("access",
	Case{"rights", "RFC 7530 §16.1, RFC 8881 §18.1", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "x", "")
		other := t.Other()
		const asked = proto.AccessRead | proto.AccessModify | proto.AccessExtend | proto.AccessExecute
		for mode, want := range map[uint32]uint32{
			0o700: 0,
			0o704: proto.AccessRead,
			0o702: proto.AccessModify | proto.AccessExtend,
			0o701: proto.AccessExecute,
			0o707: asked,
		} {
			t.Ok(c.Setattr(t, fh, client.Stateid{}, &client.SetAttr{Mode: &mode}), "SETATTR")
			supported, got, err := other.Access(t, fh, asked)
			t.Ok(err, "ACCESS")
			if got != want&supported {
				t.Fatalf("ACCESS of mode %o grants %#x, want %#x", mode, got, want&supported)
			}
		}
	}},
	Case{"only-what-was-asked", "RFC 7530 §16.1, RFC 8881 §18.1", All, func(t *T) {
		c := t.Client()
		for bit := range uint32(6) {
			supported, got, err := c.Access(t, t.Dir, 1<<bit)
			t.Ok(err, "ACCESS")
			if (supported|got)&^(1<<bit) != 0 || got&^supported != 0 {
				t.Fatalf("ACCESS of %#x: supported %#x, access %#x", uint32(1)<<bit, supported, got)
			}
		}
	}},
)

var _ = register("secinfo",
	Case{"flavors", "RFC 7530 §16.31, RFC 8881 §18.29", All, func(t *T) {
		c := t.Client()
		t.Create(c, "x", "")
		t.Get(c, "SECINFO", with(compound().PutFH(t.Dir), proto.OpSecinfo, text("x")), func(d *xdr.Decoder) {
			if n := d.Count(20, 4); n == 0 {
				t.Fatalf("there is no flavor")
			}
		}, proto.OpPutfh, proto.OpSecinfo)
	}},
	Case{"errors", "RFC 7530 §16.31, RFC 8881 §18.29", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "x", "")
		t.Want(c, "SECINFO of what is missing", with(compound().PutFH(t.Dir), proto.OpSecinfo, text("missing")), proto.ErrNoent)
		t.Want(c, "SECINFO of nothing", with(compound().PutFH(t.Dir), proto.OpSecinfo, text("")), proto.ErrInval)
		t.Want(c, "SECINFO in a file", with(compound().PutFH(fh), proto.OpSecinfo, text("x")), proto.ErrNotdir)
	}},
	Case{"takes-the-filehandle", "RFC 8881 §18.29", V12, func(t *T) {
		c := t.Client()
		t.Create(c, "x", "")
		r := t.Do(c, with(compound().PutFH(t.Dir), proto.OpSecinfo, text("x")).Plain(proto.OpGetfh))
		defer r.Release()
		Equal(t, "status of GETFH after SECINFO", r.Status, proto.ErrNofilehandle)
	}},
	Case{"no-name", "RFC 8881 §18.45", V12, func(t *T) {
		c := t.Client()
		sub := t.mkdir(c, t.Dir, "sub")
		for _, style := range []uint32{proto.SecinfoStyleCurrentFH, proto.SecinfoStyleParent} {
			ops := with(compound().PutFH(sub), proto.OpSecinfoNoName, number(style)).Plain(proto.OpGetfh)
			r := t.Do(c, ops)
			Equal(t, "status of GETFH after SECINFO_NO_NAME", r.Status, proto.ErrNofilehandle)
			r.Release()
		}
	}},
)
