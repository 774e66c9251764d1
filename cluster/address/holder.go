package address

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

// A Config says how addresses are held. Zero fields mean the defaults.
type Config struct {
	Interface string // "": the one whose subnet contains the address

	// Lifetime is how long the kernel keeps an address that is not renewed, in
	// whole seconds (default 3 s), Renew how often it is renewed (default 1 s).
	Lifetime, Renew time.Duration

	// Valid says whether this node may still have the address. While it
	// reports false the address is not renewed. nil: always.
	Valid func(netip.Addr) bool
	// Lapsed is called when an address turns out to have been dropped by the
	// kernel: it is no longer held. It may be nil.
	Lapsed func(netip.Prefix)

	Logger *slog.Logger

	kernel kernel // for tests; nil: the real one
}

// A kernel is what a Holder asks of the operating system.
type kernel interface {
	links() ([]link, error)
	put(l link, p netip.Prefix, lifetime time.Duration) error // also renews
	remove(l link, p netip.Prefix) error
	send(l link, etherType uint16, to [6]byte, packet []byte) error // to neighbours
	sendIP(to netip.Addr, packet []byte) error
	close() error
}

// A Holder has floating addresses on this machine's interfaces.
type Holder struct {
	cfg    Config
	kernel kernel
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	held   map[netip.Addr]*holding
}

// A holding is an address that is held.
type holding struct {
	prefix  netip.Prefix // as asked for
	link    link
	as      netip.Prefix // as it was put
	renewed time.Time
}

// When announcements and tickles are sent, counted from the first. The later
// ones overrule what the old holder's kernel still answers, until it has
// dropped the address too.
var (
	announceAt = []time.Duration{0, 300 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}
	tickleAt   = []time.Duration{0, 300 * time.Millisecond, time.Second}
)

// maxTickled bounds how many client ends are tickled at a time.
const maxTickled = 65536

// New returns a Holder in the network namespace of the calling thread. It
// fails where the process may not change addresses.
func New(cfg Config) (*Holder, error) {
	if cfg.Lifetime == 0 {
		cfg.Lifetime = 3 * time.Second
	}
	if cfg.Renew == 0 {
		cfg.Renew = time.Second
	}
	if cfg.Valid == nil {
		cfg.Valid = func(netip.Addr) bool { return true }
	}
	if cfg.Lapsed == nil {
		cfg.Lapsed = func(netip.Prefix) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	k := cfg.kernel
	if k == nil {
		var err error
		if k, err = openKernel(); err != nil {
			return nil, err
		}
	}
	h := &Holder{cfg: cfg, kernel: k, held: map[netip.Addr]*holding{}}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.wg.Go(h.keep)
	return h, nil
}

// Add puts an address on its interface, for as long as it is renewed. To add
// one that is held changes nothing. An address that somebody else gave this
// machine, for good, is refused: nothing would ever take it off.
func (h *Holder) Add(p netip.Prefix) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return errors.New("address: the holder is closed")
	}
	if h.held[p.Addr()] != nil {
		return nil
	}
	links, err := h.kernel.links()
	if err != nil {
		return err
	}
	for _, f := range find(links, p.Addr()) {
		if !f.ours(h.cfg.Lifetime) {
			return fmt.Errorf("address: %s is on %s already, for good: take it out of the machine's network configuration, since a floating address is on one node at a time", p.Addr(), f.link.name)
		}
		if err := h.kernel.remove(f.link, f.addr.prefix); err != nil {
			return err
		}
	}
	l, as, err := place(links, h.cfg.Interface, p, h.cfg.Lifetime)
	if err != nil {
		return err
	}
	if err := h.kernel.put(l, as, h.cfg.Lifetime); err != nil {
		return fmt.Errorf("address: putting %s on %s: %w", as, l.name, err)
	}
	h.held[p.Addr()] = &holding{prefix: p, link: l, as: as, renewed: time.Now()}
	h.cfg.Logger.Info("this node has the floating address now", "addr", p, "interface", l.name)
	return nil
}

// Remove takes an address off, if it is held.
func (h *Holder) Remove(p netip.Prefix) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.removeLocked(p.Addr())
}

func (h *Holder) removeLocked(addr netip.Addr) error {
	x := h.held[addr]
	if x == nil {
		return nil
	}
	delete(h.held, addr)
	links, err := h.kernel.links()
	if err != nil {
		return err
	}
	for _, f := range find(links, addr) {
		if f.link.index != x.link.index || f.addr.prefix.Bits() != x.as.Bits() {
			continue
		}
		if err := h.kernel.remove(f.link, f.addr.prefix); err != nil {
			return fmt.Errorf("address: taking %s off %s: %w", x.as, x.link.name, err)
		}
	}
	h.cfg.Logger.Info("this node does not have the floating address any more", "addr", x.prefix, "interface", x.link.name)
	return nil
}

