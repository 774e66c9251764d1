package nfs4

import (
	"encoding/binary"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/vfs"
)

// openArgs are the arguments of OPEN.
type openArgs struct {
	access, deny, wants uint32
	owner               []byte
	create              bool
	mode                uint32 // createmode4
	verifier            uint64
	attrs               change
	claim               uint32
	name                string
	nameSt              proto.Status
}

// decodeOpen takes the arguments of OPEN (RFC 8881 §18.16.1). Its status is of
// what no OPEN can have; bad names and attributes are left in the arguments.
func (c *compound) decodeOpen(a *openArgs) proto.Status {
	c.d.Uint32() // seqid: sessions have replaced it
	access := c.d.Uint32()
	a.access, a.wants = access&proto.ShareAccessBoth, access&^proto.ShareAccessBoth
	a.deny = c.d.Uint32()
	c.d.Uint64() // the client id is the session's
	a.owner = c.d.Opaque(proto.OpaqueLimit)
	switch c.d.Uint32() {
	case proto.OpenNoCreate:
	case proto.OpenCreate:
		a.create = true
		a.mode = c.d.Uint32()
		switch a.mode {
		case proto.Unchecked, proto.Guarded:
			a.attrs = c.decodeAttrs(true)
		case proto.Exclusive:
			a.verifier = c.d.Uint64()
		case proto.Exclusive41:
			a.verifier = c.d.Uint64()
			a.attrs = c.decodeAttrs(true)
		default:
			return proto.ErrBadxdr
		}
	default:
		return proto.ErrBadxdr
	}
	a.claim = c.d.Uint32()
	switch a.claim {
	case proto.ClaimNull:
		a.name, a.nameSt = c.name()
	case proto.ClaimPrevious:
		c.d.Uint32() // the type of a delegation, which can't have been
	case proto.ClaimFH:
	case proto.ClaimDelegateCur, proto.ClaimDelegCurFH:
		return proto.ErrBadStateid // there are no delegations
	case proto.ClaimDelegatePrev, proto.ClaimDelegPrevFH:
		return proto.ErrNotsupp
	default:
		return proto.ErrBadxdr
	}
	switch {
	case c.d.Err() != nil:
		return proto.ErrBadxdr
	case a.access == 0 || a.deny > proto.ShareDenyBoth:
		return proto.ErrInval
	case a.create && a.claim != proto.ClaimNull:
		return proto.ErrInval
	}
	return proto.OK
}

// open is OPEN (RFC 8881 §18.16). INVAL would make Linux give up CLAIM_FH for the
// whole mount: it is only for arguments that no correct client sends.
func (c *compound) open() proto.Status {
	var a openArgs
	if st := c.decodeOpen(&a); st != proto.OK {
		return st
	}
	if st := c.mayOpen(&a); st != proto.OK {
		return st
	}
	c.req.Fresh() // who opens a file sees what was there when another closed it
	file, attr, change, set, st := c.find(&a)
	if st != proto.OK {
		return st
	}
	sid, st := c.hold(&a, file)
	if st != proto.OK {
		return st
	}
	c.setCurAttr(file, &attr)
	c.setStateid(sid)
	sid.Encode(c.e)
	c.changeInfo(change)
	c.e.Uint32(proto.OpenResultLocktypePosix | proto.OpenResultPreserveUnlinked)
	encodeBitmap(c.e, set)
	c.noDelegation(a.wants)
	return proto.OK
}

// mayOpen says whether this kind of OPEN is possible now. That a client has not
// sent RECLAIM_COMPLETE does not matter outside of the grace period.
func (c *compound) mayOpen(a *openArgs) proto.Status {
	switch {
	case a.claim == proto.ClaimPrevious:
		return c.p.state.MayReclaim(c.client)
	case c.p.state.InGrace():
		return proto.ErrGrace
	}
	return proto.OK
}

// find finds or makes the file, and checks that the user may open it so.
func (c *compound) find(a *openArgs) (f vfs.File, attr vfs.Attr, change vfs.ChangeInfo, set bitmap, st proto.Status) {
	if a.create {
		return c.findOrCreate(a)
	}
	switch {
	case a.claim != proto.ClaimNull:
		now, st := c.getattr()
		if st != proto.OK {
			return f, attr, change, set, st
		}
		f, attr = c.cur, *now
		change = vfs.ChangeInfo{Before: attr.Change, After: attr.Change}
	case a.nameSt != proto.OK:
		return f, attr, change, set, a.nameSt
	default:
		dir, err := c.fs.Getattr(&c.req, c.cur)
		if err != nil {
			return f, attr, change, set, status(err)
		}
		change = vfs.ChangeInfo{Before: dir.Change, After: dir.Change}
		if f, attr, err = c.fs.Lookup(&c.req, c.cur, a.name); err != nil {
			return f, attr, change, set, status(err)
		}
	}
	if st = openable(attr.Type); st == proto.OK && a.claim != proto.ClaimPrevious {
		st = c.mayAccess(f, a.access)
	}
	return f, attr, change, set, st
}

// openable says whether files of a type can be opened. SYMLINK, for anything that
// is neither file nor directory, is what makes Linux look again and open it by itself.
func openable(t vfs.FileType) proto.Status {
	switch t {
	case cluster.TypeRegular:
		return proto.OK
	case cluster.TypeDirectory:
		return proto.ErrIsdir
	}
	return proto.ErrSymlink
}

