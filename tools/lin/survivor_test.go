package lin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
)

// answerWithin is how long a survivor waits for an answer, which must come.
const answerWithin = time.Minute

// A survivor is a client of a floating address. It repeats each request, in the
// same slot with the same number, at whoever has the address, until it is
// answered, so that the outcome of everything it does is known.
type survivor struct {
	t    *testing.T
	id   int
	addr string
	opt  client.Options
	rng  *rand.Rand
	rec  *Recorder
	c    *client.Client

	done, longest *atomic.Int64 // longest: ns that an operation has taken
	// forgetful has it send what is not answered at once anew, as a new
	// request: that breaks the rule that it is executed once.
	forgetful bool

	work     job
	sessions uint64
}

// A job is what a survivor does.
type job interface {
	begin(ctx context.Context, s *survivor) error
	step(s *survivor)
}

// run works until stop is closed. Now and then it loses its connection.
func (s *survivor) run(stop <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	s.opt.Slots, s.opt.NoRetry, s.opt.Dial = 2, true, func(ctx context.Context, addr string) (net.Conn, error) {
		d := net.Dialer{Timeout: 700 * time.Millisecond}
		return d.DialContext(ctx, "tcp", addr)
	}
	var err error
	for {
		if s.c, err = client.Dial(ctx, s.addr, s.opt); err == nil || !errors.Is(err, proto.ErrDelay) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err == nil {
		_, s.sessions, _ = s.c.Stats()
		err = s.work.begin(ctx, s)
	}
	if err != nil {
		s.t.Errorf("client %d: %v", s.id, err)
		return
	}
	var drops sync.WaitGroup
	ended := make(chan struct{})
	defer func() {
		close(ended)
		drops.Wait()
		_ = s.c.Abort()
	}()
	seed := s.rng.Uint64()
	drops.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 0))
		for {
			select {
			case <-ended:
				return
			case <-time.After(time.Duration(rng.Int64N(int64(2 * time.Second)))):
				s.c.Drop(0)
			}
		}
	})
	for !s.t.Failed() {
		select {
		case <-stop:
			return
		default:
		}
		s.work.step(s)
		time.Sleep(time.Duration(s.rng.Int64N(int64(4 * time.Millisecond))))
	}
}

// errIgnore is returned for an operation that has done nothing and says nothing.
var errIgnore = errors.New("nothing")

