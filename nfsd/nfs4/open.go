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
	delegation          state.Stateid // of CLAIM_DELEGATE_CUR

	other    vfs.StateID // with what the open was recorded, if recorded
	recorded bool
}

// decodeOpen takes the arguments of OPEN (RFC 8881 §18.16.1). Its status is of
// what no OPEN can have; bad names and attributes are left in the arguments.
func (c *compound) decodeOpen(a *openArgs) proto.Status {
	c.d.Uint32() // seqid: sessions have replaced it
	access := c.d.Uint32()
	a.access, a.wants = access&proto.ShareAccessBoth, access&^proto.ShareAccessBoth
	a.deny = c.d.Uint32()
	if c.minor == 0 && a.wants != 0 {
		a.access = 0 // there are no wishes yet: it is none of the values that there are
	}
	c.d.Uint64() // the client id is the session's
	a.owner = c.d.Opaque(proto.OpaqueLimit)
	switch c.d.Uint32() {
	case proto.OpenNoCreate:
	case proto.OpenCreate:
		a.create = true
		if a.mode = c.d.Uint32(); c.minor == 0 && a.mode == proto.Exclusive41 {
			return proto.ErrBadxdr
		}
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
	if a.claim = c.d.Uint32(); c.minor == 0 && a.claim > proto.ClaimDelegatePrev {
		return proto.ErrBadxdr
	}
	switch a.claim {
	case proto.ClaimNull:
		a.name, a.nameSt = c.name()
	case proto.ClaimPrevious:
		c.d.Uint32() // the type of a delegation: those of before a take-over have ended
	case proto.ClaimFH:
	case proto.ClaimDelegateCur:
		a.delegation = c.stateid()
		a.name, a.nameSt = c.name()
	case proto.ClaimDelegCurFH:
		a.delegation = c.stateid()
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
	case c.minor == 0 && a.claim == proto.ClaimDelegateCur:
		return proto.ErrBadStateid // there are no delegations
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
	if a.claim == proto.ClaimPrevious && !c.p.state.MayReclaim(c.client, c.p.cfg.Now()) {
		return proto.ErrNoGrace
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
	flags := uint32(proto.OpenResultLocktypePosix | proto.OpenResultPreserveUnlinked)
	if c.mayNotify() {
		flags |= proto.OpenResultMayNotifyLock
	}
	c.e.Uint32(flags)
	encodeBitmap(c.e, set)
	c.delegate(&a, file, &attr)
	return proto.OK
}

// find finds or makes the file, and checks that the user may open it so.
func (c *compound) find(a *openArgs) (f vfs.File, attr vfs.Attr, change vfs.ChangeInfo, set bitmap, st proto.Status) {
	if a.create {
		return c.findOrCreate(a)
	}
	switch {
	case a.claim != proto.ClaimNull && a.claim != proto.ClaimDelegateCur:
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
	switch st = openable(attr.Type); {
	case st != proto.OK || a.claim == proto.ClaimPrevious:
		return f, attr, change, set, st
	case a.claim == proto.ClaimDelegateCur || a.claim == proto.ClaimDelegCurFH:
		other, st := c.p.state.Claim(c.client, c.resolve(a.delegation), f, a.access, c.req.Cred().UID)
		if other {
			st = c.mayAccess(f, a.access)
		}
		return f, attr, change, set, st
	}
	if st = c.mayAccess(f, a.access); st == proto.OK && a.disturbs() {
		st = c.undelegate(f)
	}
	return f, attr, change, set, st
}

// disturbs reports whether nobody else may have the file delegated.
func (a *openArgs) disturbs() bool {
	return a.access&proto.ShareAccessWrite != 0 || a.deny&proto.ShareDenyRead != 0 || a.attrs.set.Mask&cluster.SetSize != 0
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
	case a.attrs.set.Mask&cluster.SetSize != 0 && !mustRecord(a) && !c.replay:
		// A file that is there would be truncated although others deny writing: an open
		// for writing is refused together with that.
		if old, _, err := c.fs.Lookup(&c.req, c.cur, a.name); err == nil {
			if err := c.fs.Denied(&c.req, old, vfs.StateID{}, vfs.AccessModify); err != nil {
				return f, attr, change, set, denyStatus(err, proto.ErrShareDenied)
			}
		}
	}
	if a.disturbs() {
		if st := c.undelegateName(c.cur, a.name); st != proto.OK {
			return f, attr, change, set, st
		}
	}
	args := vfs.CreateArgs{
		Type: cluster.TypeRegular, How: createHow[a.mode], Verifier: c.exclusive(a), Attr: a.attrs.set,
	}
	if mustRecord(a) {
		a.other = c.p.state.NewOther(c.client, state.KindCreate, a.access, a.owner, vfs.File{}, c.newSalt())
		a.recorded = true
		args.Open = &vfs.State{
			Other: a.other, Kind: vfs.StateOpen, Client: c.client.ID,
			Access: uint8(a.access), Deny: uint8(a.deny), Owner: a.owner,
		}
	}
	made, err := c.fs.Create(&c.req, c.cur, a.name, args)
	if errno(err) == cluster.ESHARE {
		// Whether another try is worth it may look different now from when this
		// request was first executed: then it is.
		if c.yieldShares(a) || c.replay {
			made, err = c.fs.Create(&c.req, c.cur, a.name, args)
		}
	}
	if err != nil {
		return f, attr, change, set, status(err)
	}
	if st = openable(made.Attr.Type); st == proto.OK && !made.Created {
		st = c.mayAccess(made.File, a.access)
	}
	if st != proto.OK && a.recorded {
		c.dropState(made.File, a.other, a.deny != 0)
	}
	return made.File, made.Attr, made.Dir, a.attrs.done(made.Set), st
}

// mustRecord says whether an open has to outlive this front-end.
func mustRecord(a *openArgs) bool { return a.access&proto.ShareAccessWrite != 0 || a.deny != 0 }

// yieldShares has those expire who keep a file that is to be opened by name from
// being opened so, and whose leases have ended.
func (c *compound) yieldShares(a *openArgs) bool {
	f, _, err := c.fs.Lookup(&c.req, c.cur, a.name)
	return err == nil && c.yieldFile(f, a.access, a.deny)
}

// yieldFile is yieldShares of a file. It reports whether it is worth trying again.
func (c *compound) yieldFile(f vfs.File, access, deny uint32) bool {
	states, err := c.fs.States(&c.req, f)
	if err != nil {
		return false
	}
	some := false
	for i := range states {
		s := &states[i]
		if s.Kind == vfs.StateOpen && s.Client != c.client.ID &&
			(access&uint32(s.Deny) != 0 || deny&uint32(s.Access) != 0) {
			some = c.yield(s.Client) || some
		}
	}
	return some
}

// dropState deletes what is recorded of a state; who is told so has nothing to do
// about a failure, and its client's end deletes it, too.
func (c *compound) dropState(f vfs.File, other vfs.StateID, wait bool) {
	c.plain()
	if err := c.fs.DropState(&c.req, f, other, wait); err != nil {
		c.p.log.Warn("can't delete an open that was refused or closed", "client", c.client.Owner, "err", err)
	}
}

// exclusive returns the verifier of an exclusive create as the file system
// keeps it: the client's own, made different from every other client's. Linux
// makes them of the time since boot and a process id, so those of two clients
// can be equal, and both would believe that they had made the file.
func (c *compound) exclusive(a *openArgs) uint64 {
	if createHow[a.mode] != vfs.Exclusive {
		return 0
	}
	d := c.p.digest(c.client.LockName(), string(binary.BigEndian.AppendUint64(nil, a.verifier)))
	return binary.BigEndian.Uint64(d[:])
}

// hold records the open, here, in the file system so that the file stays when its
// last name is removed, and with the file if it has to outlive this front-end.
func (c *compound) hold(a *openArgs, f vfs.File) (state.Stateid, proto.Status) {
	mu := c.p.fileLock(c.client.ID, f)
	mu.Lock()
	defer mu.Unlock()
	if err := c.fs.Open(&c.req, f); err != nil {
		return state.Stateid{}, status(err)
	}
	args := state.OpenArgs{
		Owner: a.owner, File: f, Access: a.access, Deny: a.deny, UID: c.req.Cred().UID, Other: a.other, Recorded: a.recorded,
		Reclaim: a.claim == proto.ClaimPrevious, Repeated: c.replay,
	}
	o, st := c.holdAs(&args, a.claim == proto.ClaimPrevious)
	if st != proto.OK || !o.Fresh {
		c.fs.Close(f) // not held, or held already
	}
	if st != proto.OK && args.Recorded {
		c.dropState(f, args.Other, a.deny != 0)
	}
	for _, id := range o.Drop {
		c.dropState(f, id, false)
	}
	return o.Stateid, st
}

func (c *compound) holdAs(a *state.OpenArgs, reclaim bool) (o state.Opened, st proto.Status) {
	m := c.p.state
	if c.client.Loaded() && !m.HasOpen(c.client, a.Owner, a.File) {
		if st := c.lesson(a.File, state.Stateid{}); st != proto.OK {
			return o, st
		}
	}
	if reclaim && !m.Reclaimable(c.client, a) {
		return o, proto.ErrNoGrace // nothing was lost: what it does not hold, others may
	}
	if !a.Recorded {
		a.Other = m.NewOther(c.client, state.KindOpen, a.Access, a.Owner, a.File, c.newSalt())
	}
	for try := 0; ; try++ {
		o, st = c.tryHold(a)
		if st != proto.ErrShareDenied || try > 0 {
			return o, st
		}
		gone := m.ExpireHolders(a.File, c.p.cfg.Now())
		c.p.expired(gone)
		c.p.release(c.call.Context(), gone)
		if !c.yieldFile(a.File, a.Access, a.Deny) && len(gone) == 0 {
			return o, st
		}
	}
}

func (c *compound) tryHold(a *state.OpenArgs) (o state.Opened, st proto.Status) {
	m := c.p.state
	record, needed, st := m.PlanOpen(c.client, a)
	if st != proto.OK {
		return o, st
	}
	if !needed && !a.Recorded {
		// Nobody else is asked, so it is looked at what others deny.
		var want uint32
		if a.Access&proto.ShareAccessRead != 0 {
			want = vfs.AccessRead
		}
		if a.Access&proto.ShareAccessWrite != 0 {
			want |= vfs.AccessModify
		}
		if err := c.fs.Denied(&c.req, a.File, record.Other, want); err != nil {
			return o, denyStatus(err, proto.ErrShareDenied)
		}
	}
	if needed {
		c.plain()
		if err := c.fs.PutState(&c.req, a.File, record); err != nil {
			return o, status(err)
		}
	}
	o, st = m.Open(c.client, a, needed)
	if st != proto.OK && needed {
		c.undo(a, record)
	}
	return o, st
}

// undo takes back what was recorded for an OPEN that was refused after that.
func (c *compound) undo(a *state.OpenArgs, record vfs.State) {
	had, ok := c.p.state.Undo(c.client, a.Owner, a.File, record)
	if !ok {
		c.dropState(a.File, record.Other, record.Deny != 0)
		return
	}
	c.plain()
	if err := c.fs.PutState(&c.req, a.File, had); err != nil {
		c.p.log.Warn("an open has more recorded than it was granted, until it is closed", "client", c.client.Owner, "err", err)
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
	if st := c.holder(sid); st != proto.OK {
		return st
	}
	sid = c.resolve(sid)
	mu := c.p.fileLock(c.client.ID, c.cur)
	mu.Lock()
	defer mu.Unlock()
	ch, st := c.p.state.PlanDowngrade(c.client, sid, c.cur, access, deny)
	if c.learn(&st, sid, c.cur) {
		ch, st = c.p.state.PlanDowngrade(c.client, sid, c.cur, access, deny)
	}
	if st != proto.OK {
		return c.settle(st)
	}
	if ch.Regain && c.permitted(c.cur, vfs.AccessRead) != proto.OK {
		return proto.ErrInval
	}
	if st := c.apply(&ch); st != proto.OK {
		return st
	}
	sid, st = c.p.state.Downgrade(c.client, sid, c.cur, access, deny, ch.Put != nil)
	if st != proto.OK {
		return c.settle(st)
	}
	c.setStateid(sid)
	sid.Encode(c.e)
	return proto.OK
}

// apply does to the file system what a change of an open of the current file asks for.
func (c *compound) apply(ch *state.Change) proto.Status {
	c.plain()
	for _, l := range ch.Unlock {
		if err := c.fs.Unlock(&c.req, c.cur, l); err != nil {
			return status(err)
		}
	}
	if ch.Put != nil {
		if err := c.fs.PutState(&c.req, c.cur, *ch.Put); err != nil {
			return status(err)
		}
	}
	for _, id := range ch.Drop {
		if err := c.fs.DropState(&c.req, c.cur, id, ch.Wait); err != nil {
			return status(err)
		}
	}
	return proto.OK
}

// close is CLOSE (RFC 8881 §18.2). The stateid returned is one that is never valid.
func (c *compound) close() proto.Status {
	c.d.Uint32() // seqid
	sid := c.stateid()
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	if st := c.holder(sid); st != proto.OK {
		return st
	}
	sid = c.resolve(sid)
	mu := c.p.fileLock(c.client.ID, c.cur)
	mu.Lock()
	defer mu.Unlock()
	ch, st := c.p.state.PlanClose(c.client, sid, c.cur)
	if c.learn(&st, sid, c.cur) {
		ch, st = c.p.state.PlanClose(c.client, sid, c.cur)
	}
	switch {
	case st == proto.OK:
		if st := c.apply(&ch); st != proto.OK {
			return st
		}
		if st := c.p.state.Close(c.client, sid, c.cur); st != proto.OK {
			return c.settle(st)
		}
		c.fs.Close(c.cur)
	case (st == state.Unknown || st == proto.ErrStale) && c.replay && c.p.state.Genuine(c.client, sid, c.cur):
		// This very request has closed it, and was not answered; a file without
		// names is gone with that.
	default:
		return c.settle(st)
	}
	c.setStateid(state.Invalid)
	state.Invalid.Encode(c.e)
	return proto.OK
}