// mayAccess says whether the user may open f with the share access. Who may
// execute a file may read it, to execute it.
func (c *compound) mayAccess(f vfs.File, access uint32) proto.Status {
	var want uint32
	if access&proto.ShareAccessRead != 0 {
		want |= vfs.AccessRead | vfs.AccessExecute
	}
	if access&proto.ShareAccessWrite != 0 {
		want |= vfs.AccessModify
	}
	got, err := c.fs.Access(&c.req, f, want)
	switch {
	case err != nil:
		return status(err)
	case access&proto.ShareAccessRead != 0 && got&(vfs.AccessRead|vfs.AccessExecute) == 0,
		access&proto.ShareAccessWrite != 0 && got&vfs.AccessModify == 0:
		return proto.ErrAccess
	}
	return proto.OK
}

// createHow is createmode4 as the file system knows it.
var createHow = [...]vfs.CreateHow{
	proto.Unchecked: vfs.Unchecked, proto.Guarded: vfs.Guarded,
	proto.Exclusive: vfs.Exclusive, proto.Exclusive41: vfs.Exclusive,
}

func (c *compound) findOrCreate(a *openArgs) (f vfs.File, attr vfs.Attr, change vfs.ChangeInfo, set bitmap, st proto.Status) {
	switch {
	case a.nameSt != proto.OK:
		return f, attr, change, set, a.nameSt
	case a.attrs.status != proto.OK:
		return f, attr, change, set, a.attrs.status
	case a.attrs.set.Mask&cluster.SetSize != 0 && c.p.state.AnyDenied():
		// A file that is there would be truncated before its open is refused.
		old, _, err := c.fs.Lookup(&c.req, c.cur, a.name)
		if err == nil && c.p.state.Denied(old, a.access) {
			return f, attr, change, set, proto.ErrShareDenied
		}
	}
	made, err := c.fs.Create(&c.req, c.cur, a.name, vfs.CreateArgs{
		Type: cluster.TypeRegular, How: createHow[a.mode], Verifier: c.exclusive(a), Attr: a.attrs.set,
	})
	if err != nil {
		return f, attr, change, set, status(err)
	}
	if st = openable(made.Attr.Type); st == proto.OK && !made.Created {
		st = c.mayAccess(made.File, a.access)
	}
	return made.File, made.Attr, made.Dir, a.attrs.done(made.Set), st
}

// exclusive returns the verifier of an exclusive create as the file system
// keeps it: the client's own, made different from every other client's. Linux
// makes them of the time since boot and a process id, so those of two clients
// can be equal, and both would believe that they had made the file.
func (c *compound) exclusive(a *openArgs) uint64 {
	if createHow[a.mode] != vfs.Exclusive {
		return 0
	}
	d := c.p.digest(c.client.Owner, string(binary.BigEndian.AppendUint64(nil, a.verifier)))
	return binary.BigEndian.Uint64(d[:])
}

// hold records the open, here and in the file system, so that the file stays
// when its last name is removed.
func (c *compound) hold(a *openArgs, f vfs.File) (state.Stateid, proto.Status) {
	if err := c.fs.Open(&c.req, f); err != nil {
		return state.Stateid{}, status(err)
	}
	args := state.OpenArgs{Owner: a.owner, File: f, Access: a.access, Deny: a.deny}
	sid, fresh, st := c.p.state.Open(c.client, args)
	if st == proto.ErrShareDenied && c.p.expireLapsed(c.call.Context()) {
		sid, fresh, st = c.p.state.Open(c.client, args)
	}
	if st != proto.OK || !fresh {
		c.fs.Close(f) // not held, or held already
	}
	return sid, st
}

// noDelegation appends that there is none, and why, to a client that has said
// what it wants (RFC 8881 §18.16.3).
func (c *compound) noDelegation(wants uint32) {
	switch wants & proto.ShareAccessWantDelegMask {
	case proto.ShareAccessWantNoPreference:
		c.e.Uint32(proto.OpenDelegateNone)
	case proto.ShareAccessWantNoDeleg:
		c.e.Uint32(proto.OpenDelegateNoneExt)
		c.e.Uint32(proto.WNDNotWanted)
	case proto.ShareAccessWantCancel:
		c.e.Uint32(proto.OpenDelegateNoneExt)
		c.e.Uint32(proto.WNDCancelled)
	default:
		c.e.Uint32(proto.OpenDelegateNoneExt)
		c.e.Uint32(proto.WNDNotSuppFtype)
	}
}

// openDowngrade is OPEN_DOWNGRADE (RFC 8881 §18.18).
func (c *compound) openDowngrade() proto.Status {
	sid := c.stateid()
	c.d.Uint32() // seqid
	access := c.d.Uint32() & proto.ShareAccessBoth
	deny := c.d.Uint32()
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	sid, st := c.p.state.Downgrade(c.client, c.resolve(sid), c.cur, access, deny)
	if st != proto.OK {
		return st
	}
	c.setStateid(sid)
	sid.Encode(c.e)
	return proto.OK
}

// close is CLOSE (RFC 8881 §18.2). The stateid returned is one that is never valid.
func (c *compound) close() proto.Status {
	c.d.Uint32() // seqid
	sid := c.stateid()
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	held, st := c.p.state.Close(c.client, c.resolve(sid), c.cur)
	if st != proto.OK {
		return st
	}
	for _, l := range held {
		if err := c.fs.Unlock(&c.req, c.cur, l); err != nil {
			c.p.log.Warn("can't release a lock of a closed file", "client", c.client.Owner, "err", err)
		}
	}
	c.fs.Close(c.cur)
	c.setStateid(state.Invalid)
	state.Invalid.Encode(c.e)
	return proto.OK
}
