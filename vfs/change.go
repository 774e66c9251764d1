package vfs

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
)

// Create implements FS.
func (s *System) Create(r *Request, dir File, name string, args CreateArgs) (Created, error) {
	if dir == Root {
		return Created{}, cluster.EROFS
	}
	c, err := s.begin(r, dir)
	if err != nil {
		return Created{}, err
	}
	m := c.m
	body, done, err := c.executed(volume.KindCreate)
	if err != nil {
		return Created{}, err
	}
	if done {
		return m.created(&c, body, nil)
	}
	var h *heldFile
	if args.How != Guarded && m.held.any() {
		if e, ok := m.View.Lookup(dir.Ino, name); ok {
			h = m.held.get(e.Ino, false)
			defer m.held.put(h)
		}
	}
	if h != nil && args.Attr.Mask&cluster.SetSize != 0 {
		// It may empty a file: what was written before must not come after.
		if err := m.flushFile(r.ctx, h, false); err != nil {
			return Created{}, err
		}
	}
	m.beforeShare(r, args.Open)
	gen := uint32(s.cfg.Nonce())
	body, err = c.propose(volume.Create{
		Cred: r.cred, Dir: dir.Ino, Name: name, Type: args.Type, How: volume.CreateHow(args.How),
		Verifier: args.Verifier, Attr: args.Attr, Gen: max(gen, 1), Target: args.Target, Major: args.Major, Minor: args.Minor,
		Open: storedState(args.Open),
	})
	if err != nil {
		return Created{}, err
	}
	return m.created(&c, body, h)
}

// created returns what the result of a Create says. h is what is held of a file
// that may be the one, got before the command.
func (m *mount) created(c *call, body []byte, h *heldFile) (Created, error) {
	res, err := volume.DecodeCreateResult(body)
	if err != nil {
		return Created{}, err
	}
	c.remember(&res.Attr)
	if h != nil && h.ino != res.Attr.Ino {
		h = nil // another file has the name by now
	}
	return Created{
		File: m.file(&res.Attr), Attr: m.show(res.Attr, h), Dir: showInfo(res.Dir), Created: res.Created, Set: res.Set,
	}, nil
}

// Link implements FS.
func (s *System) Link(r *Request, f, dir File, name string) (Attr, ChangeInfo, error) {
	if f.Volume != dir.Volume {
		return Attr{}, ChangeInfo{}, cluster.EXDEV
	}
	if dir == Root {
		return Attr{}, ChangeInfo{}, cluster.EROFS
	}
	c, err := s.begin(r, f)
	if err != nil {
		return Attr{}, ChangeInfo{}, err
	}
	m := c.m
	h := m.held.get(f.Ino, false)
	defer m.held.put(h)
	body, err := c.once(volume.Link{Cred: r.cred, Ino: f.Ino, Dir: dir.Ino, Name: name})
	if err != nil {
		return Attr{}, ChangeInfo{}, err
	}
	res, err := volume.DecodeLinkResult(body)
	if err != nil {
		return Attr{}, ChangeInfo{}, err
	}
	c.remember(&res.Attr)
	return m.show(res.Attr, h), showInfo(res.Dir), nil
}

// Remove implements FS.
func (s *System) Remove(r *Request, dir File, name string) (ChangeInfo, error) {
	if dir == Root {
		return ChangeInfo{}, cluster.EROFS
	}
	c, err := s.begin(r, dir)
	if err != nil {
		return ChangeInfo{}, err
	}
	body, err := c.once(volume.Remove{Cred: r.cred, Dir: dir.Ino, Name: name})
	if err != nil {
		return ChangeInfo{}, err
	}
	res, err := volume.DecodeRemoveResult(body)
	return showInfo(res.Dir), err
}

// Rename implements FS.
func (s *System) Rename(r *Request, fromDir File, fromName string, toDir File, toName string) (from, to ChangeInfo, err error) {
	if fromDir.Volume != toDir.Volume {
		return from, to, cluster.EXDEV
	}
	if fromDir == Root {
		return from, to, cluster.EROFS
	}
	c, err := s.begin(r, fromDir)
	if err != nil {
		return from, to, err
	}
	body, err := c.once(volume.Rename{
		Cred: r.cred, FromDir: fromDir.Ino, FromName: fromName, ToDir: toDir.Ino, ToName: toName,
	})
	if err != nil {
		return from, to, err
	}
	res, err := volume.DecodeRenameResult(body)
	return showInfo(res.From), showInfo(res.To), err
}
