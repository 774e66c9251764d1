package client

import (
	"context"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// An Offload is how an asynchronous copy has ended.
type Offload struct {
	Status proto.Status
	Count  uint64 // bytes that were copied
	// If Status is OK:
	Committed uint32
	Verifier  uint64
}

// offload is CB_OFFLOAD (RFC 7862 §16.1).
func (s *callbackService) offload(d *xdr.Decoder) proto.Status {
	d.Opaque(proto.FHSize)
	id := getStateid(d)
	o := Offload{Status: proto.Status(d.Uint32())}
	if o.Status == proto.OK {
		for range d.Count(1, 16) {
			getStateid(d)
		}
		o.Count, o.Committed, o.Verifier = d.Uint64(), d.Uint32(), d.Uint64()
	} else {
		o.Count = d.Uint64()
	}
	if d.Err() != nil {
		return proto.ErrBadxdr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offloads[id] = o
	close(s.ended)
	s.ended = make(chan struct{})
	return proto.OK
}

// Copied is what a COPY has done.
type Copied struct {
	Offload
	Copy *Copying // goes on; nil: all that is to be done is done
}

// A Copying is a copy that goes on after COPY was answered.
type Copying struct {
	f  *File
	id Stateid
}

// CopyRange copies n bytes (0: all to the end) of src at srcOff to f at off, in one COPY
// that may be answered before it is done, if it is not to be synchronous.
func (f *File) CopyRange(ctx context.Context, off uint64, src *File, srcOff, n uint64, synchronous bool) (c Copied, err error) {
	err = f.with(func(s Stateid) error {
		ops := NewCompound().PutFH(src.fh).Plain(proto.OpSavefh).PutFH(f.fh)
		ops.Cached(true)
		e := ops.Op(proto.OpCopy)
		putStateid(e, src.Stateid())
		putStateid(e, s)
		e.Uint64(srcOff)
		e.Uint64(off)
		e.Uint64(n)
		e.Bool(true) // consecutive
		e.Bool(synchronous)
		e.Uint32(0) // from this server
		return f.c.one(ctx, ops, func(d *xdr.Decoder) error {
			c = Copied{}
			for range d.Count(1, 16) {
				c.Copy = &Copying{f, getStateid(d)}
			}
			c.Count, c.Committed, c.Verifier = d.Uint64(), d.Uint32(), d.Uint64()
			return nil
		}, proto.OpPutfh, proto.OpSavefh, proto.OpPutfh, proto.OpCopy)
	})
	return c, err
}

// Of returns a Copying with the same stateid, and another destination.
func (c *Copying) Of(f *File) *Copying { return &Copying{f, c.id} }

// Wait waits until the server says that the copy has ended, and how.
func (c *Copying) Wait(ctx context.Context) (Offload, error) {
	s := c.f.c.cb
	for {
		s.mu.Lock()
		o, ok := s.offloads[c.id]
		delete(s.offloads, c.id)
		ended := s.ended
		s.mu.Unlock()
		if ok {
			return o, nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return Offload{}, ctx.Err()
		}
	}
}

// Status asks how far the copy has come (OFFLOAD_STATUS): ended says that st is how it
// has ended.
func (c *Copying) Status(ctx context.Context) (done uint64, ended bool, st proto.Status, err error) {
	ops := NewCompound().PutFH(c.f.fh)
	putStateid(ops.Op(proto.OpOffloadStatus), c.id)
	err = c.f.c.one(ctx, ops, func(d *xdr.Decoder) error {
		done = d.Uint64()
		for range d.Count(1, 4) {
			ended, st = true, proto.Status(d.Uint32())
		}
		return nil
	}, proto.OpPutfh, proto.OpOffloadStatus)
	return done, ended, st, err
}

// Cancel ends the copy (OFFLOAD_CANCEL): nothing is copied after it.
func (c *Copying) Cancel(ctx context.Context) error {
	ops := NewCompound().PutFH(c.f.fh).Cached(true)
	putStateid(ops.Op(proto.OpOffloadCancel), c.id)
	return c.f.c.one(ctx, ops, nil, proto.OpPutfh, proto.OpOffloadCancel)
}
