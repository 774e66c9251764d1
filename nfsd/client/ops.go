package client

import (
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

func putStateid(e *xdr.Encoder, s Stateid) {
	e.Uint32(s.Seqid)
	e.FixedOpaque(s.Other[:])
}

func getStateid(d *xdr.Decoder) (s Stateid) {
	s.Seqid = d.Uint32()
	copy(s.Other[:], d.FixedOpaque(proto.OtherSize))
	return s
}

// PutFH appends PUTFH.
func (c *Compound) PutFH(fh FH) *Compound {
	c.Op(proto.OpPutfh).Opaque(fh)
	return c
}

// Plain appends operations that have no arguments, such as PUTROOTFH and GETFH.
func (c *Compound) Plain(ops ...proto.Op) *Compound {
	for _, op := range ops {
		c.Op(op)
	}
	return c
}

// Lookup appends LOOKUP.
func (c *Compound) Lookup(name string) *Compound {
	c.Op(proto.OpLookup).String(name)
	return c
}

// Getattr appends GETATTR.
func (c *Compound) Getattr(attrs ...int) *Compound {
	putBitmap(c.Op(proto.OpGetattr), attrs)
	return c
}

// Setattr appends SETATTR.
func (c *Compound) Setattr(s Stateid, set *SetAttr) *Compound {
	c.cache = true
	e := c.Op(proto.OpSetattr)
	putStateid(e, s)
	set.append(e)
	return c
}

// Access appends ACCESS.
func (c *Compound) Access(rights uint32) *Compound {
	c.Op(proto.OpAccess).Uint32(rights)
	return c
}

// Remove appends REMOVE.
func (c *Compound) Remove(name string) *Compound {
	c.cache = true
	c.Op(proto.OpRemove).String(name)
	return c
}

// Rename appends RENAME, from the saved to the current directory.
func (c *Compound) Rename(from, to string) *Compound {
	c.cache = true
	e := c.Op(proto.OpRename)
	e.String(from)
	e.String(to)
	return c
}

// Link appends LINK, of the saved file into the current directory.
func (c *Compound) Link(name string) *Compound {
	c.cache = true
	c.Op(proto.OpLink).String(name)
	return c
}

// Create appends CREATE. target is a symbolic link's, major and minor a device's.
func (c *Compound) Create(name string, kind uint32, target string, major, minor uint32, set *SetAttr) *Compound {
	c.cache = true
	e := c.Op(proto.OpCreate)
	e.Uint32(kind)
	switch kind {
	case proto.TypeLnk:
		e.String(target)
	case proto.TypeBlk, proto.TypeChr:
		e.Uint32(major)
		e.Uint32(minor)
	}
	e.String(name)
	set.append(e)
	return c
}

// An OpenHow says what OPEN opens, and how.
type OpenHow struct {
	// Access is proto.ShareAccess…, with what is wanted of delegations; 0: ShareAccessRead.
	Access uint32
	Deny   uint32
	Owner  []byte // nil: a new one
	Seqid  uint32 // of the owner, for NFSv4.0
	// Create has the file created: with Mode proto.Unchecked, Guarded, or,
	// with a verifier, Exclusive or Exclusive41.
	Create   bool
	Mode     uint32
	Verifier uint64
	Set      SetAttr
	// Claim is proto.Claim…: ClaimNull opens a name in a directory, ClaimFH
	// the current file, ClaimPrevious reclaims it; ClaimDelegateCur and ClaimDelegCurFH
	// open a name or the current file because of a Delegation.
	Claim      uint32
	Delegation Stateid
}

// Open appends OPEN. name is looked at with ClaimNull only.
func (c *Compound) Open(client uint64, name string, how *OpenHow) *Compound {
	c.cache, c.sequenced = true, how.Seqid != 0
	e := c.Op(proto.OpOpen)
	e.Uint32(how.Seqid)
	e.Uint32(max(how.Access, proto.ShareAccessRead))
	e.Uint32(how.Deny)
	e.Uint64(client)
	e.Opaque(how.Owner)
	if how.Create {
		e.Uint32(proto.OpenCreate)
		e.Uint32(how.Mode)
		switch how.Mode {
		case proto.Exclusive:
			e.Uint64(how.Verifier)
		case proto.Exclusive41:
			e.Uint64(how.Verifier)
			how.Set.append(e)
		default:
			how.Set.append(e)
		}
	} else {
		e.Uint32(proto.OpenNoCreate)
	}
	e.Uint32(how.Claim)
	switch how.Claim {
	case proto.ClaimNull:
		e.String(name)
	case proto.ClaimPrevious:
		e.Uint32(proto.OpenDelegateNone)
	case proto.ClaimDelegateCur:
		putStateid(e, how.Delegation)
		e.String(name)
	case proto.ClaimDelegCurFH:
		putStateid(e, how.Delegation)
	}
	return c
}

// Close appends CLOSE.
func (c *Compound) Close(s Stateid) *Compound {
	c.cache = true
	e := c.Op(proto.OpClose)
	e.Uint32(0)
	putStateid(e, s)
	return c
}

// Read appends READ.
func (c *Compound) Read(s Stateid, off uint64, n int) *Compound {
	e := c.Op(proto.OpRead)
	putStateid(e, s)
	e.Uint64(off)
	e.Uint32(uint32(n))
	return c
}

// Write appends WRITE. p is not copied: it must not change until the reply is there.
func (c *Compound) Write(s Stateid, off uint64, p []byte, stable uint32) *Compound {
	e := c.Op(proto.OpWrite)
	putStateid(e, s)
	e.Uint64(off)
	e.Uint32(stable)
	e.Uint32(uint32(len(p)))
	e.Ref(p, nil)
	e.Pad(len(p))
	return c
}

// Commit appends COMMIT.
func (c *Compound) Commit(off uint64, n uint32) *Compound {
	c.cache = true
	e := c.Op(proto.OpCommit)
	e.Uint64(off)
	e.Uint32(n)
	return c
}

// Readdir appends READDIR.
func (c *Compound) Readdir(cookie, verifier uint64, maxCount int, attrs ...int) *Compound {
	e := c.Op(proto.OpReaddir)
	e.Uint64(cookie)
	e.Uint64(verifier)
	e.Uint32(uint32(maxCount))
	e.Uint32(uint32(maxCount))
	putBitmap(e, attrs)
	return c
}

// Lock appends LOCK: by a new lock owner under the open stateid if lock is
// nil, and under the lock stateid otherwise.
func (c *Compound) Lock(client uint64, l *Range, open Stateid, lock *Stateid, owner []byte, reclaim bool) *Compound {
	c.cache = true
	e := c.Op(proto.OpLock)
	e.Uint32(l.Type)
	e.Bool(reclaim)
	e.Uint64(l.Offset)
	e.Uint64(l.Length)
	e.Bool(lock == nil)
	if lock == nil {
		e.Uint32(0)
		putStateid(e, open)
		e.Uint32(0)
		e.Uint64(client)
		e.Opaque(owner)
	} else {
		putStateid(e, *lock)
		e.Uint32(0)
	}
	return c
}

// TestLock appends LOCKT.
func (c *Compound) TestLock(client uint64, l *Range, owner []byte) *Compound {
	e := c.Op(proto.OpLockt)
	e.Uint32(l.Type)
	e.Uint64(l.Offset)
	e.Uint64(l.Length)
	e.Uint64(client)
	e.Opaque(owner)
	return c
}

// Unlock appends LOCKU.
func (c *Compound) Unlock(l *Range, s Stateid) *Compound {
	c.cache = true
	e := c.Op(proto.OpLocku)
	e.Uint32(l.Type)
	e.Uint32(0)
	putStateid(e, s)
	e.Uint64(l.Offset)
	e.Uint64(l.Length)
	return c
}
