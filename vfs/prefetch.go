package vfs

import "math"

// Prefetch implements FS. It loads no more than is read ahead at a time.
func (s *System) Prefetch(r *Request, f File, off, n uint64) error {
	m, _, err := s.regularMount(r, f)
	if err != nil || s.cfg.ReadAhead < 0 {
		return err
	}
	a, err := m.inode(r, f)
	if err != nil {
		return err
	}
	if n == 0 {
		n = math.MaxUint64
	}
	n = min(n, uint64(s.cfg.ReadAhead))
	if off < a.Size {
		m.readAhead(f, off, off+min(n, a.Size-off))
	}
	return nil
}
