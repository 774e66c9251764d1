package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// The kinds of a volume's commands. They are stored in logs: append only.
const (
	KindFormat fsm.Kind = fsm.FirstCoreKind + iota
	KindCreate
	KindLink
	KindRemove
	KindRename
	KindSetAttr
	KindSetClass
	KindCommitExtents
	KindPunch
	KindClone
	KindLock
	KindUnlock
	KindReleaseClient
	_ // was ReleaseNode
	KindReleaseUnlinked
	KindReap
	KindPutReplicaSet
	KindCollected
	KindTouch
	KindSetXattr
	KindRemoveXattr
	KindPutState
	KindPutStates
	KindDropStates
	KindRelocate
	KindRecode
)

// Format makes the volume's root directory. It is the first command of a
// volume's log and does nothing when repeated.
type Format struct {
	HashKey [16]byte // key of the cookie hash, random
	Class   cluster.Class
	Mode    uint32 // of the root directory
}

// A CreateHow says what Create does with a name that exists.
type CreateHow uint8

// Unchecked opens an existing regular file (and sets its size, if asked, to
// 0), Guarded fails with EEXIST, Exclusive succeeds if the file was made with
// the same verifier (RFC 8881 §18.16.3).
const (
	Unchecked CreateHow = iota
	Guarded
	Exclusive
)

// Create makes a file, directory, symbolic link or special file. Owner and
// group are the credential's, or the directory's group where that has the
// set-group-id bit; Attr overrides them where its mask says so.
type Create struct {
	Cred         cluster.Cred
	Dir          cluster.Ino
	Name         string
	Type         cluster.FileType
	How          CreateHow
	Verifier     uint64 // of Exclusive; kept apart from the times
	Attr         cluster.SetAttr
	Gen          uint32 // random; never 0
	Target       string // of a symbolic link
	Major, Minor uint32
	// Open, if it is not nil, is recorded with the file. One that exists is
	// opened only if its mode allows Open.Access and no open conflicts
	// (ESHARE); then nothing of it is changed.
	Open *State
}

// A CreateResult is what Create returns.
type CreateResult struct {
	Attr    cluster.Attr
	Dir     cluster.ChangeInfo
	Created bool            // false: the name existed
	Set     cluster.SetMask // what of the command's Attr was set
}

// Link makes a hard link Dir/Name to Ino.
type Link struct {
	Cred cluster.Cred
	Ino  cluster.Ino
	Dir  cluster.Ino
	Name string
}

// A LinkResult is what Link returns.
type LinkResult struct {
	Attr cluster.Attr
	Dir  cluster.ChangeInfo
}

// Remove removes a name: an empty directory, or anything else.
type Remove struct {
	Cred cluster.Cred
	Dir  cluster.Ino
	Name string
}

// A RemoveResult is what Remove returns.
type RemoveResult struct {
	Dir  cluster.ChangeInfo
	Attr cluster.Attr // of what was removed, after it
}

// Rename moves FromDir/FromName to ToDir/ToName, replacing what is there as
// rename(2) does.
type Rename struct {
	Cred     cluster.Cred
	FromDir  cluster.Ino
	FromName string
	ToDir    cluster.Ino
	ToName   string
}

// A RenameResult is what Rename returns.
type RenameResult struct {
	From, To cluster.ChangeInfo
	Attr     cluster.Attr // of what was moved
	Replaced cluster.Ino  // what was replaced, or 0
}

// SetAttr changes attributes; a new size truncates or extends.
type SetAttr struct {
	Cred cluster.Cred
	Ino  cluster.Ino
	Attr cluster.SetAttr
	// Open says that the change of size comes through a file open for writing,
	// so that the mode bits are not asked again.
	Open bool
}

// SetClass changes a directory's class (owner or root only). A regular file's
// copies and code are changed by it, too, but not its consistency: that is
// what it was made with.
type SetClass struct {
	Cred  cluster.Cred
	Ino   cluster.Ino
	Class cluster.Class
}

// An AttrResult is what SetAttr, SetClass, CommitExtents, Punch and Clone return.
type AttrResult struct {
	Attr cluster.Attr
	// More says that Punch or Clone stopped at its bound: the caller repeats
	// Punch for what lies before offset Done, and goes on with Clone after the
	// first Done bytes.
	More bool
	Done uint64
}

