// Package vfs is the file system as front-ends see it. It declares the FS
// interface, its types and its errors, and implements it over the cluster's
// state machines and the datastore.
//
// A front-end makes one Request per compound operation and passes it to each
// call. The Request remembers what has been agreed on its behalf: one read
// index for each volume that it touches, and the attributes that its own
// changes left behind, so that a compound sees its own effects and pays for
// one round of agreement, however many operations it has.
package vfs

import (
	"context"

	"github.com/hawserfs/hawser/cluster"
)

// The domain types that the file system shares with the cluster.
type (
	Ino        = cluster.Ino
	VolumeID   = cluster.VolumeID
	Attr       = cluster.Attr
	SetAttr    = cluster.SetAttr
	SetMask    = cluster.SetMask
	FileType   = cluster.FileType
	Cred       = cluster.Cred
	Class      = cluster.Class
	ChangeInfo = cluster.ChangeInfo
	Time       = cluster.Time
	Errno      = cluster.Errno
)

// A File is a decoded file handle. The zero File names nothing.
type File struct {
	Volume VolumeID // ClusterGroup (0): the root that lists the volumes
	Ino    Ino
	Gen    uint32
}

// Root is the directory that lists the volumes. Its Ino is cluster.RootIno.
var Root = File{Volume: cluster.ClusterGroup, Ino: cluster.RootIno}

// MaxHandle is the largest file handle, in bytes.
const MaxHandle = 64

// MaxXattr is the largest value of an extended attribute, in bytes.
const MaxXattr = 64 << 10

// An FSID tells volumes apart for clients (RFC 8881 §5.8.1.9). It is the same on
// every node and never changes.
type FSID struct {
	Major, Minor uint64
}

// A CreateHow says what Create does with a name that exists.
type CreateHow uint8

// The ways to create (RFC 8881 §18.16.3). Exclusive covers EXCLUSIVE4 and EXCLUSIVE4_1.
const (
	Unchecked CreateHow = iota
	Guarded
	Exclusive
)

// CreateArgs says what Create makes.
type CreateArgs struct {
	Type         FileType
	How          CreateHow
	Verifier     uint64
	Attr         SetAttr
	Target       string
	Major, Minor uint32
	// Open, if it is not nil, is recorded with the file in the same command. A
	// file that exists is then opened only if its mode allows Open.Access
	// (EACCES; who may execute it may read it) and no open there conflicts
	// (ESHARE): otherwise nothing changes.
	Open *State
}

// Created is what Create made, or found.
type Created struct {
	File    File
	Attr    Attr
	Dir     ChangeInfo
	Created bool
	Set     SetMask // which of the asked attributes were set
}

// A Dirent is an entry of a directory. Attr is set when ReadDir was asked for it.
type Dirent struct {
	Cookie uint64 // resumes after this entry; > 2 and < 2^63
	Name   string
	File   File
	Type   FileType
	Attr   *Attr
	// MountedOn is the number of the directory that a volume's root covers in
	// Root; for other entries it is File.Ino.
	MountedOn Ino
}

// Access rights, as in ACCESS (RFC 8881 §18.1.1).
const (
	AccessRead    uint32 = 0x01
	AccessLookup  uint32 = 0x02
	AccessModify  uint32 = 0x04
	AccessExtend  uint32 = 0x08
	AccessDelete  uint32 = 0x10
	AccessExecute uint32 = 0x20
)

// A Stability says how durable a write is asked to be, or was made.
// The numbers are stable_how4's (RFC 8881 §18.32.1).
type Stability uint32

// The stabilities.
const (
	Unstable Stability = iota
	DataSync
	FileSync
)

// A Verifier tells a client whether unstable data may have been lost (RFC
// 8881 §18.32.3): it changes whenever it may.
type Verifier uint64

// Data is what Read returned: slices that alias caches. Release must be called
// once they have been sent; they must not be changed.
type Data struct {
	Bufs [][]byte
	N    int  // bytes in Bufs
	EOF  bool // the read reached the end of the file
	// Holes are the holes that were read, in order and apart; in Bufs they are
	// zeros. They are good until Release.
	Holes   []Hole
	Release func() // may be nil
}

