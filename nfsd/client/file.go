package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// A File is an open file. Its methods can be called concurrently.
type File struct {
	c  *Client
	fh FH

	mu    sync.Mutex
	how   OpenHow
	state Stateid
	locks map[string]*lockState

	delegation Delegation
}

// FH returns the file's handle.
func (f *File) FH() FH { return f.fh }

// Stateid returns the open stateid.
func (f *File) Stateid() Stateid {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// with calls do with the open stateid, again if it turns out that the file has
// been reclaimed meanwhile and has another.
func (f *File) with(do func(Stateid) error) error {
	for {
		s := f.Stateid()
		err := do(s)
		if !outdated(err) || f.Stateid() == s {
			return err
		}
	}
}

// outdated reports whether err says that the server does not know a stateid.
func outdated(err error) bool {
	return errors.Is(err, proto.ErrBadStateid) || errors.Is(err, proto.ErrStaleStateid)
}

// Open opens dir/name as how says (nil: for reading), and returns its attributes too.
func (c *Client) Open(ctx context.Context, dir FH, name string, how *OpenHow) (*File, Attrs, error) {
	if how == nil {
		how = &OpenHow{}
	}
	h := *how
	h.Claim = proto.ClaimNull
	return c.open(ctx, dir, name, h)
}

// OpenFH opens a file by its handle (CLAIM_FH).
func (c *Client) OpenFH(ctx context.Context, fh FH, access uint32) (*File, Attrs, error) {
	return c.open(ctx, fh, "", OpenHow{Access: access, Claim: proto.ClaimFH})
}

// CreateFile opens dir/name for reading and writing, and creates it if it is not there.
func (c *Client) CreateFile(ctx context.Context, dir FH, name string, mode uint32) (*File, error) {
	f, _, err := c.Open(ctx, dir, name, &OpenHow{
		Access: proto.ShareAccessBoth, Create: true, Mode: proto.Unchecked, Set: SetAttr{Mode: &mode},
	})
	return f, err
}

func (c *Client) open(ctx context.Context, at FH, name string, how OpenHow) (*File, Attrs, error) {
	if how.Owner == nil {
		how.Owner = c.newOwner("open")
	}
	if c.opt.Callbacks && how.Access&proto.ShareAccessWantDelegMask == 0 && how.Claim != proto.ClaimPrevious {
		// Who does not know of delegations must not be given any.
		how.Access = max(how.Access, proto.ShareAccessRead) | proto.ShareAccessWantNoDeleg
	}
	f := &File{c: c, how: how, locks: make(map[string]*lockState)}
	var a Attrs
	if c.opt.V40 {
		if err := c.open40(ctx, at, name, f, &a); err != nil {
			return nil, Attrs{}, err
		}
		c.mu.Lock()
		c.files[f] = struct{}{}
		c.mu.Unlock()
		return f, a, nil
	}
	ops := NewCompound().PutFH(at).Open(c.ID(), name, &how).Plain(proto.OpGetfh).Getattr(StatAttrs...)
	err := c.run(ctx, ops, func(r *Results) error {
		d, err := r.OK(proto.OpPutfh, proto.OpOpen)
		if err != nil {
			return err
		}
		if f.state, f.delegation, err = getOpenDelegation(d); err != nil {
			return err
		}
		if d, err = r.OK(proto.OpGetfh); err != nil {
			return err
		}
		f.fh = getFH(d)
		if d, err = r.OK(proto.OpGetattr); err != nil {
			return err
		}
		return getAttrs(d, &a)
	})
	if err != nil {
		return nil, Attrs{}, err
	}
	c.mu.Lock()
	c.files[f] = struct{}{}
	c.mu.Unlock()
	return f, a, nil
}

// newOwner returns a name for an open or lock owner that no other has.
func (c *Client) newOwner(kind string) []byte {
	return fmt.Appendf(nil, "%s %d", kind, c.names.Add(1))
}

// getOpen takes OPEN's result, of which a delegation, that was not asked for, is left out.
func getOpen(d *xdr.Decoder) (Stateid, error) {
	s, _, err := getOpenDelegation(d)
	return s, err
}

// getOpenDelegation takes OPEN's result.
func getOpenDelegation(d *xdr.Decoder) (s Stateid, g Delegation, err error) {
	s, _ = getOpenHead(d)
	g, err = getDelegation(d)
	return s, g, err
}

// getOpenFlags is getOpen, with the flags.
func getOpenFlags(d *xdr.Decoder) (s Stateid, flags uint32, err error) {
	s, flags = getOpenHead(d)
	g, err := getDelegation(d)
	if err == nil && g.Held() {
		err = fmt.Errorf("nfs: the server granted a delegation of type %d, which was not asked for", g.Type)
	}
	return s, flags, err
}

// getOpenHead takes OPEN's result up to the delegation.
func getOpenHead(d *xdr.Decoder) (s Stateid, flags uint32) {
	s = getStateid(d)
	getChangeInfo(d)
	flags = d.Uint32()
	getBitmap(d)
	return s, flags
}

// Close closes the file.
func (f *File) Close(ctx context.Context) error {
	var err error
	if f.c.opt.V40 {
		err = f.close40(ctx)
	} else {
		err = f.with(func(s Stateid) error {
			return f.c.one(ctx, NewCompound().PutFH(f.fh).Close(s), nil, proto.OpPutfh, proto.OpClose)
		})
	}
	if err == nil {
		f.forget()
	}
	return err
}

// forget has the file not be reclaimed.
func (f *File) forget() {
	f.c.mu.Lock()
	delete(f.c.files, f)
	f.c.mu.Unlock()
}

// Read reads into p at off, in one READ. It returns the number of bytes read,
// and whether that is the end of the file.
func (f *File) Read(ctx context.Context, off uint64, p []byte) (n int, eof bool, err error) {
	err = f.with(func(s Stateid) error {
		return f.c.one(ctx, NewCompound().PutFH(f.fh).Read(s, off, len(p)), func(d *xdr.Decoder) error {
			eof = d.Bool()
			n = copy(p, d.Opaque(len(p)))
			return nil
		}, proto.OpPutfh, proto.OpRead)
	})
	return n, eof, err
}

// ReadDiscard reads n bytes at off, in one READ, and looks at none of them.
func (f *File) ReadDiscard(ctx context.Context, off uint64, n int) (got int, err error) {
	err = f.with(func(s Stateid) error {
		return f.c.one(ctx, NewCompound().PutFH(f.fh).Read(s, off, n), func(d *xdr.Decoder) error {
			d.Bool()
			got = len(d.Opaque(n))
			return nil
		}, proto.OpPutfh, proto.OpRead)
	})
	return got, err
}

// ReadAll reads the file from the start.
func (f *File) ReadAll(ctx context.Context) ([]byte, error) {
	var all []byte
	for {
		at := len(all)
		all = append(all, make([]byte, f.c.opt.MaxIO)...)
		n, eof, err := f.Read(ctx, uint64(at), all[at:])
		all = all[:at+n]
		if err != nil || eof {
			return all, err
		}
		if n == 0 {
			return all, io.ErrNoProgress
		}
	}
}

// Written is what a WRITE did.
type Written struct {
	Count     int
	Committed uint32 // proto.Unstable, DataSync or FileSync
	Verifier  uint64
}

// Write writes p at off, in one WRITE.
func (f *File) Write(ctx context.Context, off uint64, p []byte, stable uint32) (w Written, err error) {
	err = f.with(func(s Stateid) error {
		return f.c.one(ctx, NewCompound().PutFH(f.fh).Write(s, off, p, stable), func(d *xdr.Decoder) error {
			w = Written{Count: int(d.Uint32()), Committed: d.Uint32(), Verifier: d.Uint64()}
			return nil
		}, proto.OpPutfh, proto.OpWrite)
	})
	return w, err
}

// WriteAll writes p at off, stably, in as many WRITEs as it takes.
func (f *File) WriteAll(ctx context.Context, off uint64, p []byte) error {
	for len(p) > 0 {
		w, err := f.Write(ctx, off, p[:min(len(p), f.c.opt.MaxIO)], proto.FileSync)
		if err != nil {
			return err
		}
		if w.Count == 0 || w.Committed != proto.FileSync {
			return fmt.Errorf("nfs: WRITE of %d bytes as FILE_SYNC did %+v", len(p), w)
		}
		off += uint64(w.Count)
		p = p[w.Count:]
	}
	return nil
}

// Commit makes what was written unstably durable, and returns the verifier.
func (f *File) Commit(ctx context.Context) (verifier uint64, err error) {
	err = f.c.one(ctx, NewCompound().PutFH(f.fh).Commit(0, 0), func(d *xdr.Decoder) error {
		verifier = d.Uint64()
		return nil
	}, proto.OpPutfh, proto.OpCommit)
	return verifier, err
}

// Truncate sets the size.
func (f *File) Truncate(ctx context.Context, size uint64) error {
	return f.with(func(s Stateid) error {
		return f.c.Setattr(ctx, f.fh, s, &SetAttr{Size: &size})
	})
}

// Allocate has n bytes at off be there.
func (f *File) Allocate(ctx context.Context, off, n uint64) error {
	return f.space(ctx, proto.OpAllocate, off, n)
}

// Deallocate makes n bytes at off a hole.
func (f *File) Deallocate(ctx context.Context, off, n uint64) error {
	return f.space(ctx, proto.OpDeallocate, off, n)
}

func (f *File) space(ctx context.Context, op proto.Op, off, n uint64) error {
	return f.with(func(s Stateid) error {
		ops := NewCompound().PutFH(f.fh)
		e := ops.Op(op)
		putStateid(e, s)
		e.Uint64(off)
		e.Uint64(n)
		return f.c.one(ctx, ops, nil, proto.OpPutfh, op)
	})
}

// Seek returns the next data or hole (proto.ContentData, ContentHole) at or after off.
func (f *File) Seek(ctx context.Context, off uint64, what uint32) (at uint64, eof bool, err error) {
	err = f.with(func(s Stateid) error {
		ops := NewCompound().PutFH(f.fh)
		e := ops.Op(proto.OpSeek)
		putStateid(e, s)
		e.Uint64(off)
		e.Uint32(what)
		return f.c.one(ctx, ops, func(d *xdr.Decoder) error {
			eof, at = d.Bool(), d.Uint64()
			return nil
		}, proto.OpPutfh, proto.OpSeek)
	})
	return at, eof, err
}

// Clone makes n bytes (0: all to the end) of f at off share src's data at srcOff.
func (f *File) Clone(ctx context.Context, off uint64, src *File, srcOff, n uint64) error {
	return f.with(func(s Stateid) error {
		ops := NewCompound().PutFH(src.fh).Plain(proto.OpSavefh).PutFH(f.fh)
		e := ops.Op(proto.OpClone)
		putStateid(e, src.Stateid())
		putStateid(e, s)
		e.Uint64(srcOff)
		e.Uint64(off)
		e.Uint64(n)
		return f.c.one(ctx, ops, nil, proto.OpPutfh, proto.OpSavefh, proto.OpPutfh, proto.OpClone)
	})
}

// Copy copies n bytes (0: all to the end) of src at srcOff to f at off, in one
// synchronous COPY, and returns how many were copied.
func (f *File) Copy(ctx context.Context, off uint64, src *File, srcOff, n uint64) (copied uint64, err error) {
	c, err := f.CopyRange(ctx, off, src, srcOff, n, true)
	if err == nil && c.Copy != nil {
		err = fmt.Errorf("nfs: a synchronous COPY was answered as an asynchronous one")
	}
	return c.Count, err
}
