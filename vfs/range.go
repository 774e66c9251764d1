package vfs

import (
	"math"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
)

// Seek implements FS.
func (s *System) Seek(r *Request, f File, off uint64, what SeekWhat) (uint64, error) {
	m, _, err := s.regularMount(r, f)
	if err != nil {
		return 0, err
	}
	if err := m.flush(r.ctx, f.Ino); err != nil {
		return 0, err
	}
	a, err := m.inode(r, f)
	if err != nil {
		return 0, err
	}
	if off >= a.Size {
		return 0, cluster.ENXIO
	}
	next, data := off, false // up to next all is data; data: next is in an extent
	m.View.Extents(f.Ino, off, a.Size, func(e *volume.Extent) bool {
		if what == SeekData {
			next, data = e.Off, true
			return false
		}
		if e.Off > next {
			return false
		}
		next = e.End()
		return true
	})
	if what == SeekData && !data {
		return 0, cluster.ENXIO
	}
	return min(next, a.Size), nil // the end of a file is a hole
}

// Allocate implements FS.
func (s *System) Allocate(r *Request, f File, off, n uint64) error {
	m, _, err := s.regularMount(r, f)
	if err != nil {
		return err
	}
	if off > cluster.MaxFileSize || n > cluster.MaxFileSize-off {
		return cluster.EFBIG
	}
	if err := m.flush(r.ctx, f.Ino); err != nil {
		return err
	}
	a, err := m.inode(r, f)
	if err != nil {
		return err
	}
	if off+n <= a.Size {
		return nil
	}
	return m.punch(r, volume.Punch{Ino: f.Ino, Off: off, Len: n, Extend: true, KillPriv: !r.cred.Root()})
}

// Deallocate implements FS.
func (s *System) Deallocate(r *Request, f File, off, n uint64) error {
	m, _, err := s.regularMount(r, f)
	if err != nil {
		return err
	}
	if err := m.flush(r.ctx, f.Ino); err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	n = min(n, math.MaxUint64-off)
	return m.punch(r, volume.Punch{Ino: f.Ino, Off: off, Len: n, KillPriv: !r.cred.Root()})
}

// punch repeats a Punch, which is bounded, until all is done.
func (m *mount) punch(r *Request, c volume.Punch) error {
	for {
		res, err := m.step(r, c)
		if err != nil || !res.More {
			return err
		}
		if res.Done <= c.Off || res.Done-c.Off >= c.Len {
			return cluster.EINTERNAL
		}
		// From Done on it is done: looking there again would cost as much as
		// all steps before.
		c.Len = res.Done - c.Off
	}
}

// step executes one step of a bounded command, and remembers what the last one
// left behind.
func (m *mount) step(r *Request, c fsm.Body) (volume.AttrResult, error) {
	body, err := m.propose(r, c)
	if err != nil {
		return volume.AttrResult{}, err
	}
	res, err := volume.DecodeAttrResult(body)
	if err == nil && !res.More {
		r.remember(m.ID, &res.Attr)
	}
	return res, err
}

// Clone implements FS.
func (s *System) Clone(r *Request, src File, srcOff uint64, dst File, dstOff, n uint64) error {
	if src.Volume != dst.Volume {
		return cluster.EXDEV
	}
	m, _, err := s.regularMount(r, src)
	if err != nil {
		return err
	}
	if _, err := m.regular(r, dst); err != nil {
		return err
	}
	for _, f := range []File{src, dst} {
		if err := m.flush(r.ctx, f.Ino); err != nil {
			return err
		}
	}
	if n == 0 {
		a, err := m.inode(r, src)
		if err != nil {
			return err
		}
		if srcOff > a.Size {
			return cluster.EINVAL
		}
		if n = a.Size - srcOff; n == 0 {
			return nil
		}
	}
	c := volume.Clone{Src: src.Ino, Dst: dst.Ino, SrcOff: srcOff, DstOff: dstOff, Len: n, KillPriv: !r.cred.Root()}
	for {
		res, err := m.step(r, c)
		if err != nil || !res.More {
			return err
		}
		if res.Done == 0 || res.Done >= c.Len {
			return cluster.EINTERNAL
		}
		c.SrcOff, c.DstOff, c.Len = c.SrcOff+res.Done, c.DstOff+res.Done, c.Len-res.Done
	}
}
