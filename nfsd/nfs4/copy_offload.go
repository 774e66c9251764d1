package nfs4

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
)

const (
	copyStep   = 4 << 20 // bytes of one step, between which a copy can be cancelled
	copyPause  = 200 * time.Millisecond
	tellPause  = time.Second // between attempts to tell a client
	copyStalls = 300         // attempts at one step, before the copy fails
	copyKeep   = 256 << 20   // bytes after which a copy is made durable
)

// offload has a COPY go on after its answer. OFFLOAD_DENIED: it is to be done before.
func (c *compound) offload(p *pair) (state.Stateid, proto.Status) {
	j := &copyJob{
		id:     c.p.state.NewOther(c.client, kindCopy, 0, nil, c.cur, c.newSalt()),
		client: c.client.ID, src: c.saved, dst: c.cur, srcOff: p.srcOff, dstOff: p.dstOff, n: p.n,
		uid: c.req.Cred().UID, gid: c.req.Cred().GID,
	}
	sid := state.Stateid{Seq: copySeq, Other: j.id}
	if !c.p.copies.reserve(j, c.replay) {
		if c.p.copies.has(j.id) {
			return sid, proto.OK // this very request was executed before a take-over
		}
		return sid, proto.ErrOffloadDenied
	}
	// The files stay while they are copied, whatever becomes of their names.
	if st := c.p.holdPair(&c.req, j); st != proto.OK {
		c.p.copies.remove(j)
		return sid, st
	}
	there, st := c.putJob(j)
	if st != proto.OK || !there {
		c.p.copies.remove(j)
		c.p.releasePair(j)
		return sid, st
	}
	c.p.startCopy(j)
	return sid, proto.OK
}

// startCopy starts a job whose files are held. If this front-end is stopping, whoever
// serves the client next does.
func (p *Program) startCopy(j *copyJob) {
	if !p.copies.start(j, p.runCopy) {
		p.copies.remove(j)
		p.releasePair(j)
	}
}

// putJob records a job with its destination. It reports false if it was recorded before
// a take-over, and is not any more: then it has ended, and the client was told, so that
// nothing must be copied again over what came later. OFFLOAD_DENIED: the request
// was executed before, and copied the data before its answer.
func (c *compound) putJob(j *copyJob) (bool, proto.Status) {
	err := c.fs.PutState(&c.req, j.dst, j.record())
	switch {
	case c.replay && errno(err) == cluster.EREPLAY:
		c.req.SetOp(c.index) // what follows is the first call of the operation
		return false, proto.ErrOffloadDenied
	case err != nil:
		return false, status(err)
	case c.replay:
		return c.recorded(j)
	}
	return true, proto.OK
}

// recorded reports whether a job is recorded with its destination.
func (c *compound) recorded(j *copyJob) (bool, proto.Status) {
	states, err := c.fs.States(&c.req, j.dst)
	if err != nil {
		return false, status(err)
	}
	return slices.ContainsFunc(states, func(s vfs.State) bool { return s.Other == j.id }), proto.OK
}

// holdPair holds the files of a job; releasePair lets them go.
func (p *Program) holdPair(r *vfs.Request, j *copyJob) proto.Status {
	if err := p.fs.Open(r, j.src); err != nil {
		return status(err)
	}
	if err := p.fs.Open(r, j.dst); err != nil {
		p.fs.Close(j.src)
		return status(err)
	}
	return proto.OK
}

func (p *Program) releasePair(j *copyJob) {
	p.fs.Close(j.src)
	p.fs.Close(j.dst)
}

// resumeCopies goes on with what an earlier front-end was copying for the clients.
func (p *Program) resumeCopies(ctx context.Context) {
	r := vfs.NewRequest(ctx, vfs.Cred{})
	for _, id := range p.state.LoadedClients() {
		var jobs []*copyJob
		err := p.fs.ClientStates(r, id, func(f vfs.File, s vfs.State) bool {
			if j, ok := recordedJob(f, &s); ok {
				jobs = append(jobs, j)
			}
			return true
		})
		if err != nil {
			p.log.Warn("can't look for copies that a client has asked an earlier front-end for", "client", id, "err", err)
			continue
		}
		for _, j := range jobs {
			if st := p.holdPair(r, j); st != proto.OK {
				// One of the files is gone: so the copy fails.
				j.end(st, 0)
				if p.copies.reserve(j, true) {
					p.copies.start(j, func(j *copyJob) { p.settleCopy(j, j.record()) })
				}
				continue
			}
			if p.copies.reserve(j, true) {
				p.startCopy(j)
			} else {
				p.releasePair(j) // its request has come again, and taken it on
			}
		}
	}
}

