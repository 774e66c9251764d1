package vfs

import (
	"errors"
	"slices"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
)

// A call is a mutating call of a request, in one volume. Its commands carry
// its origin, so that each is executed once, whatever front-ends send it.
type call struct {
	m      *mount
	r      *Request
	origin fsm.Origin // of the next command; zero: none
	replay bool       // it may have been executed
}

// begin begins a mutating call. It comes before anything that could differ
// when the call is repeated, for calls are told apart by their number.
func (s *System) begin(r *Request, f File) (call, error) {
	n := r.NextCall()
	m, err := s.mount(f)
	c := call{m: m, r: r, origin: fsm.Origin{
		Session: n.Session, Slot: n.Slot, Seq: n.Seq, Sum: n.Sum, Op: n.Op, Sub: n.Number, Ordered: n.Ordered,
	}}
	c.replay = n.Replay && !c.origin.IsZero()
	return c, err
}

// stored returns what the call's last command has left, if the call was
// executed before, in whole or in part. It does not depend on anything but the
// origin: what the command was about may be gone.
func (c *call) stored() (s fsm.StoredResult, ok bool, err error) {
	if !c.replay {
		return s, false, nil
	}
	// What an earlier front-end did is below the index: it was fenced before
	// this one began to serve its clients.
	if err := c.m.strict(c.r); err != nil {
		return s, false, err
	}
	s, ok = fsm.LoadResult(c.m.View.Reader, &c.origin)
	return s, ok, nil
}

// executed returns the result of the call's last command, which is of a kind,
// if it was executed before; done says so, or that it can't be known (err). If
// only one of the steps before it was, which are of kind steps, the call goes
// on behind that.
func (c *call) executed(kind fsm.Kind, steps ...fsm.Kind) (body []byte, done bool, err error) {
	s, ok, err := c.stored()
	if err != nil || !ok {
		return nil, err != nil, err
	}
	body, err = fsm.SplitResult(s.Result)
	switch {
	case s.Kind == kind || s.Kind == 0 || err != nil && slices.Contains(steps, s.Kind):
		return body, true, err
	case slices.Contains(steps, s.Kind):
		c.origin.Step = s.Step + 1
		return nil, false, nil
	}
	return nil, true, cluster.EREPLAY // the request was another one
}

// resume is executed for a call of several steps. done: there are no more to
// make; res is what the last one left.
func (c *call) resume(kind fsm.Kind) (res volume.AttrResult, done bool, err error) {
	s, ok, err := c.stored()
	if err != nil || !ok {
		return res, err != nil, err
	}
	body, err := fsm.SplitResult(s.Result)
	switch {
	case err != nil:
		return res, true, err
	case s.Kind != kind:
		return res, true, cluster.EREPLAY
	}
	c.origin.Step = s.Step + 1
	res, err = volume.DecodeAttrResult(body)
	return res, err != nil || !res.More, err
}

// propose executes the call's next command. EAGAIN if it had no effect because
// this front-end was fenced: whoever asked may have gone elsewhere and have
// changed the same there meanwhile, so it is for him to ask again.
func (c *call) propose(b fsm.Body) ([]byte, error) {
	s, err := c.m.writer.Session(c.r.ctx)
	if err != nil {
		return nil, err
	}
	body, _, err := c.m.proposeFrom(s, c.r, &c.origin, b)
	if errors.Is(err, cluster.EFENCED) {
		err = cluster.EAGAIN
	}
	return body, err
}

// once executes the call's only command, unless it was executed before, and
// returns its result.
func (c *call) once(b fsm.Body) ([]byte, error) {
	if body, done, err := c.executed(b.Kind()); done {
		return body, err
	}
	return c.propose(b)
}

// remember keeps attributes that the call's command left behind: not those of
// a command that may have been executed long ago.
func (c *call) remember(a *Attr) {
	if !c.replay {
		c.r.remember(c.m.ID, a)
	}
}