// A Hole is a run of bytes of a file that nothing is stored of: they read as zeros.
type Hole struct{ Off, Len uint64 }

// Statfs is the space and inodes of a volume, for the class of the directory asked.
type Statfs struct {
	TotalBytes, FreeBytes, AvailBytes uint64 // user bytes: copies are divided out
	TotalFiles, FreeFiles, AvailFiles uint64
	UsedBytes                         uint64 // by the volume's files: one copy, holes not
}

// A LockOwner names who holds a byte-range lock, across front-ends and their restarts.
type LockOwner [16]byte

// A Lock is a byte-range lock on [Start, End], inclusive.
type Lock struct {
	Owner      LockOwner
	Client     uint64 // the front-end's number for the client
	Wire       []byte // the owner as LOCK4denied shows it
	Start, End uint64
	Exclusive  bool
	// State, if it is not nil, is recorded with the lock in the same command.
	State *State
}

// A SeekWhat says what Seek looks for.
type SeekWhat uint32

// Data or a hole, as in data_content4 (RFC 7862 §15.11).
const (
	SeekData SeekWhat = iota
	SeekHole
)

// A Volume describes one file system.
type Volume struct {
	ID   VolumeID
	Name string
	FSID FSID
}

// FS is the file system that front-ends serve. All methods are safe for
// concurrent use. Errors are Errno values (or wrap one); any other error is a
// failure of the cluster, to be reported as "try again".
//
// Every method checks the Request's credential as POSIX asks, but for Read,
// Write and Commit, whose callers hold an open file (or use ReadOpen's and
// WriteOpen's checks through Access).
type FS interface {
	// AppendHandle appends f's file handle (at most MaxHandle bytes) to dst.
	AppendHandle(dst []byte, f File) []byte
	// ParseHandle decodes a handle: EBADHANDLE if this cluster did not make
	// it. It does not look whether the file is there.
	ParseHandle(handle []byte) (File, error)

	// Volume returns the volume that f is in; for Root, that of the list itself.
	Volume(r *Request, f File) (Volume, error)
	// Getattr returns the attributes: ESTALE if the file is gone.
	Getattr(r *Request, f File) (Attr, error)
	// MountedOn returns the number of the directory that f covers, if f is
	// the root of a volume, and its own number otherwise.
	MountedOn(f File) Ino
	// Access returns which of the rights want the credential has.
	Access(r *Request, f File, want uint32) (uint32, error)
	// Setattr changes attributes. opened: the caller holds the file open for
	// writing, so a change of size needs no further right.
	Setattr(r *Request, f File, set SetAttr, opened bool) (Attr, error)

	// Lookup finds name in dir. A volume's root is found in Root.
	Lookup(r *Request, dir File, name string) (File, Attr, error)
	// LookupParent returns dir's parent: ENOENT for Root.
	LookupParent(r *Request, dir File) (File, Attr, error)
	// Readlink returns a symbolic link's target: EINVAL if it is none.
	Readlink(r *Request, f File) (string, error)
	// Create makes a file of any type in dir.
	Create(r *Request, dir File, name string, args CreateArgs) (Created, error)
	// Link makes dir/name a hard link to f.
	Link(r *Request, f, dir File, name string) (Attr, ChangeInfo, error)
	// Remove removes dir/name, a directory only if it is empty.
	Remove(r *Request, dir File, name string) (ChangeInfo, error)
	// Rename moves fromDir/fromName to toDir/toName, replacing what may be replaced.
	Rename(r *Request, fromDir File, fromName string, toDir File, toName string) (from, to ChangeInfo, err error)
	// ReadDir calls fn for each entry after cookie (0: from the start), in
	// cookie order, until it returns false. eof: there are no more. Entries
	// have Attr if attrs is set. There are no "." and "..".
	ReadDir(r *Request, dir File, cookie uint64, attrs bool, fn func(*Dirent) bool) (eof bool, err error)

	// Open says that this front-end holds f open once more, so that it stays
	// until Close when its last name is removed. ESTALE if it is gone.
	Open(r *Request, f File) error
	// Close ends one Open.
	Close(f File)
	// Read reads up to n bytes at off. Beyond the end there are none, with EOF.
	Read(r *Request, f File, off uint64, n int) (Data, error)
	// Prefetch asks for n bytes at off (0: all that follows) to be read into the cache,
	// as much of them as is read ahead at a time. It does not wait for them.
	Prefetch(r *Request, f File, off, n uint64) error
	// Write writes p at off, as durably as how asks or better. p is the
	// caller's again when Write returns.
	Write(r *Request, f File, off uint64, p []byte, how Stability) (Stability, Verifier, error)
	// Commit makes what was written Unstable durable and visible.
	Commit(r *Request, f File) (Verifier, error)
	// Seek returns the offset of the next data or hole at or after off: ENXIO
	// if there is none (RFC 7862 §15.11).
	Seek(r *Request, f File, off uint64, what SeekWhat) (uint64, error)
	// Allocate makes f at least off+n long.
	Allocate(r *Request, f File, off, n uint64) error
	// Deallocate makes [off, off+n) a hole; the size stays.
	Deallocate(r *Request, f File, off, n uint64) error
	// Clone makes n bytes (0: all to the end) of dst share src's data.
	Clone(r *Request, src File, srcOff uint64, dst File, dstOff, n uint64) error

	// Lock takes a lock: ELOCKED, with the conflicting lock, if it can't.
	Lock(r *Request, f File, l Lock) (conflict *Lock, err error)
	// Unlock releases the owner's locks in l's range.
	Unlock(r *Request, f File, l Lock) error
	// TestLock returns a lock that conflicts with l, or nil.
	TestLock(r *Request, f File, l Lock) (conflict *Lock, err error)
	// Locks returns the locks that a client has on f, by where they start.
	Locks(r *Request, f File, client uint64) ([]Lock, error)
	// ReleaseClient drops all locks and states of a client, in every volume,
	// through whatever front-end it got them.
	ReleaseClient(ctx context.Context, client uint64) error

	// PutState records a state of f, in place of the one with its Other:
	// ESHARE, with nothing changed, if it conflicts with another one.
	PutState(r *Request, f File, s State) error
	// DropState deletes one, if it is there. wait: it is gone when DropState
	// returns; otherwise it goes with others within 100 ms.
	DropState(r *Request, f File, other StateID, wait bool) error
	// States returns the states of f, by Other.
	States(r *Request, f File) ([]State, error)
	// ClientStates calls fn for each state of a client, in every volume, by
	// volume, file and Other, until it returns false. It is for take-over and
	// for TEST_STATEID (RFC 8881 §18.48), which names no file.
	ClientStates(r *Request, client uint64, fn func(f File, s State) bool) error
	// Denied returns ELOCKED if a state of f other than self denies the access
	// (AccessRead and AccessModify count): for READ and WRITE with a special
	// stateid or under an open that is not replicated (RFC 8881 §9.1.2). It
	// asks what this node has applied, and costs next to nothing while no
	// open of the volume denies anything.
	Denied(r *Request, f File, self StateID, access uint32) error
	// DropSessions forgets the results stored for sessions that are gone.
	DropSessions(ctx context.Context, sessions [][16]byte) error
	// Watch has w called from now on, until cancel, which waits for calls under way.
	Watch(w Watcher) (cancel func())

	// Getxattr, Setxattr, Removexattr and Listxattr handle extended attributes
	// of the user namespace, without its prefix (RFC 8276).
	Getxattr(r *Request, f File, name string) ([]byte, error)
	Setxattr(r *Request, f File, name string, value []byte, how CreateHow) (ChangeInfo, error)
	Removexattr(r *Request, f File, name string) (ChangeInfo, error)
	Listxattr(r *Request, f File) ([]string, error)

	// Statfs returns the space of f's volume.
	Statfs(r *Request, f File) (Statfs, error)
}