// runCopy copies, and tells the client.
func (p *Program) runCopy(j *copyJob) {
	defer p.releasePair(j)
	if ended, _, _ := j.result(); !ended {
		select {
		case p.copies.room <- struct{}{}:
		case <-j.ctx.Done():
			p.copies.remove(j)
			return
		}
		st, v, err := p.copyAll(j)
		<-p.copies.room
		if err != nil { // cancelled, or somebody else's business by now
			p.dropCopy(j, err)
			return
		}
		j.end(st, v)
	}
	p.settleCopy(j, j.record())
}

// dropCopy forgets a job that has ended because of err.
func (p *Program) dropCopy(j *copyJob, err error) {
	p.copies.remove(j)
	if err != errNobody {
		return // it is recorded for whoever serves the client, or who cancels it drops it
	}
	if err := p.fs.DropState(vfs.NewRequest(j.ctx, vfs.Cred{}), j.dst, j.id, false); err != nil {
		p.log.Warn("can't forget the copy of a client that is gone", "client", j.client, "err", err)
	}
}

var (
	errLost   = errors.New("nfs4: the identity is served elsewhere")
	errNobody = errors.New("nfs4: the client is gone")
)

// within does one step of a job as if it were a request of the client: a hand-over of
// the identity waits for it, and none is begun after one. The error is that the job
// ends here.
func (p *Program) within(j *copyJob, do func(r *vfs.Request) error) (error, error) {
	for {
		switch {
		case !p.door.enter(j.ctx):
			if err := j.ctx.Err(); err != nil {
				return nil, err
			}
			return nil, errLost
		case p.cfg.Valid == nil || p.cfg.Valid():
			defer p.door.leave()
			if p.state.Client(j.client) == nil {
				return nil, errNobody
			}
			r := vfs.NewRequest(j.ctx, vfs.Cred{UID: j.uid, GID: j.gid})
			r.Fresh()
			return do(r), nil
		}
		p.door.leave()
		if err := pause(j.ctx, recheck); err != nil {
			return nil, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// copyAll copies what a job is to copy. err: the job ends here.
func (p *Program) copyAll(j *copyJob) (st proto.Status, v vfs.Verifier, err error) {
	k := copier{fs: p.fs, src: j.src, dst: j.dst, sparse: true}
	kept := uint64(0) // the first bytes, that are durable
	for stalls := 0; ; {
		var n uint64
		done := j.done.Load()
		failed, err := p.within(j, func(r *vfs.Request) (err error) {
			if done == j.n || done-kept >= copyKeep {
				v, err = k.commit(r)
				return err
			}
			n, err = p.copyNext(r, &k, j, done)
			return err
		})
		switch {
		case err != nil:
			return 0, 0, err
		case failed == nil && done == j.n:
			return proto.OK, v, nil
		case failed == nil && done-kept >= copyKeep:
			kept, k.wrote = done, false
		case failed == nil && n == 0:
			// The source has become shorter: what is there is copied.
			j.n = done
		case failed == nil:
			j.done.Store(done + n)
			stalls = 0
		default:
			st := status(failed)
			if st != proto.ErrDelay && st != statusFenced || stalls >= copyStalls {
				return st, 0, nil
			}
			stalls++
			if k.wrote {
				j.done.Store(kept) // the rest may be lost
				k.wrote = false
			}
			if err := pause(j.ctx, copyPause); err != nil {
				return 0, 0, err
			}
		}
	}
}

// copyNext copies what follows the first done bytes of a job: up to copyStep of data, or
// all of a hole.
func (p *Program) copyNext(r *vfs.Request, k *copier, j *copyJob, done uint64) (uint64, error) {
	left := j.n - done
	from, to := j.srcOff+done, j.dstOff+done
	hole := left
	next, err := p.fs.Seek(r, j.src, from, vfs.SeekData)
	switch {
	case err == nil && next == from:
		return k.step(r, from, to, min(left, copyStep))
	case err == nil:
		hole = min(left, next-from)
	case errno(err) != cluster.ENXIO:
		return 0, err
	default: // a hole up to the end, or the end
		a, err := p.fs.Getattr(r, j.src)
		if err != nil {
			return 0, err
		}
		if hole = min(left, a.Size-min(a.Size, from)); hole == 0 {
			return 0, nil
		}
	}
	if err := p.fs.Deallocate(r, j.dst, to, hole); err != nil {
		return 0, err
	}
	return hole, p.fs.Allocate(r, j.dst, to, hole) // the file is that long
}

// settleCopy records how a job has ended, and then tells the client: whoever takes the
// client over does not copy again over what the client has written since.
func (p *Program) settleCopy(j *copyJob, record vfs.State) {
	for {
		failed, err := p.within(j, func(r *vfs.Request) error { return p.fs.PutState(r, j.dst, record) })
		switch {
		case err != nil:
			p.dropCopy(j, err)
			return
		case failed == nil || errno(failed) == cluster.ESTALE:
			p.dropCopy(j, p.tellCopied(j))
			return
		}
		if err := pause(j.ctx, copyPause); err != nil {
			p.dropCopy(j, err)
			return
		}
	}
}

// tellCopied tells the client how a copy has ended, until it has answered
// (CB_OFFLOAD). The error is errNobody if nobody needs the copy's stateid any more.
func (p *Program) tellCopied(j *copyJob) error {
	for {
		c := p.state.Client(j.client)
		switch {
		case p.Lost():
			return errLost
		case c == nil:
			return errNobody
		}
		if to := p.caller(c); to != nil {
			if _, err := to.Call(j.ctx, cbOffload(p.fs.AppendHandle(nil, j.dst), j)); err == nil {
				return errNobody
			}
		}
		if err := pause(j.ctx, tellPause); err != nil {
			return err
		}
	}
}

// cbOffload is CB_OFFLOAD (RFC 7862 §16.1).
func cbOffload(handle []byte, j *copyJob) callbackOp {
	return callbackOp{Op: proto.CBOffload, Args: func(e *xdr.Encoder) {
		_, st, v := j.result()
		e.Opaque(handle)
		state.Stateid{Seq: copySeq, Other: j.id}.Encode(e)
		e.Uint32(uint32(st))
		if st != proto.OK {
			e.Uint64(j.done.Load())
			return
		}
		e.Uint32(0) // no wr_callback_id
		e.Uint64(j.done.Load())
		e.Uint32(proto.FileSync)
		e.Uint64(uint64(v))
	}}
}

// copyOf takes the stateid of a copy into the current file.
func (c *compound) copyOf() (*copyJob, proto.Status) {
	sid := c.stateid()
	if c.d.Err() != nil {
		return nil, proto.ErrBadxdr
	}
	j := c.p.copies.find(c.client.ID, sid, c.cur)
	if j == nil {
		return nil, proto.ErrBadStateid
	}
	return j, proto.OK
}

// offloadStatus is OFFLOAD_STATUS (RFC 7862 §15.9).
func (c *compound) offloadStatus() proto.Status {
	j, st := c.copyOf()
	if st != proto.OK {
		return st
	}
	ended, st, _ := j.result()
	c.e.Uint64(j.done.Load())
	if !ended {
		c.e.Uint32(0)
		return proto.OK
	}
	c.e.Uint32(1)
	c.e.Uint32(uint32(st))
	return proto.OK
}

// offloadCancel is OFFLOAD_CANCEL (RFC 7862 §15.8): when it is answered, nothing is
// copied any more.
func (c *compound) offloadCancel() proto.Status {
	j, st := c.copyOf()
	if st != proto.OK {
		return st
	}
	j.cancel()
	select {
	case <-j.idle:
	case <-c.call.Context().Done():
		return proto.ErrDelay
	}
	c.plain()
	if err := c.fs.DropState(&c.req, j.dst, j.id, true); err != nil {
		return status(err)
	}
	return proto.OK
}
