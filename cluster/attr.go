package cluster

// A FileType is an inode's type.
type FileType uint8

// The file types. The numbers are stored and are never changed.
const (
	TypeRegular FileType = iota + 1
	TypeDirectory
	TypeSymlink
	TypeBlock
	TypeChar
	TypeFIFO
	TypeSocket
)

// Mode bits beyond rwx for owner, group and others (07777 in all).
const (
	ModeSetUID uint32 = 0o4000
	ModeSetGID uint32 = 0o2000
	ModeSticky uint32 = 0o1000
	ModeMask   uint32 = 0o7777
)

// A Time is nanoseconds since 1970 UTC.
type Time int64

// An Attr is an inode's attributes.
type Attr struct {
	Ino    Ino
	Gen    uint32 // generation: random, part of the file handle
	Type   FileType
	Mode   uint32 // 07777
	Nlink  uint32
	UID    uint32
	GID    uint32
	Size   uint64 // bytes
	Used   uint64 // bytes of data behind it, one copy counted
	Major  uint32 // device numbers
	Minor  uint32
	Atime  Time
	Mtime  Time
	Ctime  Time
	Btime  Time   // creation
	Change uint64 // Raft index of the last command that touched the inode
	Parent Ino    // of a directory; 0 for others
	Class  Class  // own class of a directory, or the one that a file was created with
}

// A Consistency says when a write is visible and durable.
type Consistency uint8

// The consistency classes.
const (
	Strict  Consistency = iota // every WRITE is committed before its reply; reads are linearizable
	Relaxed                    // UNSTABLE writes are held; reads may be served from the local state
)

// String returns "strict" or "relaxed".
func (c Consistency) String() string {
	if c == Relaxed {
		return "relaxed"
	}
	return "strict"
}

// A Class is a directory's policy, inherited by what is created in it.
type Class struct {
	Consistency Consistency
	Copies      uint8 // 1 to 3
	// Code, if it is one, is what blobs of MinCoded bytes and more become when
	// they are cold, and those of MaxBlob bytes are at once.
	Code Code
}

// A Cred is who asks: the effective user, group and supplementary groups.
type Cred struct {
	UID  uint32
	GID  uint32
	GIDs []uint32
}

// Root reports whether the credential is privileged.
func (c *Cred) Root() bool { return c.UID == 0 }

// InGroup reports whether gid is among the credential's groups.
func (c *Cred) InGroup(gid uint32) bool {
	if c.GID == gid {
		return true
	}
	for _, g := range c.GIDs {
		if g == gid {
			return true
		}
	}
	return false
}

// A SetMask says which members of a SetAttr are meant.
type SetMask uint16

// The members of a SetAttr. SetAtimeNow and SetMtimeNow take the command's time.
const (
	SetMode SetMask = 1 << iota
	SetUID
	SetGID
	SetSize
	SetAtime
	SetMtime
	SetAtimeNow
	SetMtimeNow
)

// A SetAttr changes the attributes that Mask names.
type SetAttr struct {
	Mask  SetMask
	Mode  uint32
	UID   uint32
	GID   uint32
	Size  uint64
	Atime Time
	Mtime Time
}

// A ChangeInfo is a directory's change attribute before and after an
// operation, atomically (RFC 8881 §3.3.5, change_info4 with atomic TRUE).
type ChangeInfo struct {
	Before, After uint64
}
