package vfs

import (
	"errors"
	"fmt"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/datastore/placement"
	"github.com/hawserfs/hawser/vfs/writer"
)

// retries is how often a blob is put again because its replica set changed
// between the put and the commit.
const retries = 6

// regular returns the attributes of the regular file f. Its type and class
// never change, so that those that this node has will do.
func (m *mount) regular(r *Request, f File) (Attr, error) {
	a, ok := m.peek(f)
	if !ok {
		var err error
		if a, err = m.inode(r, f); err != nil {
			return Attr{}, err
		}
	}
	return a, isRegular(&a)
}

func isRegular(a *Attr) error {
	switch a.Type {
	case cluster.TypeRegular:
		return nil
	case cluster.TypeDirectory:
		return cluster.EISDIR
	case cluster.TypeSymlink:
		return cluster.ESYMLINK
	}
	return cluster.EINVAL
}

// regularMount returns the volume and attributes of the regular file f.
func (s *System) regularMount(r *Request, f File) (*mount, Attr, error) {
	if f == Root {
		return nil, Attr{}, cluster.EISDIR
	}
	m, err := s.mount(f)
	if err != nil {
		return nil, Attr{}, err
	}
	a, err := m.regular(r, f)
	return m, a, err
}

// Write implements FS.
func (s *System) Write(r *Request, f File, off uint64, p []byte, how Stability) (Stability, Verifier, error) {
	if f == Root {
		return 0, 0, cluster.EISDIR
	}
	c, err := s.begin(r, f)
	if err != nil {
		return 0, 0, err
	}
	if _, done, err := c.executed(volume.KindCommitExtents); done {
		return c.written(err)
	}
	m, a, err := s.regularMount(r, f)
	if err != nil {
		return 0, 0, err
	}
	if off > cluster.MaxFileSize || uint64(len(p)) > cluster.MaxFileSize-off {
		return 0, 0, cluster.EFBIG
	}
	session, err := m.writer.Session(r.ctx)
	if err != nil {
		return 0, 0, err
	}
	// The verifier from before: if the data is lost later, it is another one then.
	v := m.verifier(session)
	relaxed := a.Class.Consistency == cluster.Relaxed
	switch {
	case len(p) == 0:
		if relaxed {
			return how, v, nil
		}
	case relaxed:
		r.forget(m.ID)
		if err := m.hold(r, session, &a, off, p); err != nil {
			return 0, 0, err
		}
		if how == Unstable {
			return Unstable, v, nil
		}
		// All that was written before comes with it, so that nothing older
		// can be committed on top of it.
		if err := m.flush(r.ctx, f.Ino); err != nil {
			return 0, 0, err
		}
	default:
		if err := m.writeThrough(&c, session, &a, off, p); err != nil {
			return 0, 0, err
		}
	}
	return FileSync, v, nil
}

// Commit implements FS.
func (s *System) Commit(r *Request, f File) (Verifier, error) {
	m, _, err := s.regularMount(r, f)
	if err != nil {
		return 0, err
	}
	r.forget(m.ID)
	if err := m.flush(r.ctx, f.Ino); err != nil {
		return 0, err
	}
	// The verifier from after: it tells of all losses up to here.
	session, err := m.writer.Session(r.ctx)
	if err != nil {
		return 0, err
	}
	return m.verifier(session), nil
}

// written answers a strict write that was executed before.
func (c *call) written(err error) (Stability, Verifier, error) {
	if err != nil {
		return 0, 0, err
	}
	session, err := c.m.writer.Session(c.r.ctx)
	if err != nil {
		return 0, 0, err
	}
	return FileSync, c.m.verifier(session), nil
}

// writeThrough writes p and commits it. If an earlier front-end has committed
// the same call, the blobs made here are given up.
func (m *mount) writeThrough(k *call, s *writer.Session, a *Attr, off uint64, p []byte) error {
	r := k.r
	c := volume.CommitExtents{Ino: a.Ino, KillPriv: !r.cred.Root()}
	var last error
	for range retries {
		var ids []cluster.BlobID
		c.Blobs, c.Extents = c.Blobs[:0], c.Extents[:0]
		if len(p) <= cluster.MaxInline {
			c.Extents = append(c.Extents, volume.NewExtent{Off: off, Len: uint32(len(p)), Bytes: p})
		}
		for done := 0; done < len(p) && len(p) > cluster.MaxInline; {
			n := min(len(p)-done, cluster.MaxBlob)
			placed, err := m.put(r.ctx, s, a.Class, [][]byte{p[done : done+n]}, nil)
			if err != nil {
				s.Finish(ids...)
				return m.putError(s, err)
			}
			ids = append(ids, placed.Blob)
			c.Blobs = append(c.Blobs, newBlob(&placed))
			c.Extents = append(c.Extents, volume.NewExtent{Off: off + uint64(done), Len: uint32(n), Blob: placed.Blob})
			done += n
		}
		body, _, err := m.proposeFrom(s, r, &k.origin, c)
		if errors.Is(err, cluster.EAGAIN) && m.sys.base.Err() != nil {
			return err // stopping: the blobs may still be committed
		}
		s.Finish(ids...)
		switch {
		case errors.Is(err, cluster.ERETRY):
			last = err
			continue
		case errors.Is(err, cluster.EFENCED):
			return cluster.EAGAIN
		case err != nil:
			return err
		}
		res, err := volume.DecodeAttrResult(body)
		if err != nil {
			return err
		}
		k.remember(&res.Attr)
		return nil
	}
	return fmt.Errorf("vfs: writing %d bytes of inode %d: %v: %w", len(p), a.Ino, last, cluster.EAGAIN)
}

// putError returns the error of a write whose blob could not be put.
func (m *mount) putError(s *writer.Session, err error) error {
	if errors.Is(err, cluster.EFENCED) {
		m.fenced(s)
		return cluster.EAGAIN
	}
	return again("storing data", err)
}

func newBlob(p *placement.Placed) volume.NewBlob {
	return volume.NewBlob{ID: p.Blob, Set: p.Set, Epoch: p.Epoch, Len: p.Len, CRC: p.CRC}
}
