// Package memfs is a naive file system in memory: one mutex, maps, and the
// rules of vfs.FS in the plainest form. It is the yardstick for vfs.System and
// what the protocol's tests run on.
package memfs

import (
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

// Options says what New makes.
type Options struct {
	// Volumes are the names of the volumes; none: "main".
	Volumes []string
	// Class is the class of the volumes' roots. In a strict one each write is
	// FILE_SYNC, in a relaxed one it is what was asked for.
	Class cluster.Class
	// Now is the clock; nil: the system's.
	Now func() cluster.Time
	// RootMode is the mode of the volumes' roots; 0: 0777.
	RootMode uint32
}

// An FS is a vfs.FS in memory.
type FS struct {
	key vfs.HandleKey
	now func() cluster.Time

	mu       sync.Mutex
	change   uint64 // the last change; as a Raft index, it only grows
	verifier vfs.Verifier
	volumes  map[vfs.VolumeID]*volume
	slots    map[slotKey]*slot
	gone     []vfs.File // unlinked while open, of which the watchers must hear
	free     []vfs.File // whose locks or states were released, likewise
	changed  []vfs.File // of those that are open

	watchMu  sync.Mutex // before mu
	watchers map[*vfs.Watcher]vfs.Watcher
}

var _ vfs.FS = (*FS)(nil)

type volume struct {
	id    vfs.VolumeID
	name  string
	nodes map[vfs.Ino]*node
	next  vfs.Ino
}

type node struct {
	volume   vfs.VolumeID
	attr     vfs.Attr
	entries  map[string]*entry // of a directory
	pages    map[uint64][]byte // of a regular file, pageSize each; absent: a hole
	target   string
	verifier uint64
	xattrs   map[string][]byte
	locks    []vfs.Lock
	states   []vfs.State
	opens    int
}

type entry struct {
	cookie uint64
	ino    vfs.Ino
}

// New returns a file system with empty volumes.
func New(o Options) *FS {
	if len(o.Volumes) == 0 {
		o.Volumes = []string{"main"}
	}
	if o.Now == nil {
		o.Now = func() cluster.Time { return cluster.Time(time.Now().UnixNano()) }
	}
	if o.RootMode == 0 {
		o.RootMode = 0o777
	}
	fs := &FS{now: o.Now, verifier: 1, change: 1, volumes: map[vfs.VolumeID]*volume{}}
	fs.slots, fs.watchers = map[slotKey]*slot{}, map[*vfs.Watcher]vfs.Watcher{}
	copy(fs.key[:], "memfs: not a secret")
	for i, name := range o.Volumes {
		v := &volume{id: vfs.VolumeID(i + 1), name: name, nodes: map[vfs.Ino]*node{}, next: cluster.RootIno}
		root := v.newNode(fs, cluster.TypeDirectory, o.RootMode)
		root.attr.Class = o.Class
		root.attr.Parent = root.attr.Ino
		fs.volumes[v.id] = v
	}
	return fs
}

func (v *volume) newNode(fs *FS, t vfs.FileType, mode uint32) *node {
	now := fs.now()
	n := &node{volume: v.id, attr: vfs.Attr{
		Ino: v.next, Gen: uint32(v.next)*7 + 1, Type: t, Mode: mode & cluster.ModeMask, Nlink: 1,
		Atime: now, Mtime: now, Ctime: now, Btime: now, Change: fs.change,
	}}
	switch t {
	case cluster.TypeDirectory:
		n.entries = map[string]*entry{}
		n.attr.Nlink = 2
	case cluster.TypeRegular:
		n.pages = map[uint64][]byte{}
	}
	v.next++
	v.nodes[n.attr.Ino] = n
	return n
}

// LoseUnstable changes the write verifier, as a server does that may have lost
// unstable data (it does not lose any).
func (fs *FS) LoseUnstable() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.verifier++
}

// Opens returns how often f is open.
func (fs *FS) Opens(f vfs.File) int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	_, n, errno := fs.node(f)
	if errno != cluster.OK {
		return 0
	}
	return n.opens
}

// node returns what f names. Root has no node: callers deal with it first.
func (fs *FS) node(f vfs.File) (*volume, *node, vfs.Errno) {
	v := fs.volumes[f.Volume]
	if v == nil {
		return nil, nil, cluster.ESTALE
	}
	n := v.nodes[f.Ino]
	if n == nil || n.attr.Gen != f.Gen {
		return nil, nil, cluster.ESTALE
	}
	return v, n, cluster.OK
}

func (v *volume) file(n *node) vfs.File {
	return vfs.File{Volume: v.id, Ino: n.attr.Ino, Gen: n.attr.Gen}
}

// touch says that n changed now.
func (fs *FS) touch(n *node, data bool) {
	n.attr.Ctime = fs.now()
	if data {
		n.attr.Mtime = n.attr.Ctime
	}
	n.attr.Change = fs.change
	fs.tellChanged(n)
}

// tellChanged has the watchers of changes told of n, if it is open.
func (fs *FS) tellChanged(n *node) {
	if n.opens > 0 {
		fs.changed = append(fs.changed, vfs.File{Volume: n.volume, Ino: n.attr.Ino, Gen: n.attr.Gen})
	}
}

// forget frees n if neither a name, an open nor a state holds it.
func (v *volume) forget(n *node) {
	if n.attr.Nlink == 0 && n.opens == 0 && len(n.states) == 0 {
		delete(v.nodes, n.attr.Ino)
	}
}

func isRoot(f vfs.File) bool { return f == vfs.Root }

func (fs *FS) rootAttr() vfs.Attr {
	return vfs.Attr{
		Ino: cluster.RootIno, Type: cluster.TypeDirectory, Mode: 0o555, Nlink: 2 + uint32(len(fs.volumes)),
		Change: uint64(len(fs.volumes)) + 1, Parent: cluster.RootIno,
	}
}

// AppendHandle implements vfs.FS.
func (fs *FS) AppendHandle(dst []byte, f vfs.File) []byte { return fs.key.Append(dst, f) }

// ParseHandle implements vfs.FS.
func (fs *FS) ParseHandle(handle []byte) (vfs.File, error) { return fs.key.Parse(handle) }

// Volume implements vfs.FS.
func (fs *FS) Volume(_ *vfs.Request, f vfs.File) (vfs.Volume, error) {
	if isRoot(f) {
		return vfs.Volume{FSID: vfs.FSID{Major: 1}}, nil
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	v := fs.volumes[f.Volume]
	if v == nil {
		return vfs.Volume{}, cluster.ESTALE
	}
	return vfs.Volume{ID: v.id, Name: v.name, FSID: vfs.FSID{Major: 1, Minor: uint64(v.id)}}, nil
}

// MountedOn implements vfs.FS.
func (fs *FS) MountedOn(f vfs.File) vfs.Ino {
	if f.Ino == cluster.RootIno && !isRoot(f) {
		return vfs.CoveredBy(f.Volume)
	}
	return f.Ino
}

// Statfs implements vfs.FS.
func (fs *FS) Statfs(_ *vfs.Request, f vfs.File) (vfs.Statfs, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	used := uint64(0)
	if v := fs.volumes[f.Volume]; v != nil {
		for _, n := range v.nodes {
			used += n.attr.Used
		}
	}
	const total, files = 1 << 40, 1 << 30
	return vfs.Statfs{
		TotalBytes: total, FreeBytes: total / 2, AvailBytes: total / 2,
		TotalFiles: files, FreeFiles: files / 2, AvailFiles: files / 2,
		UsedBytes: used,
	}, nil
}
