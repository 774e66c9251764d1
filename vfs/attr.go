package vfs

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
)

// rootFSID is the file system of the list of volumes.
var rootFSID = FSID{}

// rootAttr returns the attributes of the list of volumes.
func (s *System) rootAttr() Attr {
	n := len(*s.mounts.Load())
	// Volumes are only added, so their number says whether the list changed.
	return Attr{
		Ino: cluster.RootIno, Type: cluster.TypeDirectory, Mode: 0o555, Nlink: 2 + uint32(n),
		Size: 4096, Change: uint64(n) + 1, Parent: cluster.RootIno,
	}
}

// Volume implements FS.
func (s *System) Volume(_ *Request, f File) (Volume, error) {
	if f == Root {
		return Volume{FSID: rootFSID}, nil
	}
	m, err := s.mount(f)
	if err != nil {
		return Volume{}, err
	}
	return m.Volume, nil
}

// MountedOn implements FS.
func (s *System) MountedOn(f File) Ino {
	if f.Ino == cluster.RootIno && f.Volume != cluster.ClusterGroup {
		return CoveredBy(f.Volume)
	}
	return f.Ino
}

// Getattr implements FS.
func (s *System) Getattr(r *Request, f File) (Attr, error) {
	if f == Root {
		return s.rootAttr(), nil
	}
	m, err := s.mount(f)
	if err != nil {
		return Attr{}, err
	}
	return m.shown(r, f)
}

// rights says which mode bits each access right needs, of files and of directories.
var rights = [...]struct{ right, file, dir uint32 }{
	{AccessRead, volume.MayRead, volume.MayRead},
	{AccessLookup, 0, volume.MayExec},
	{AccessModify, volume.MayWrite, volume.MayWrite | volume.MayExec},
	{AccessExtend, volume.MayWrite, volume.MayWrite | volume.MayExec},
	{AccessDelete, 0, volume.MayWrite | volume.MayExec},
	{AccessExecute, volume.MayExec, 0},
}

// Access implements FS.
func (s *System) Access(r *Request, f File, want uint32) (uint32, error) {
	a, err := s.Getattr(r, f)
	if err != nil {
		return 0, err
	}
	var have uint32
	for _, n := range rights {
		bits := n.file
		if a.Type == cluster.TypeDirectory {
			bits = n.dir
		}
		if want&n.right == 0 || bits == 0 || f == Root && bits&volume.MayWrite != 0 {
			continue
		}
		if volume.Allowed(&a, r.Cred(), bits) {
			have |= n.right
		}
	}
	return have, nil
}

// Setattr implements FS.
func (s *System) Setattr(r *Request, f File, set SetAttr, opened bool) (Attr, error) {
	if f == Root {
		return Attr{}, cluster.EROFS
	}
	c, err := s.begin(r, f)
	if err != nil {
		return Attr{}, err
	}
	m := c.m
	body, done, err := c.executed(volume.KindSetAttr, volume.KindPunch)
	switch {
	case err != nil:
		return Attr{}, err
	case done:
		return m.attrResult(&c, nil, body)
	}
	// What was written before must not come after: neither its bytes behind
	// the new end, nor its time.
	if err := m.flush(r.ctx, f.Ino); err != nil {
		return Attr{}, err
	}
	if set.Mask&cluster.SetSize != 0 {
		if err := m.shrink(&c, f, &set, opened); err != nil {
			return Attr{}, err
		}
	}
	return m.attrCommand(&c, f.Ino, volume.SetAttr{Cred: r.cred, Ino: f.Ino, Attr: set, Open: opened})
}

// shrink frees what lies behind the new end of a file in bounded commands, if
// it is more than one command should free, and the credential may.
func (m *mount) shrink(c *call, f File, set *SetAttr, opened bool) error {
	r := c.r
	a, err := m.attr(r, f)
	if err != nil {
		return err
	}
	if set.Size >= a.Size || a.Type != cluster.TypeRegular ||
		a.Size-set.Size <= volume.MaxPunch || !opened && !volume.Allowed(&a, &r.cred, volume.MayWrite) {
		return nil
	}
	n := 0
	m.View.Extents(f.Ino, set.Size, a.Size, func(*volume.Extent) bool {
		n++
		return n <= volume.MaxPunch
	})
	if n <= volume.MaxPunch {
		return nil
	}
	// The clean way would show a file with a hole at its end, of the old
	// size, if this front-end died in the middle: the truncation is not
	// acknowledged then.
	return m.punch(c, volume.Punch{Ino: f.Ino, Off: set.Size, Len: a.Size - set.Size})
}

// Statfs implements FS.
func (s *System) Statfs(r *Request, f File) (Statfs, error) {
	copies, parts, inodes, used := uint64(1), uint64(1), uint64(0), uint64(0)
	var total, free uint64
	const maxFiles = 1 << 40
	if f != Root {
		m, err := s.mount(f)
		if err != nil {
			return Statfs{}, err
		}
		a, err := m.attr(r, f)
		if err != nil {
			return Statfs{}, err
		}
		if code := a.Class.Code; code.IsZero() {
			copies = max(1, uint64(a.Class.Copies))
		} else { // what is written becomes shards
			copies, parts = uint64(code.Shards()), uint64(code.K)
		}
		u := m.View.Usage()
		inodes, used = min(maxFiles, u.Inodes), u.Bytes
		if s.cfg.Space != nil {
			total, free = s.cfg.Space(m.ID)
		}
	}
	st := Statfs{
		TotalBytes: total / copies * parts, FreeBytes: free / copies * parts, AvailBytes: free / copies * parts,
		TotalFiles: maxFiles, FreeFiles: maxFiles - inodes, AvailFiles: maxFiles - inodes,
		UsedBytes: used,
	}
	return st, nil
}

// attrCommand executes a command whose result is attributes.
func (m *mount) attrCommand(c *call, ino Ino, b fsm.Body) (Attr, error) {
	h := m.held.get(ino, false)
	defer m.held.put(h)
	body, err := c.propose(b)
	if err != nil {
		return Attr{}, err
	}
	return m.attrResult(c, h, body)
}

// attrResult returns the attributes of a command's result. h is what is held
// of the file, got before the command.
func (m *mount) attrResult(c *call, h *heldFile, body []byte) (Attr, error) {
	res, err := volume.DecodeAttrResult(body)
	if err != nil {
		return Attr{}, err
	}
	c.remember(&res.Attr)
	return m.show(res.Attr, h), nil
}