// A NewBlob is a blob that all members of its replica set hold durably.
type NewBlob struct {
	ID    cluster.BlobID
	Set   cluster.ReplicaSetID
	Epoch uint32 // of the replica set when the blob was put
	Len   uint32
	CRC   uint32 // crc32c of the whole
}

// A NewExtent maps [Off, Off+Len) of a file to a blob, or to Bytes.
type NewExtent struct {
	Off     uint64
	Len     uint32
	Blob    cluster.BlobID // 0: the bytes are in Bytes
	BlobOff uint32
	Bytes   []byte
}

// CommitExtents makes written data visible: the only command that does.
type CommitExtents struct {
	Ino   cluster.Ino
	Mtime cluster.Time // 0: the envelope's time
	// KillPriv clears set-user-id and set-group-id, as a write by an
	// unprivileged user does.
	KillPriv bool
	Blobs    []NewBlob
	Extents  []NewExtent // in order; later ones cover earlier ones
}

// Relocate moves bytes of files to other places without changing what a reader
// sees: not size, mtime, change attribute or what is used. Each Move is done if
// the file still has there what it says, and else left out.
type Relocate struct {
	Blobs []NewBlob // as in CommitExtents
	Moves []Move    // at most MaxMoves
	Done  []Mark    // marks that go, if all Moves of the file were done
}

// A Move puts [NewOff, NewOff+Len) of NewBlob, which is one of the command's,
// in place of [Off, Off+Len) of a file. What must be there now is one extent
// with that range: a part of Blob at BlobOff, or, with Blob 0, an extent of
// exactly that range with bytes of its own, the crc32c of which is CRC.
type Move struct {
	Ino     cluster.Ino
	Off     uint64
	Len     uint32
	Blob    cluster.BlobID
	BlobOff uint32
	CRC     uint32
	NewBlob cluster.BlobID
	NewOff  uint32
}

// A Mark says that a file has extents that may be better elsewhere, and the
// index of the last command that has given it one.
type Mark struct {
	Ino   cluster.Ino
	Index uint64
}

// A RelocateResult is what Relocate returns: a bit for each Move that was done,
// the first in the lowest bit of the first byte.
type RelocateResult struct {
	Moved []byte
}

// Punch makes [Off, Off+Len) a hole without changing the size; or, with
// Extend, makes the file at least Off+Len long (ALLOCATE). It frees at most
// MaxPunch extents, the last ones of the range, and says whether more remain.
type Punch struct {
	Ino      cluster.Ino
	Off, Len uint64
	Extend   bool
	KillPriv bool // as in CommitExtents
}

// Clone makes [DstOff, DstOff+Len) of Dst share the data of [SrcOff,
// SrcOff+Len) of Src. Len 0 is to the end of Src. It clones at most MaxClone
// extents, the first ones of the range, and says how far it came.
type Clone struct {
	Src, Dst       cluster.Ino
	SrcOff, DstOff uint64
	Len            uint64
	KillPriv       bool // as in CommitExtents
	// Base is what earlier steps of the same operation have cloned: the
	// result's Done counts it, too.
	Base uint64
}

// A LockOwner names who holds a byte-range lock, across front-ends and their
// restarts: a digest of the client's owner string and the lock owner.
type LockOwner [16]byte

// Lock takes a byte-range lock on [Start, End] (inclusive; End 2^64-1 is to
// the end of any file), replacing the owner's own locks there. On a conflict
// the result is ELOCKED with the lock that conflicts.
type Lock struct {
	Ino        cluster.Ino
	Owner      LockOwner
	Client     uint64 // whose it is, for ReleaseClient
	Wire       []byte // what LOCK4denied shows of the owner: opaque, at most 1024 bytes
	Start, End uint64
	Exclusive  bool
	State      *State // recorded with the lock, if it is not nil
}

// Unlock releases the owner's locks on [Start, End].
type Unlock struct {
	Ino        cluster.Ino
	Owner      LockOwner
	Start, End uint64
}

// A LockResult is what Lock returns. Conflict is set with ELOCKED only.
type LockResult struct {
	Conflict LockInfo
}

// A LockInfo is a byte-range lock that is held.
type LockInfo struct {
	Ino        cluster.Ino
	Owner      LockOwner
	Writer     cluster.WriterID // the front-end through which it was taken
	Client     uint64
	Wire       []byte
	Start, End uint64 // inclusive
	Exclusive  bool
}

