package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
)

// A floater is a floating address as this front-end sees it: it follows what
// the cluster says about it.
type floater struct {
	f      *frontEnd
	prefix netip.Prefix
	wake   chan struct{}

	mu     sync.Mutex
	latest registry.Identity  // as told last
	lapsed bool               // the kernel has dropped the address
	now    *served            // nil: not served here
	taking uint32             // the epoch that is being taken over
	abort  context.CancelFunc // ends that
}

// Timing.
const (
	retryFloating = 100 * time.Millisecond // after a take-over that failed
	passOnAfter   = 3 * time.Second        // of failing, the address is offered to another node
	tellConns     = 250 * time.Millisecond
)

// told takes what the cluster says of an identity. It does not wait for
// anything; from when it returns nothing is answered in the name of an epoch
// that has passed.
func (f *frontEnd) told(id registry.Identity) {
	if !id.Floating() {
		if own := f.own.Load(); own != nil && id.ID == own.id.ID && id.Epoch > own.id.Epoch {
			own.current.Store(false)
			f.restart("its own identity was given up in its absence")
		}
		return
	}
	f.mu.Lock()
	x := f.floaters[id.ID]
	if x == nil && !f.closing {
		x = &floater{f: f, prefix: id.Addr, wake: make(chan struct{}, 1)}
		f.floaters[id.ID] = x
		f.addressFault(true)
		f.wg.Go(x.run)
	}
	f.mu.Unlock()
	if x != nil {
		x.tell(id)
	}
}

func (x *floater) tell(id registry.Identity) {
	x.mu.Lock()
	x.latest = id
	if now := x.now; now != nil && now.id.Epoch != id.Epoch && now.current.CompareAndSwap(true, false) && !now.released.Load() {
		// By force: who did it has fenced this front-end's writers, or will.
		x.f.restart("address " + x.prefix.Addr().String() + " was taken over by node " + string(id.Node) + " in its absence")
	}
	if x.abort != nil && x.taking != id.Epoch {
		x.abort()
	}
	x.mu.Unlock()
	x.poke()
}

func (x *floater) poke() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// part names the address among a node's faults.
func (x *floater) part() string { return "floating address " + x.prefix.Addr().String() }

// run follows the identity until the front-end ends or the address is removed.
func (x *floater) run() {
	f := x.f
	conns := time.NewTicker(tellConns)
	defer conns.Stop()
	defer f.n.faults.set(x.part(), "")
	defer x.giveUp()
	f.server.RefuseAddress(x.prefix.Addr())
	var retry <-chan time.Time
	var failing time.Time
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-conns.C:
			if now := x.current(); now != nil {
				f.n.member.SetConns(now.id.ID, f.server.Clients(x.prefix.Addr()))
			}
			continue
		case <-x.wake:
		case <-retry:
		}
		retry = nil
		x.mu.Lock()
		id, now, lapsed := x.latest, x.now, x.lapsed
		x.lapsed = false
		x.mu.Unlock()
		mine := id.Node == cluster.NodeID(f.n.conf.Node.Name)
		if now != nil && (!mine || now.id.Epoch != id.Epoch) {
			x.giveUp()
			now = nil
		}
		var err error
		switch {
		case id.Retired && id.Node == "":
			f.forget(id.ID, x)
			return
		case mine && now == nil:
			err = x.takeOver(id)
		case mine && lapsed:
			err = x.putBack(id)
		}
		if err == nil || f.ctx.Err() != nil || errors.Is(err, cluster.EFENCED) {
			failing = time.Time{}
			f.n.faults.set(x.part(), "")
			continue
		}
		if failing.IsZero() {
			failing = time.Now()
		}
		if f.n.faults.set(x.part(), err.Error()) {
			f.n.log.Error("a floating address can't be served now; it will be tried again", "addr", x.prefix, "err", err)
		}
		var unable *unableError
		if errors.As(err, &unable) && time.Since(failing) > passOnAfter {
			failing = time.Time{}
			x.passOn(id)
		}
		if lapsed {
			x.mu.Lock()
			x.lapsed = true
			x.mu.Unlock()
		}
		retry = time.After(retryFloating)
	}
}

// current returns what is served, nil for nothing.
func (x *floater) current() *served {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.now
}

// takeOver serves the identity in its present epoch, and then puts the address
// on: a client must not find it without anybody who serves.
func (x *floater) takeOver(id registry.Identity) error {
	f := x.f
	if f.holder == nil {
		return &unableError{f.noHolder}
	}
	began := time.Now()
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	x.mu.Lock()
	if x.latest.Epoch != id.Epoch {
		x.mu.Unlock()
		return nil // told anew, and woken
	}
	x.taking, x.abort = id.Epoch, cancel
	x.mu.Unlock()
	s, err := f.open(ctx, id)
	x.mu.Lock()
	x.abort = nil
	passed := x.latest.Epoch != id.Epoch
	if err == nil {
		x.now = s
		if passed {
			s.current.Store(false)
		}
	}
	x.mu.Unlock()
	switch {
	case passed:
		x.giveUp()
		return nil // told anew, and woken
	case err != nil:
		return err
	}
	if err := f.server.ServeAddress(x.prefix.Addr(), s.program); err != nil {
		x.giveUp()
		return &unableError{err}
	}
	if err := x.putOn(id.ID); err != nil {
		x.giveUp()
		return err
	}
	f.n.log.Info("serving NFS on a floating address", "addr", x.prefix, "epoch", id.Epoch, "took", time.Since(began))
	return nil
}