// Clean takes those of the addresses off that an earlier process of this node
// has left and that are not held.
func (h *Holder) Clean(addrs []netip.Prefix) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	links, err := h.kernel.links()
	if err != nil {
		return err
	}
	var faults []error
	for _, p := range addrs {
		if h.held[p.Addr()] != nil {
			continue
		}
		for _, f := range find(links, p.Addr()) {
			if f.ours(h.cfg.Lifetime) {
				faults = append(faults, h.kernel.remove(f.link, f.addr.prefix))
			}
		}
	}
	return errors.Join(faults...)
}

// Held returns the addresses that are held.
func (h *Holder) Held() (all []netip.Prefix) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, x := range h.held {
		all = append(all, x.prefix)
	}
	return all
}

// Announce tells the neighbours several times within 4 s, while the address is
// held, that it is here. It does not wait for that.
func (h *Holder) Announce(p netip.Prefix) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.held[p.Addr()]
	if h.closed || x == nil || !x.link.ethernet {
		return
	}
	h.wg.Go(func() {
		h.repeat(x, announceAt, func() error {
			addr, mac := p.Addr(), x.link.mac
			if addr.Is6() {
				return h.kernel.send(x.link, etherIPv6, allNodesMAC, unsolicitedNA(addr, mac))
			}
			return errors.Join(
				h.kernel.send(x.link, etherARP, broadcast, gratuitousARP(arpRequest, addr, mac)),
				h.kernel.send(x.link, etherARP, broadcast, gratuitousARP(arpReply, addr, mac)))
		})
	})
}

// Tickle has clients that were connected to an address that is held now, at
// another node, notice at once that their connections are gone. It does not
// wait for that.
func (h *Holder) Tickle(local netip.AddrPort, remotes []netip.AddrPort) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.held[local.Addr()]
	if h.closed || x == nil {
		return
	}
	remotes = append([]netip.AddrPort(nil), remotes[:min(len(remotes), maxTickled)]...)
	h.wg.Go(func() {
		h.repeat(x, tickleAt, func() error {
			var last error
			for _, r := range remotes {
				if r.Addr().Is4() != local.Addr().Is4() {
					continue
				}
				// A number within the window would not be answered: each time another one.
				if err := h.kernel.sendIP(r.Addr(), tickle(local, r, rand.Uint32())); err != nil {
					last = fmt.Errorf("%s: %w", r, err)
				}
			}
			return last
		})
	})
}

// repeat calls do at each of the times, while x is held.
func (h *Holder) repeat(x *holding, at []time.Duration, do func() error) {
	began := time.Now()
	for _, d := range at {
		select {
		case <-h.ctx.Done():
			return
		case <-time.After(time.Until(began.Add(d))):
		}
		h.mu.Lock()
		gone := h.held[x.prefix.Addr()] != x
		h.mu.Unlock()
		if gone {
			return
		}
		if err := do(); err != nil {
			h.cfg.Logger.Warn("telling others that an address has moved here failed", "addr", x.prefix, "err", err)
		}
	}
}

// Close takes all addresses off.
func (h *Holder) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	var faults []error
	for addr := range h.held {
		faults = append(faults, h.removeLocked(addr))
	}
	h.mu.Unlock()
	h.cancel()
	h.wg.Wait()
	return errors.Join(append(faults, h.kernel.close())...)
}

// keep renews the addresses.
func (h *Holder) keep() {
	t := time.NewTicker(h.cfg.Renew)
	defer t.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-t.C:
		}
		for _, p := range h.renew(time.Now()) {
			h.cfg.Logger.Warn("the kernel has dropped a floating address: this node could not make sure in time that it still has it", "addr", p)
			h.cfg.Lapsed(p)
		}
	}
}

// renew prolongs what may be prolonged, and returns what has been dropped,
// which is not held any more.
func (h *Holder) renew(now time.Time) (lapsed []netip.Prefix) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.held) == 0 {
		return nil
	}
	links, err := h.kernel.links()
	if err != nil {
		h.cfg.Logger.Error("the kernel does not say which addresses there are", "err", err)
		return nil
	}
	for addr, x := range h.held {
		there := false
		for _, f := range find(links, addr) {
			there = there || f.link.index == x.link.index
		}
		if !there || now.Sub(x.renewed) >= h.cfg.Lifetime {
			delete(h.held, addr)
			for _, f := range find(links, addr) {
				// It is about to be dropped: what is not held must not stay.
				if f.ours(h.cfg.Lifetime) {
					_ = h.kernel.remove(f.link, f.addr.prefix)
				}
			}
			lapsed = append(lapsed, x.prefix)
			continue
		}
		if !h.cfg.Valid(addr) {
			continue
		}
		if err := h.kernel.put(x.link, x.as, h.cfg.Lifetime); err != nil {
			h.cfg.Logger.Error("a floating address could not be renewed", "addr", x.prefix, "err", err)
			continue
		}
		x.renewed = now
	}
	return lapsed
}
