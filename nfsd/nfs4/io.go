package nfs4

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/vfs"
)

// stateid takes a stateid4.
func (c *compound) stateid() state.Stateid { return state.DecodeStateid(c.d) }

// resolve replaces the special stateid that means the current one (RFC 8881
// §16.2.3.1.2). Its seqid is not compared: that of the request is 1, always.
func (c *compound) resolve(sid state.Stateid) state.Stateid {
	if c.minor > 0 && sid == state.Current && c.hasSid {
		sid = c.sid
		sid.Seq = 0
	}
	return sid
}

// setStateid makes sid the current stateid.
func (c *compound) setStateid(sid state.Stateid) { c.sid, c.hasSid = sid, true }

// checkIO says whether the stateid, or for a special one the user, has access to
// f's data: proto.ShareAccessRead or proto.ShareAccessWrite. What is to be written is
// delegated to nobody else then.
func (c *compound) checkIO(sid state.Stateid, f vfs.File, access uint32) proto.Status {
	st := c.checkRight(sid, f, access)
	if st == proto.OK && access == proto.ShareAccessWrite {
		return c.undelegate(f)
	}
	return st
}

func (c *compound) checkRight(sid state.Stateid, f vfs.File, access uint32) proto.Status {
	sid = c.resolve(sid)
	want := vfs.AccessRead
	if access == proto.ShareAccessWrite {
		want = vfs.AccessModify
	}
	if !sid.Special() {
		other, st := c.opened(sid, f, access)
		switch {
		case other:
			return c.permitted(f, want)
		case st != proto.ErrOpenmode || access != proto.ShareAccessRead:
			return st
		}
		// A client may have to read around what it writes (RFC 8881 §9.1.2):
		// it can, as far as the user can.
		if st := c.permitted(f, want); st != proto.OK {
			return proto.ErrOpenmode
		}
		return proto.OK
	}
	if err := c.fs.Denied(&c.req, f, vfs.StateID{}, want); err != nil {
		return denyStatus(err, proto.ErrLocked)
	}
	return c.permitted(f, want)
}

// opened says whether a stateid, not a special one, has access to f's data, and
// whether it is another user's.
func (c *compound) opened(sid state.Stateid, f vfs.File, access uint32) (other bool, st proto.Status) {
	if st := c.holder(sid); st != proto.OK {
		return false, st
	}
	uid := c.req.Cred().UID
	other, st = c.p.state.CheckIO(c.client, sid, f, access, uid)
	if c.learn(&st, sid, f) {
		other, st = c.p.state.CheckIO(c.client, sid, f, access, uid)
	}
	return other, c.settle(st)
}

// denyStatus is the status for an error of Denied: denied, if that is what it says.
func denyStatus(err error, denied proto.Status) proto.Status {
	if errno(err) == cluster.ELOCKED {
		return denied
	}
	return status(err)
}

// permitted says whether the user has a right on f.
func (c *compound) permitted(f vfs.File, want uint32) proto.Status {
	got, err := c.fs.Access(&c.req, f, want)
	switch {
	case err != nil:
		return status(err)
	case got&want != want:
		return proto.ErrAccess
	}
	return proto.OK
}

// copyBelow is the size, in bytes, from which on data goes out by reference.
const copyBelow = 1024

// read is READ (RFC 8881 §18.22).
func (c *compound) read() proto.Status {
	sid := c.stateid()
	off := c.d.Uint64()
	count := c.d.Uint32()
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	data, st := c.readData(sid, off, count, 8+3) // eof, length, padding
	if st != proto.OK {
		return st
	}
	c.e.Bool(data.EOF)
	c.e.Uint32(uint32(data.N))
	release := data.Release
	if data.N < copyBelow {
		for _, b := range data.Bufs {
			c.e.Raw(b)
		}
	} else {
		for _, b := range data.Bufs {
			c.e.Ref(b, release) // the first releases all: after the whole reply was sent
			release = nil
		}
	}
	if release != nil {
		release()
	}
	c.e.Pad(data.N)
	return proto.OK
}

// readData reads the current file: no more than count, MaxIO and what fits into the
// reply beside around bytes.
func (c *compound) readData(sid state.Stateid, off uint64, count uint32, around int) (vfs.Data, proto.Status) {
	if st := c.checkIO(sid, c.cur, proto.ShareAccessRead); st != proto.OK {
		return vfs.Data{}, st
	}
	n := min(int64(count), int64(c.p.cfg.MaxIO), int64(c.limit-c.e.Len()-around))
	if n < 0 {
		return vfs.Data{}, c.tooBig()
	}
	// No file reaches there, so that reading from there on finds the end.
	data, err := c.fs.Read(&c.req, c.cur, min(off, cluster.MaxFileSize), int(n))
	switch {
	case err == nil:
		return data, proto.OK
	case c.minor > 0 && errno(err) == cluster.EINVAL:
		return data, proto.ErrWrongType // neither file, directory nor symbolic link
	}
	return data, status(err)
}

// write is WRITE (RFC 8881 §18.32).
func (c *compound) write() proto.Status {
	sid := c.stateid()
	off := c.d.Uint64()
	how := c.d.Uint32()
	p := c.d.Opaque(c.d.Remaining())
	switch {
	case c.d.Err() != nil, how > proto.FileSync:
		return proto.ErrBadxdr
	case len(p) > c.p.cfg.MaxIO:
		return proto.ErrInval
	case off > cluster.MaxFileSize || uint64(len(p)) > cluster.MaxFileSize-off:
		return proto.ErrFbig
	}
	if st := c.checkIO(sid, c.cur, proto.ShareAccessWrite); st != proto.OK {
		return st
	}
	done, verifier, err := c.fs.Write(&c.req, c.cur, off, p, vfs.Stability(how))
	if err != nil {
		return status(err)
	}
	c.e.Uint32(uint32(len(p)))
	c.e.Uint32(uint32(done))
	c.e.Uint64(uint64(verifier))
	return proto.OK
}

// commit is COMMIT (RFC 8881 §18.3), of the whole file whatever the range.
func (c *compound) commit() proto.Status {
	c.d.Uint64()
	c.d.Uint32()
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	verifier, err := c.fs.Commit(&c.req, c.cur)
	if err != nil {
		return status(err)
	}
	c.e.Uint64(uint64(verifier))
	return proto.OK
}

// applyAttrs sets what SETATTR asks for.
func (c *compound) applyAttrs(sid state.Stateid, a *change) (bitmap, proto.Status) {
	switch {
	case c.d.Err() != nil:
		return bitmap{}, proto.ErrBadxdr
	case a.status != proto.OK:
		return bitmap{}, a.status
	}
	opened := false
	if a.set.Mask&cluster.SetSize != 0 {
		sid = c.resolve(sid)
		switch {
		case !sid.Special():
			other, st := c.opened(sid, c.cur, proto.ShareAccessWrite)
			if st != proto.OK {
				return bitmap{}, st
			}
			opened = !other
		default:
			if err := c.fs.Denied(&c.req, c.cur, vfs.StateID{}, vfs.AccessModify); err != nil {
				return bitmap{}, denyStatus(err, proto.ErrLocked)
			}
		}
	}
	if st := c.undelegate(c.cur); st != proto.OK {
		return bitmap{}, st
	}
	now, err := c.fs.Setattr(&c.req, c.cur, a.set, opened)
	if err != nil {
		return bitmap{}, status(err)
	}
	c.attr, c.attrOK = now, true
	return a.done(a.set.Mask), proto.OK
}
