package client

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// A session is an NFSv4.1 session (RFC 8881 §2.10).
type session struct {
	id    [proto.SessionIDSize]byte
	slots chan *slot // those not in use
	n     int
	free  chan struct{} // closed when the session is of no more use
}

// A slot carries one request at a time.
type slot struct {
	id, seq uint32
	unsure  bool // whether the request with seq has been executed is not known
}

// acquire takes a slot. It reports false if the session has ended meanwhile.
func (s *session) acquire(ctx context.Context) (*slot, bool, error) {
	select {
	case sl := <-s.slots:
		return sl, true, nil
	case <-s.free:
		return nil, false, nil
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
}

// lost reports whether err means that the connection was lost or could not be
// made, so that the request can be repeated.
func lost(err error) bool {
	var ne net.Error
	return errors.Is(err, oncrpc.ErrClosed) || errors.As(err, &ne)
}

// ExchangeID sends EXCHANGE_ID and returns the client id and the sequence of
// the first CREATE_SESSION, and the flags of the reply.
func (c *Client) ExchangeID(ctx context.Context) (id uint64, sequence, flags uint32, err error) {
	ops := NewCompound()
	e := ops.Op(proto.OpExchangeID)
	e.Uint64(c.opt.Verifier)
	e.Opaque(c.opt.Owner)
	e.Uint32(proto.ExchgIDFlagSuppMovedRefer | proto.ExchgIDFlagBindPrincStateid)
	e.Uint32(proto.SP4None)
	e.Uint32(0)
	r, err := c.rawRetry(ctx, ops)
	if err != nil {
		return 0, 0, 0, err
	}
	defer r.Release()
	d, err := r.OK(proto.OpExchangeID)
	if err != nil {
		return 0, 0, 0, err
	}
	id, sequence, flags = d.Uint64(), d.Uint32(), d.Uint32()
	return id, sequence, flags, d.Err()
}

// createSession sends CREATE_SESSION.
func (c *Client) createSession(ctx context.Context, id clientID) (*session, error) {
	ops := NewCompound()
	e := ops.Op(proto.OpCreateSession)
	e.Uint64(id.id)
	e.Uint32(id.sequence)
	var flags uint32
	if c.opt.Callback != nil || c.opt.Callbacks {
		flags = proto.CreateSessionFlagConnBackChan
	}
	e.Uint32(flags)
	channel := func(size, cached, ops, slots int) {
		for _, v := range []int{0, size, size, cached, ops, slots, 0} {
			e.Uint32(uint32(v))
		}
	}
	channel(c.opt.MaxIO+ioOverhead, 8<<10, 64, c.opt.Slots)
	channel(4096, 0, 2, 16)
	e.Uint32(proto.CBProgram)
	e.Uint32(1)
	if c.opt.Callbacks {
		e.Uint32(uint32(oncrpc.AuthSysF))
		e.Uint32(0)
		e.Opaque(c.cred.Sys.Machine)
		e.Uint32(0)
		e.Uint32(0)
		e.Uint32(0)
	} else {
		e.Uint32(uint32(oncrpc.AuthNone))
	}
	r, err := c.rawRetry(ctx, ops)
	if err != nil {
		return nil, err
	}
	defer r.Release()
	d, err := r.OK(proto.OpCreateSession)
	if err != nil {
		return nil, err
	}
	s := &session{free: make(chan struct{})}
	copy(s.id[:], d.FixedOpaque(proto.SessionIDSize))
	d.Uint32() // sequence
	d.Uint32() // flags
	d.Skip(5 * 4)
	s.n = int(d.Uint32())
	if err := d.Err(); err != nil {
		return nil, err
	}
	if s.n < 1 || s.n > c.opt.Slots {
		return nil, fmt.Errorf("nfs: the server grants %d slots of the %d asked for", s.n, c.opt.Slots)
	}
	c.cb.open(s.id[:])
	s.slots = make(chan *slot, s.n)
	for i := range s.n {
		s.slots <- &slot{id: uint32(i), seq: 1}
	}
	c.stats.sessions.Add(1)
	return s, nil
}

// current returns the session.
func (c *Client) current() (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sess == nil {
		return nil, errors.New("nfs: the client has no session")
	}
	return c.sess, nil
}

// establish makes a session in place of old, which is nil at first: with the
// client id there is, if the server still knows it, and with a new one
// otherwise. In that case the server has lost our state, which is reclaimed.
func (c *Client) establish(ctx context.Context, old *session) error {
	c.state.Lock()
	defer c.state.Unlock()
	c.mu.Lock()
	id, now := c.id, c.sess
	c.mu.Unlock()
	if now != old {
		return nil // somebody else has done it
	}
	var s *session
	var err error
	fresh := false
	if old != nil {
		s, err = c.createSession(ctx, id)
	}
	if old == nil || errors.Is(err, proto.ErrStaleClientid) || errors.Is(err, proto.ErrSeqMisordered) {
		fresh = true
		if id.id, id.sequence, _, err = c.ExchangeID(ctx); err != nil {
			return err
		}
		s, err = c.createSession(ctx, id)
	}
	if err != nil {
		return err
	}
	id.sequence++
	c.mu.Lock()
	c.id = id
	c.mu.Unlock()
	if fresh {
		if old != nil {
			c.stats.reboots.Add(1)
			if err := c.reclaim(ctx, s); err != nil {
				return err
			}
		}
		done := NewCompound()
		done.Op(proto.OpReclaimComplete).Bool(false)
		r, err := c.doOn(ctx, s, done)
		if err != nil {
			return err
		}
		defer r.Release()
		if _, err := r.OK(proto.OpReclaimComplete); err != nil && !errors.Is(err, proto.ErrCompleteAlready) {
			return err
		}
	}
	c.mu.Lock()
	c.sess = s
	c.mu.Unlock()
	if old != nil {
		close(old.free)
	}
	return nil
}

// errNewSession: the session is of no more use.
var errNewSession = errors.New("nfs: the session has ended")

// Do sends a compound in the session and returns its results, which may be
// those of a failed operation. It repeats the request, as the protocol allows,
// until it has been executed once or ctx ends; and, unless NoRetry is set, when
// an operation was answered DELAY or GRACE, as a user would.
func (c *Client) Do(ctx context.Context, ops *Compound) (*Results, error) {
	if c.opt.V40 {
		return c.do40(ctx, ops)
	}
	for b := (backoff{}); ; {
		s, err := c.current()
		if err != nil {
			return nil, err
		}
		r, err := c.doOn(ctx, s, ops)
		if errors.Is(err, errNewSession) {
			c.stats.retries.Add(1)
			if err := c.establish(ctx, s); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil || c.opt.NoRetry || r.Status != proto.ErrDelay && r.Status != proto.ErrGrace {
			return r, err
		}
		r.Release()
		c.stats.retries.Add(1)
		if err := b.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// doOn sends a compound in session s.
func (c *Client) doOn(ctx context.Context, s *session, ops *Compound) (*Results, error) {
	sl, ok, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errNewSession
	}
	defer func() { s.slots <- sl }()
	if sl.unsure {
		// The request that was given up may come to the server yet or have
		// been executed: a lone SEQUENCE with its number settles that.
		r, err := c.sequence(ctx, s, sl, NewCompound())
		if err != nil {
			return nil, err
		}
		r.Release()
	}
	return c.sequence(ctx, s, sl, ops)
}

// sequence sends a compound on a slot until it is known to have been executed.
func (c *Client) sequence(ctx context.Context, s *session, sl *slot, ops *Compound) (*Results, error) {
	probe := sl.unsure && ops.n == 0
	encode := func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpSequence))
		e.FixedOpaque(s.id[:])
		e.Uint32(sl.seq)
		e.Uint32(sl.id)
		e.Uint32(uint32(s.n - 1))
		e.Bool(ops.cache)
	}
	at := int(sl.id) % len(c.conns)
	again := false // it has been sent before
	for b := (backoff{}); ; c.stats.retries.Add(1) {
		r, err := c.send(ctx, at, c.opt.Minor, ops, encode)
		if err != nil {
			if !lost(err) || ctx.Err() != nil {
				sl.unsure = true
				return nil, err
			}
			again = true
			if werr := b.wait(ctx); werr != nil {
				sl.unsure = true
				return nil, fmt.Errorf("%w (last: %w)", werr, err)
			}
			continue
		}
		d, status, err := r.Next(proto.OpSequence)
		if err != nil {
			r.Release()
			sl.unsure = true
			return nil, err
		}
		if status == proto.OK {
			flags, err := c.checkSequence(d, s, sl)
			sl.seq++
			sl.unsure = false
			if err != nil {
				r.Release()
				return nil, err
			}
			if flags&(proto.Seq4StatusCBPathDown|proto.Seq4StatusCBPathDownSession) != 0 {
				c.rebind(ctx, s, at)
			}
			r.N--
			r.taken--
			return r, nil
		}
		if probe && (status == proto.ErrRetryUncachedRep || status == proto.ErrSeqFalseRetry) {
			sl.seq++
			sl.unsure = false
			return r, nil
		}
		r.Release()
		switch status {
		case proto.ErrBadsession, proto.ErrDeadsession, proto.ErrBadslot, proto.ErrStaleClientid:
			return nil, errNewSession
		case proto.ErrRetryUncachedRep, proto.ErrSeqFalseRetry:
			sl.seq++ // it was executed, and its reply is lost: what is not cached may be done again
			again = false
		case proto.ErrConnNotBoundToSession:
			if err := c.bind(ctx, s, at); err != nil {
				return nil, err
			}
		case proto.ErrDelay:
			if c.opt.NoRetry && !again {
				return nil, &OpError{Op: proto.OpSequence, Status: status}
			}
			// If it was sent before, it is that which is being executed.
			if err := b.wait(ctx); err != nil {
				sl.unsure = again
				return nil, err
			}
		default:
			return nil, &OpError{Op: proto.OpSequence, Status: status}
		}
	}
}

