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
	m, err := s.mount(dir)
	if err != nil {
		return Created{}, err
	}
	if args.How == Unchecked && args.Attr.Mask&cluster.SetSize != 0 && m.held.any() {
		// It may empty a file: what was written before must not come after.
		if e, ok := m.View.Lookup(dir.Ino, name); ok {
			if err := m.flush(r.ctx, e.Ino); err != nil {
				return Created{}, err
			}
		}
	}
	gen := uint32(s.cfg.Nonce())
	body, err := m.propose(r, volume.Create{
		Cred: r.cred, Dir: dir.Ino, Name: name, Type: args.Type, How: volume.CreateHow(args.How),
		Verifier: args.Verifier, Attr: args.Attr, Gen: max(gen, 1), Target: args.Target, Major: args.Major, Minor: args.Minor,
	})
	if err != nil {
		return Created{}, err
	}
	res, err := volume.DecodeCreateResult(body)
	if err != nil {
		return Created{}, err
	}
	r.remember(m.ID, &res.Attr)
	return Created{
		File: m.file(&res.Attr), Attr: m.show(res.Attr), Dir: showInfo(res.Dir), Created: res.Created, Set: res.Set,
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
	m, err := s.mount(f)
	if err != nil {
		return Attr{}, ChangeInfo{}, err
	}
	body, err := m.propose(r, volume.Link{Cred: r.cred, Ino: f.Ino, Dir: dir.Ino, Name: name})
	if err != nil {
		return Attr{}, ChangeInfo{}, err
	}
	res, err := volume.DecodeLinkResult(body)
	if err != nil {
		return Attr{}, ChangeInfo{}, err
	}
	r.remember(m.ID, &res.Attr)
	return m.show(res.Attr), showInfo(res.Dir), nil
}

// Remove implements FS.
func (s *System) Remove(r *Request, dir File, name string) (ChangeInfo, error) {
	if dir == Root {
		return ChangeInfo{}, cluster.EROFS
	}
	m, err := s.mount(dir)
	if err != nil {
		return ChangeInfo{}, err
	}
	body, err := m.propose(r, volume.Remove{Cred: r.cred, Dir: dir.Ino, Name: name})
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
	m, err := s.mount(fromDir)
	if err != nil {
		return from, to, err
	}
	body, err := m.propose(r, volume.Rename{
		Cred: r.cred, FromDir: fromDir.Ino, FromName: fromName, ToDir: toDir.Ino, ToName: toName,
	})
	if err != nil {
		return from, to, err
	}
	res, err := volume.DecodeRenameResult(body)
	return showInfo(res.From), showInfo(res.To), err
}
