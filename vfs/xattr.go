package vfs

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
)

// attributed returns the volume of f, which the user may read the extended
// attributes of.
func (s *System) attributed(r *Request, f File) (*mount, error) {
	if f == Root {
		return nil, cluster.ENOTSUP
	}
	m, err := s.mount(f)
	if err != nil {
		return nil, err
	}
	a, err := m.inode(r, f)
	switch {
	case err != nil:
		return nil, err
	case a.Type != cluster.TypeRegular && a.Type != cluster.TypeDirectory:
		return nil, cluster.EPERM
	case !volume.Allowed(&a, &r.cred, volume.MayRead):
		return nil, cluster.EACCES
	}
	return m, nil
}

// Getxattr implements FS.
func (s *System) Getxattr(r *Request, f File, name string) ([]byte, error) {
	m, err := s.attributed(r, f)
	if err != nil {
		return nil, err
	}
	return m.View.Xattr(f.Ino, name)
}

// Listxattr implements FS.
func (s *System) Listxattr(r *Request, f File) ([]string, error) {
	m, err := s.attributed(r, f)
	if err != nil {
		return nil, err
	}
	return m.View.Xattrs(f.Ino)
}

// Setxattr implements FS.
func (s *System) Setxattr(r *Request, f File, name string, value []byte, how CreateHow) (ChangeInfo, error) {
	return s.changeXattr(r, f, volume.SetXattr{
		Cred: r.cred, Ino: f.Ino, Name: name, Value: value, How: volume.CreateHow(how),
	})
}

// Removexattr implements FS.
func (s *System) Removexattr(r *Request, f File, name string) (ChangeInfo, error) {
	return s.changeXattr(r, f, volume.RemoveXattr{Cred: r.cred, Ino: f.Ino, Name: name})
}

func (s *System) changeXattr(r *Request, f File, c fsm.Body) (ChangeInfo, error) {
	if f == Root {
		return ChangeInfo{}, cluster.ENOTSUP
	}
	k, err := s.begin(r, f)
	if err != nil {
		return ChangeInfo{}, err
	}
	body, done, err := k.executed(c.Kind())
	if err != nil {
		return ChangeInfo{}, err
	}
	if done {
		res, err := volume.DecodeXattrResult(body)
		return showInfo(res.Change), err
	}
	// The change attribute before is the stored one only if nothing is held.
	if err := k.m.flush(r.ctx, f.Ino); err != nil {
		return ChangeInfo{}, err
	}
	body, err = k.propose(c)
	if err != nil {
		return ChangeInfo{}, err
	}
	res, err := volume.DecodeXattrResult(body)
	return showInfo(res.Change), err
}