// putOn puts the address on its interface, and tells everybody.
func (x *floater) putOn(id cluster.IdentityID) error {
	f := x.f
	if err := f.holder.Add(x.prefix); err != nil {
		return &unableError{err}
	}
	f.holder.Announce(x.prefix)
	f.holder.Tickle(netip.AddrPortFrom(x.prefix.Addr(), f.server.Port()), f.n.member.Conns(id))
	return nil
}

// putBack puts an address on again that the kernel has dropped because this
// node was not sure to have it, once that is sure again.
func (x *floater) putBack(id registry.Identity) error {
	f := x.f
	ctx, cancel := context.WithTimeout(f.ctx, time.Second)
	defer cancel()
	r, err := f.n.member.RegistryAt(ctx)
	if err != nil {
		return fmt.Errorf("the kernel has dropped it, and whether it is this node's still is not to be known now: %w", err)
	}
	if now, ok := r.Identity(id.ID); !ok || now.Epoch != id.Epoch {
		return nil // it will be told
	}
	return x.putOn(id.ID)
}

// giveUp takes the address off, closes its connections and drops its state: in
// this order, so that what closing them says does not reach the clients, who
// are another node's by now.
func (x *floater) giveUp() {
	x.mu.Lock()
	s := x.now
	x.now = nil
	x.mu.Unlock()
	if s == nil {
		return
	}
	s.current.Store(false)
	if err := x.f.holder.Remove(x.prefix); err != nil {
		x.f.n.log.Error("a floating address could not be taken off; the kernel drops it", "addr", x.prefix, "err", err)
	}
	x.f.server.RefuseAddress(x.prefix.Addr())
	s.abandon()
	x.f.n.log.Info("a floating address is not served here any more", "addr", x.prefix, "epoch", s.id.Epoch)
}

// An unableError says that this machine can't have the address: another may.
type unableError struct{ error }

// passOn offers the address, which this node can't serve, to another one, if it
// is this node's still.
func (x *floater) passOn(id registry.Identity) {
	ctx, cancel := context.WithTimeout(x.f.ctx, 5*time.Second)
	defer cancel()
	r, err := x.f.n.member.RegistryAt(ctx)
	if err != nil {
		return
	}
	if now, ok := r.Identity(id.ID); !ok || now.Epoch != id.Epoch {
		return
	}
	if err := x.f.n.member.Handover(ctx, id.ID, ""); err != nil {
		x.f.n.log.Warn("no other node takes a floating address that this one can't serve", "addr", x.prefix, "err", err)
	}
}

// forget ends a floater whose address was removed from the cluster.
func (f *frontEnd) forget(id cluster.IdentityID, x *floater) {
	f.server.ForgetAddress(x.prefix.Addr())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.floaters[id] == x {
		delete(f.floaters, id)
	}
}

// serving returns an identity that this front-end serves, nil if it does not.
func (f *frontEnd) serving(id cluster.IdentityID) *served {
	if own := f.own.Load(); own != nil && own.id.ID == id {
		return own
	}
	f.mu.Lock()
	x := f.floaters[id]
	f.mu.Unlock()
	if x == nil {
		return nil
	}
	return x.current()
}

// mayHold reports whether this node may keep a floating address on its
// interface.
func (f *frontEnd) mayHold(addr netip.Addr) bool {
	if !f.n.member.Valid() {
		return false
	}
	x := f.floaterOf(addr)
	if x == nil {
		return false
	}
	now := x.current()
	return now != nil && now.current.Load()
}

// hasLapsed is called when the kernel has dropped an address.
func (f *frontEnd) hasLapsed(p netip.Prefix) {
	if x := f.floaterOf(p.Addr()); x != nil {
		x.mu.Lock()
		x.lapsed = true
		x.mu.Unlock()
		x.poke()
	}
}

func (f *frontEnd) floaterOf(addr netip.Addr) *floater {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.floaters {
		if x.prefix.Addr() == addr {
			return x
		}
	}
	return nil
}

// floating returns the floating addresses that are served here.
func (f *frontEnd) floating() (all []*floater) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.floaters {
		if x.current() != nil {
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(a, b *floater) int { return a.prefix.Addr().Compare(b.prefix.Addr()) })
	return all
}

// handOver gives all floating addresses to other nodes, in order, and returns
// when they are off or ctx ends. One after the other, so that each goes to the
// node that has the fewest by then.
func (f *frontEnd) handOver(ctx context.Context) error {
	var faults []error
	given := map[*floater]*served{}
	for _, x := range f.floating() {
		now := x.current()
		if now == nil {
			continue
		}
		if err := f.n.member.Handover(ctx, now.id.ID, ""); err != nil {
			faults = append(faults, err)
			continue
		}
		given[x] = now
	}
	for x, was := range given {
		for x.current() == was && pause(ctx, 5*time.Millisecond) {
		}
	}
	return errors.Join(faults...)
}