// ReleaseClient drops the locks and states of Client, on Ino, or everywhere if
// Ino is 0: a bounded number of them. Its result says whether there are more.
type ReleaseClient struct {
	Client uint64
	Ino    cluster.Ino
}

// A ReleaseClientResult is what ReleaseClient returns.
type ReleaseClientResult struct {
	More bool
}

// A StateID is the part of an NFS stateid that names a state (stateid4.other).
type StateID [12]byte

// The kinds of states. Share reservations are decided between opens.
const (
	StateOpen uint8 = iota
	StateLock
	StateCopy
)

// The bits of State.Access and Deny (OPEN4_SHARE_ACCESS_*, _DENY_*).
const (
	ShareRead  uint8 = 1
	ShareWrite uint8 = 2
)

// A State is an open or a lock state that outlives its front-end.
type State struct {
	Other        StateID
	Kind         uint8
	Client       uint64
	Access, Deny uint8
	Owner        []byte    // as the client calls the owner, at most 1024 bytes
	Digest       LockOwner // of StateLock: the Owner of its locks
}

// PutState records a state of a file, in place of the one with its Other.
// ESHARE if it conflicts with another one.
type PutState struct {
	Ino   cluster.Ino
	State State
}

// A FileStates is a file and opens of it.
type FileStates struct {
	Ino    cluster.Ino
	States []State
}

// PutStates records opens of unlinked files that were granted without being
// recorded, which the envelope's writer holds the files for, and ends its hold.
// A file that is gone, or that it does not hold, is passed over.
type PutStates struct {
	Files []FileStates
}

// A StateRef names a state of a file.
type StateRef struct {
	Ino   cluster.Ino
	Other StateID
}

// DropStates deletes states, those that are there.
type DropStates struct {
	Refs []StateRef
}

// ReleaseUnlinked says that the envelope's writer has none of Inos open any
// more (or never had), so that as far as it is concerned they can be reaped.
type ReleaseUnlinked struct {
	Inos []cluster.Ino
}

// Reap frees up to Max extents of unlinked inodes that no live writer holds.
type Reap struct {
	Max uint32
}

// A ReapResult is what Reap returns.
type ReapResult struct {
	Freed uint32 // extents and inodes
	More  bool   // more can be reaped now
}

// PutReplicaSet makes a replica set (ID 0: a new one) or, if Epoch is its
// present epoch, changes its members or state, which adds 1 to the epoch.
type PutReplicaSet struct {
	Set ReplicaSet
}

// A PutReplicaSetResult is what PutReplicaSet returns.
type PutReplicaSetResult struct {
	Set ReplicaSet
}

// A SetState says what may be done with a replica set.
type SetState uint8

// The states of a replica set.
const (
	Writable SetState = iota
	ReadOnly
	Retired
)

// A ReplicaSet is the ordered stores that hold a blob.
type ReplicaSet struct {
	ID      cluster.ReplicaSetID
	Members []cluster.StoreID
	Copies  uint8 // what the class asks for; there may be fewer members
	Epoch   uint32
	State   SetState
	// Code, if it is one, is that of the set's blobs: member i holds shard i+1
	// of each, and there are as many members as shards. It never changes.
	Code cluster.Code
}

// Collected removes blobs from a replica set's delete queue: its members have
// deleted them.
type Collected struct {
	Set   cluster.ReplicaSetID
	Blobs []cluster.BlobID
}

// Touch sets access times, many at a time; one that is not newer is skipped.
type Touch struct {
	Inos  []cluster.Ino
	Atime cluster.Time
}

// SetXattr sets an extended attribute. How Guarded must not replace one,
// Exclusive must (RFC 8276 §8.4.3: SETXATTR4_CREATE, SETXATTR4_REPLACE).
type SetXattr struct {
	Cred  cluster.Cred
	Ino   cluster.Ino
	Name  string
	Value []byte
	How   CreateHow
}

// RemoveXattr removes an extended attribute.
type RemoveXattr struct {
	Cred cluster.Cred
	Ino  cluster.Ino
	Name string
}

// An XattrResult is what SetXattr and RemoveXattr return.
type XattrResult struct {
	Change cluster.ChangeInfo
}
