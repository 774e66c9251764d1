package vfs

import (
	"errors"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
)

// lookups is how often a look-up is repeated because what it found was gone.
const lookups = 4

// dir returns the attributes of directory f, if r's user has the rights want there.
func (m *mount) dir(r *Request, f File, want uint32) (Attr, error) {
	a, err := m.attr(r, f)
	switch {
	case err != nil:
		return Attr{}, err
	case a.Type == cluster.TypeSymlink && want == volume.MayExec:
		return Attr{}, cluster.ESYMLINK
	case a.Type != cluster.TypeDirectory:
		return Attr{}, cluster.ENOTDIR
	case !volume.Allowed(&a, &r.cred, want):
		return Attr{}, cluster.EACCES
	}
	return a, nil
}

// Lookup implements FS.
func (s *System) Lookup(r *Request, dir File, name string) (File, Attr, error) {
	if dir == Root {
		return s.lookupVolume(r, name)
	}
	m, err := s.mount(dir)
	if err != nil {
		return File{}, Attr{}, err
	}
	if _, err := m.dir(r, dir, volume.MayExec); err != nil {
		return File{}, Attr{}, err
	}
	if errno := CheckName(name); errno != cluster.OK {
		return File{}, Attr{}, errno
	}
	return m.lookup(r, dir.Ino, name)
}

// lookup finds a name in a directory that the user may search.
func (m *mount) lookup(r *Request, dir Ino, name string) (File, Attr, error) {
	// The directory's attributes may be what the request remembers.
	if err := m.settle(r); err != nil {
		return File{}, Attr{}, err
	}
	for range lookups {
		e, ok := m.View.Lookup(dir, name)
		if !ok {
			// That there is no such name is said only when it is certain: a
			// relaxed read may be too old to know a new one.
			if err := m.strict(r); err != nil {
				return File{}, Attr{}, err
			}
			if e, ok = m.View.Lookup(dir, name); !ok {
				return File{}, Attr{}, cluster.ENOENT
			}
		}
		f := File{Volume: m.ID, Ino: e.Ino, Gen: e.Gen}
		a, err := m.shown(r, f)
		if errors.Is(err, cluster.ESTALE) {
			continue // removed between the two reads
		}
		if err != nil {
			return File{}, Attr{}, err
		}
		return f, a, nil
	}
	return File{}, Attr{}, cluster.EAGAIN
}

// settle waits for the index at which r reads, if it has one by now.
func (m *mount) settle(r *Request) error { return m.wait(r.ctx, r.on(m.ID)) }

func (s *System) lookupVolume(r *Request, name string) (File, Attr, error) {
	if errno := CheckName(name); errno != cluster.OK {
		return File{}, Attr{}, errno
	}
	for _, m := range s.list() {
		if m.Name == name {
			return m.root(r)
		}
	}
	return File{}, Attr{}, cluster.ENOENT
}

// root returns the volume's root directory.
func (m *mount) root(r *Request) (File, Attr, error) {
	a, ok := m.View.Inode(cluster.RootIno)
	if !ok {
		if err := m.strict(r); err != nil {
			return File{}, Attr{}, err
		}
		if a, ok = m.View.Inode(cluster.RootIno); !ok {
			return File{}, Attr{}, cluster.EAGAIN // not formatted yet
		}
	}
	f := m.file(&a)
	a, err := m.shown(r, f)
	return f, a, err
}

// LookupParent implements FS.
func (s *System) LookupParent(r *Request, dir File) (File, Attr, error) {
	if dir == Root {
		return File{}, Attr{}, cluster.ENOENT
	}
	m, err := s.mount(dir)
	if err != nil {
		return File{}, Attr{}, err
	}
	if dir.Ino == cluster.RootIno {
		if _, err := m.dir(r, dir, volume.MayExec); err != nil {
			return File{}, Attr{}, err
		}
		return Root, s.rootAttr(), nil
	}
	for range lookups {
		d, err := m.dir(r, dir, volume.MayExec)
		if err != nil {
			return File{}, Attr{}, err
		}
		if err := m.settle(r); err != nil {
			return File{}, Attr{}, err
		}
		p, ok := m.View.Inode(d.Parent)
		if !ok {
			continue // moved meanwhile
		}
		f := m.file(&p)
		a, err := m.shown(r, f)
		return f, a, err
	}
	return File{}, Attr{}, cluster.EAGAIN
}

// Readlink implements FS.
func (s *System) Readlink(r *Request, f File) (string, error) {
	if f == Root {
		return "", cluster.EINVAL
	}
	m, err := s.mount(f)
	if err != nil {
		return "", err
	}
	if _, err := m.inode(r, f); err != nil {
		return "", err
	}
	return m.View.Readlink(f.Ino)
}

// ReadDir implements FS.
func (s *System) ReadDir(r *Request, dir File, cookie uint64, attrs bool, fn func(*Dirent) bool) (bool, error) {
	if dir == Root {
		return s.readVolumes(r, cookie, attrs, fn)
	}
	m, err := s.mount(dir)
	if err != nil {
		return false, err
	}
	if _, err := m.dir(r, dir, volume.MayRead); err != nil {
		return false, err
	}
	if err := m.settle(r); err != nil {
		return false, err
	}
	var d Dirent
	var a Attr
	eof := m.View.ReadDir(dir.Ino, cookie, func(e *volume.Dirent) bool {
		d = Dirent{
			Cookie: e.Cookie, Name: e.Name, Type: e.Type, MountedOn: e.Ino,
			File: File{Volume: m.ID, Ino: e.Ino, Gen: e.Gen},
		}
		if attrs {
			h := m.held.get(e.Ino, false)
			stored, ok := m.peek(d.File)
			if ok {
				a = m.show(stored, h)
				d.Attr = &a
			}
			m.held.put(h)
			if !ok {
				return true // removed while the directory is being read
			}
		}
		return fn(&d)
	})
	return eof, nil
}

// readVolumes is ReadDir of the list of volumes.
func (s *System) readVolumes(r *Request, cookie uint64, attrs bool, fn func(*Dirent) bool) (bool, error) {
	for _, m := range s.list() {
		c := uint64(m.ID) + 2
		if c <= cookie {
			continue
		}
		f, a, err := m.root(r)
		if err != nil {
			return false, err
		}
		d := Dirent{Cookie: c, Name: m.Name, File: f, Type: cluster.TypeDirectory, MountedOn: CoveredBy(m.ID)}
		if attrs {
			d.Attr = &a
		}
		if !fn(&d) {
			return false, nil
		}
	}
	return true, nil
}