// checkSequence checks that SEQUENCE's result is that of the request, as the
// Linux client does, and returns the status flags.
func (c *Client) checkSequence(d *xdr.Decoder, s *session, sl *slot) (flags uint32, err error) {
	id := d.FixedOpaque(proto.SessionIDSize)
	seq, slot := d.Uint32(), d.Uint32()
	d.Uint32() // highest slot
	d.Uint32() // target highest slot
	flags = d.Uint32()
	if err := d.Err(); err != nil {
		return 0, err
	}
	if string(id) != string(s.id[:]) || seq != sl.seq || slot != sl.id {
		return 0, fmt.Errorf("nfs: the reply on slot %d, sequence %d, is for slot %d, sequence %d", sl.id, sl.seq, slot, seq)
	}
	return flags, nil
}

// rebind binds connection i to the session, as the server has no path for callbacks. If
// that fails, the next reply says so again.
func (c *Client) rebind(ctx context.Context, s *session, i int) {
	if c.opt.Callbacks && c.binding.CompareAndSwap(false, true) {
		_ = c.bind(ctx, s, i)
		c.binding.Store(false)
	}
}

// bind binds connection i to the session.
func (c *Client) bind(ctx context.Context, s *session, i int) error {
	ops := NewCompound()
	e := ops.Op(proto.OpBindConnToSession)
	e.FixedOpaque(s.id[:])
	e.Uint32(proto.CDFCForeOrBoth)
	e.Bool(false)
	r, err := c.Raw(ctx, i, c.opt.Minor, ops)
	if err != nil {
		return err
	}
	defer r.Release()
	_, err = r.OK(proto.OpBindConnToSession)
	return err
}
