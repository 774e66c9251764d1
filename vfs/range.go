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
	c, err := s.begin(r, f)
	if err != nil {
		return err
	}
	if _, done, err := c.executed(volume.KindPunch); done {
		return err
	}
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
	if off+n <= a.Size && c.origin.IsZero() {
		// With an origin it is asked of the group, which remembers the answer:
		// made again, it must not come behind the rest of its request.
		return nil
	}
	return m.punch(&c, volume.Punch{Ino: f.Ino, Off: off, Len: n, Extend: true, KillPriv: !r.cred.Root()})
}

// Deallocate implements FS.
func (s *System) Deallocate(r *Request, f File, off, n uint64) error {
	c, err := s.begin(r, f)
	if err != nil {
		return err
	}
	before, done, err := c.resume(volume.KindPunch)
	if done {
		return err
	}
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
	if before.More && before.Done > off {
		n = min(n, before.Done-off)
	}
	return m.punch(&c, volume.Punch{Ino: f.Ino, Off: off, Len: n, KillPriv: !r.cred.Root()})
}

// punch repeats a Punch, which is bounded, until all is done.
func (m *mount) punch(c *call, p volume.Punch) error {
	for {
		res, err := m.step(c, p)
		if err != nil || !res.More {
			return err
		}
		if res.Done <= p.Off || res.Done-p.Off >= p.Len {
			return cluster.EINTERNAL
		}
		// From Done on it is done: looking there again would cost as much as
		// all steps before.
		p.Len = res.Done - p.Off
	}
}

// step executes one step of a bounded command, and remembers what the last one
// left behind.
func (m *mount) step(c *call, b fsm.Body) (volume.AttrResult, error) {
	body, err := c.propose(b)
	if err != nil {
		return volume.AttrResult{}, err
	}
	c.origin.Step++
	res, err := volume.DecodeAttrResult(body)
	if err == nil && !res.More {
		c.remember(&res.Attr)
	}
	return res, err
}

// Clone implements FS.
func (s *System) Clone(r *Request, src File, srcOff uint64, dst File, dstOff, n uint64) error {
	if src.Volume != dst.Volume {
		return cluster.EXDEV
	}
	c, err := s.begin(r, src)
	if err != nil {
		return err
	}
	before, done, err := c.resume(volume.KindClone)
	if done {
		return err
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
			return m.cloneNothing(&c, volume.Clone{
				Src: src.Ino, Dst: dst.Ino, SrcOff: srcOff, DstOff: dstOff, KillPriv: !r.cred.Root(),
			})
		}
	}
	for base := before.Done; base < n; {
		res, err := m.step(&c, volume.Clone{
			Src: src.Ino, Dst: dst.Ino, SrcOff: srcOff + base, DstOff: dstOff + base, Len: n - base,
			KillPriv: !r.cred.Root(), Base: base,
		})
		if err != nil || !res.More {
			return err
		}
		if res.Done <= base || res.Done >= n {
			return cluster.EINTERNAL
		}
		base = res.Done
	}
	return nil
}

// cloneNothing clones what is behind the end of the source, for the group to
// remember that it was nothing: made again, it must not come behind the rest of
// its request. If there is something by now, it is cloned.
func (m *mount) cloneNothing(c *call, b volume.Clone) error {
	if c.origin.IsZero() {
		return nil
	}
	res, err := m.step(c, b)
	if err == nil && res.More {
		err = cluster.EAGAIN
	}
	return err
}
