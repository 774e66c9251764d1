package nfs4

import (
	"context"
	"sync"
	"time"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
)

const (
	// returnWait is how long an operation waits for delegations that are in its way
	// before its client is asked to try again.
	returnWait = 100 * time.Millisecond
	// maxRecalling is how many CB_RECALLs are under way.
	maxRecalling = 64
)

// undelegate has the delegations of f recalled that others than this request's client
// have, since f is about to be changed, and waits a little for them: nothing that a
// holder needs to return one is held meanwhile. DELAY: they have not been returned yet.
// A request that may have been executed before is not put off: it would come back as
// another one.
func (c *compound) undelegate(f vfs.File) proto.Status {
	if !c.p.state.Delegated() {
		return proto.OK
	}
	var over <-chan time.Time
	for {
		fresh, ended := c.p.state.Recall(f, c.client, c.p.cfg.Now())
		if fresh {
			c.p.recallSoon()
		}
		if ended == nil || c.replay {
			return proto.OK
		}
		if over == nil {
			over = time.After(returnWait)
		}
		select {
		case <-ended:
		case <-over:
			return proto.ErrDelay
		case <-c.call.Context().Done():
			return proto.ErrDelay
		}
	}
}

// undelegateName is undelegate of dir/name, if there is one.
func (c *compound) undelegateName(dir vfs.File, name string) proto.Status {
	if !c.p.state.Delegated() {
		return proto.OK
	}
	f, _, err := c.fs.Lookup(&c.req, dir, name)
	if err != nil {
		return proto.OK // whoever wants it is told
	}
	return c.undelegate(f)
}

// A changeWatcher is a watcher that has delegations recalled.
type changeWatcher struct{ watcher }

// Changed has the delegations of a file recalled: its holders have to look again.
func (w changeWatcher) Changed(f vfs.File) {
	if fresh, _ := w.p.state.Recall(f, nil, w.p.cfg.Now()); fresh {
		w.p.recallSoon()
	}
}

// recallSoon makes recallAll look.
func (p *Program) recallSoon() {
	select {
	case p.recalls <- struct{}{}:
	default:
	}
}

// recallAll tells clients of delegations that are recalled, and revokes those that are
// not returned, until ctx ends.
func (p *Program) recallAll(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	room := make(chan struct{}, maxRecalling)
	for {
		select {
		case <-p.recalls:
		case <-ctx.Done():
			return
		}
		if p.door.state.Load() != doorOpen {
			continue // whoever serves the identity next ends them all
		}
		tell, revoked := p.state.Recalls(p.cfg.Now())
		for _, f := range revoked {
			p.log.Warn("a client has not returned a delegation within the lease time; it was revoked", "file", f.Ino)
			p.fs.Close(f)
		}
		for _, d := range tell {
			room <- struct{}{} // each call ends
			calls.Go(func() {
				p.recall(ctx, d)
				<-room
				p.recallSoon() // there may be more to tell the client
			})
		}
	}
}

// recall tells a client that a delegation is recalled (CB_RECALL, RFC 8881 §20.2).
func (p *Program) recall(ctx context.Context, d *state.Delegation) {
	var st proto.Status
	err := errNoPath
	if to := p.caller(d.Client()); to != nil {
		st, err = to.Call(ctx, recallOp(d.Stateid(), p.fs.AppendHandle(nil, d.File())))
	}
	if err != nil || st != proto.OK {
		p.log.Debug("can't recall a delegation; trying again", "client", d.Client().Owner, "status", st, "err", err)
	}
	if p.state.Told(d, err == nil, st, p.cfg.Now()) {
		p.fs.Close(d.File())
	}
}

// recallOp is CB_RECALL.
func recallOp(sid state.Stateid, handle []byte) callbackOp {
	return callbackOp{Op: proto.CBRecall, Args: func(e *xdr.Encoder) {
		sid.Encode(e)
		e.Bool(false) // the file is not about to be truncated
		e.Opaque(handle)
	}}
}