// do does an operation and records it. op returns the output; an error of its
// own is a fault, but for DELAY.
func (s *survivor) do(input any, op func(ctx context.Context) (any, error)) (output any, ok bool) {
	call := s.rec.Now()
	if s.forgetful {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(s.rng.Int64N(int64(3*time.Millisecond))))
		output, err := op(ctx)
		cancel()
		if _, known := status(err); known && err == nil {
			s.rec.Done(s.id, call, input, output)
			return output, true
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	output, err := op(ctx)
	switch {
	case errors.Is(err, errIgnore):
		return nil, false
	case errors.Is(err, proto.ErrDelay):
		time.Sleep(5 * time.Millisecond)
		return nil, false
	case err != nil:
		s.t.Errorf("client %d of %s: %+v: %v", s.id, s.addr, input, err)
		return nil, false
	}
	s.rec.Done(s.id, call, input, output)
	s.done.Add(1)
	if took := s.rec.Now() - call; took > s.longest.Load() {
		s.longest.Store(took)
	}
	if _, n, _ := s.c.Stats(); n != s.sessions {
		s.t.Errorf("client %d of %s: its session was lost", s.id, s.addr)
	}
	return output, true
}

// outcome makes the output of an operation that may be refused with a status.
func outcome(err error, refused ...proto.Status) (bool, error) {
	for _, r := range refused {
		if errors.Is(err, r) {
			return false, nil
		}
	}
	return err == nil, err
}

// A treeWorker works on names.
type treeWorker struct {
	tree  int
	dirs  []client.FH
	known []knownFile // of late
}

type knownFile struct {
	token Token
	fh    client.FH
}

func (w *treeWorker) begin(context.Context, *survivor) error { return nil }

func (w *treeWorker) know(t Token, fh client.FH) {
	if w.known = append(w.known, knownFile{t, slices.Clone(fh)}); len(w.known) > 4 {
		w.known = w.known[1:]
	}
}

func (w *treeWorker) step(s *survivor) {
	spot := func() Spot { return Spot{s.rng.IntN(TreeDirs), s.rng.IntN(TreeNames)} }
	text := func(p Spot) string { return fmt.Sprint("name", p.Name) }
	op := Step{Tree: w.tree, Op: []string{Create, Create, Lookup, Lookup, Remove, Rename, Link}[s.rng.IntN(7)], At: spot(), To: spot()}
	if op.Op != Rename && op.Op != Link {
		op.To = Spot{}
	}
	dir, to := w.dirs[op.At.Dir], w.dirs[op.To.Dir]
	switch op.Op {
	case Create:
		how := &client.OpenHow{Access: proto.ShareAccessBoth, Create: true, Mode: proto.Guarded}
		if s.rng.IntN(2) == 0 && !s.forgetful { // the same verifier again would succeed again
			how.Mode, how.Verifier = proto.Exclusive41, s.rng.Uint64()
		}
		var f *client.File
		_, ok := s.do(op, func(ctx context.Context) (any, error) {
			var a client.Attrs
			var err error
			if f, a, err = s.c.Open(ctx, dir, text(op.At), how); err == nil {
				w.know(Token(a.Fileid), f.FH())
			}
			ok, err := outcome(err, proto.ErrExist)
			return Found{ok, Token(a.Fileid)}, err
		})
		if ok && f != nil {
			ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
			defer cancel()
			err := f.Close(ctx)
			for errors.Is(err, proto.ErrDelay) {
				time.Sleep(5 * time.Millisecond)
				err = f.Close(ctx)
			}
			if err != nil {
				s.t.Errorf("client %d of %s: close: %v", s.id, s.addr, err)
			}
		}
	case Lookup:
		s.do(op, func(ctx context.Context) (any, error) {
			fh, a, err := s.c.Lookup(ctx, dir, text(op.At))
			if errors.Is(err, proto.ErrStale) {
				return nil, errIgnore // removed before it was looked at
			}
			if err == nil {
				w.know(Token(a.Fileid), fh)
			}
			ok, err := outcome(err, proto.ErrNoent)
			return Found{ok, Token(a.Fileid)}, err
		})
	case Remove:
		s.do(op, func(ctx context.Context) (any, error) {
			_, err := s.c.Remove(ctx, dir, text(op.At))
			ok, err := outcome(err, proto.ErrNoent)
			return Found{OK: ok}, err
		})
	case Rename:
		s.do(op, func(ctx context.Context) (any, error) {
			_, _, err := s.c.Rename(ctx, dir, text(op.At), to, text(op.To))
			ok, err := outcome(err, proto.ErrNoent)
			return Found{OK: ok}, err
		})
	case Link:
		if len(w.known) == 0 {
			return
		}
		f := w.known[s.rng.IntN(len(w.known))]
		op.File, op.At = f.token, Spot{}
		s.do(op, func(ctx context.Context) (any, error) {
			_, err := s.c.Link(ctx, f.fh, to, text(op.To))
			if errors.Is(err, proto.ErrStale) || errors.Is(err, proto.ErrNoent) {
				return Gone{}, nil
			}
			ok, err := outcome(err, proto.ErrExist)
			return Found{OK: ok}, err
		})
	}
}

// A shareWorker is an owner that opens files with deny modes.
type shareWorker struct {
	owner int
	files []client.FH
	opens [files]shareOpen
}

// A shareOpen is what a shareWorker has open: first says how it was opened
// before it was upgraded.
type shareOpen struct {
	open         bool
	state        client.Stateid
	access, deny uint8
}

func (w *shareWorker) begin(context.Context, *survivor) error { return nil }

func (w *shareWorker) step(s *survivor) {
	i := s.rng.IntN(len(w.files))
	o := &w.opens[i]
	op := Share{File: i, Owner: w.owner, Op: []string{Open, Open, Downgrade, Close, Close, Peek}[s.rng.IntN(6)]}
	if !o.open && op.Op != Peek {
		op.Op = Open
	}
	put := client.NewCompound().PutFH(w.files[i])
	switch op.Op {
	case Open:
		op.Access, op.Deny = uint8(1+s.rng.IntN(3)), uint8(s.rng.IntN(4))
		switch {
		case op.Access == Read:
			op.Deny |= Write // else it would be nobody's business but its front-end's
		case s.rng.IntN(2) == 0:
			op.Deny = 0
		}
		how := &client.OpenHow{
			Access: uint32(op.Access), Deny: uint32(op.Deny), Claim: proto.ClaimFH, Owner: fmt.Append(nil, "owner", w.owner),
		}
		if ok, _ := s.simple(op, put.Open(s.c.ID(), "", how), &o.state, proto.ErrShareDenied, proto.OpPutfh, proto.OpOpen); ok && !o.open {
			o.open, o.access, o.deny = true, op.Access, op.Deny
		}
	case Downgrade:
		op.Access, op.Deny = o.access, o.deny
		e := put.Cached(true).Op(proto.OpOpenDowngrade)
		e.Uint32(o.state.Seqid)
		e.FixedOpaque(o.state.Other[:])
		e.Uint32(0)
		e.Uint32(uint32(op.Access))
		e.Uint32(uint32(op.Deny))
		s.simple(op, put, nil, 0, proto.OpPutfh, proto.OpOpenDowngrade)
	case Close:
		if _, known := s.simple(op, put.Close(o.state), nil, 0, proto.OpPutfh, proto.OpClose); known {
			o.open = false
		}
	case Peek:
		op.Access = Read
		s.simple(op, put.Read(client.Stateid{}, 0, 1), nil, proto.ErrLocked, proto.OpPutfh, proto.OpRead)
	}
}

// simple sends a compound whose outcome is whether it is refused with a
// status, and takes a stateid from its last result, without its number, so
// that it stands for the latest.
func (s *survivor) simple(input any, ops *client.Compound, state *client.Stateid, refused proto.Status, done ...proto.Op) (ok, known bool) {
	out, known := s.do(input, func(ctx context.Context) (any, error) {
		r, err := s.c.Do(ctx, ops)
		if err != nil {
			return nil, err
		}
		defer r.Release()
		d, err := r.OK(done...)
		if err == nil && state != nil {
			d.Uint32()
			copy(state.Other[:], d.FixedOpaque(proto.OtherSize))
		}
		if refused == 0 {
			return err == nil, err
		}
		return refusable(err, refused)
	})
	return known && out.(bool), known
}

func refusable(err error, refused proto.Status) (any, error) {
	ok, err := outcome(err, refused)
	return ok, err
}

// A lockWorker is two lock owners of one client.
type lockWorker struct {
	first int // of its two owners
	fh    client.FH
	file  *client.File
	has   [2]bool // whether the server knows of the owner
}

func (w *lockWorker) begin(ctx context.Context, s *survivor) (err error) {
	for {
		w.file, _, err = s.c.OpenFH(ctx, w.fh, proto.ShareAccessBoth)
		if !errors.Is(err, proto.ErrDelay) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (w *lockWorker) step(s *survivor) {
	o := s.rng.IntN(2)
	from := s.rng.IntN(LockBytes)
	op := Range{
		Op: []string{Lock, Lock, Unlock, Unlock, Test}[s.rng.IntN(5)], Owner: w.first + o, Write: s.rng.IntN(2) == 0,
		From: from, To: from + 1 + s.rng.IntN(LockBytes-from),
	}
	if op.Op == Unlock && !w.has[o] {
		op.Op = Lock
	}
	owner := fmt.Sprint("owner", w.first+o)
	l := client.Range{Type: proto.ReadLt, Offset: uint64(op.From), Length: uint64(op.To - op.From)}
	if op.Write {
		l.Type = proto.WriteLt
	}
	s.do(op, func(ctx context.Context) (any, error) {
		switch op.Op {
		case Lock:
			err := w.file.Lock(ctx, owner, l)
			w.has[o] = w.has[o] || err == nil
			return refusable(err, proto.ErrDenied)
		case Unlock:
			err := w.file.Unlock(ctx, owner, l)
			return err == nil, err
		default:
			conflict, err := s.c.TestLock(ctx, w.fh, owner, l)
			return conflict == nil, err
		}
	})
}
