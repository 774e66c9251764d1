package address

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A fakeKernel has one interface, and drops addresses as the real one does.
type fakeKernel struct {
	others []linkAddr // given by somebody else
	fail   error

	mu      sync.Mutex // that a bubble's sleep is over orders nothing
	expires map[netip.Prefix]time.Time
	sent    []string
}

func newFake(others ...string) *fakeKernel {
	k := &fakeKernel{expires: map[netip.Prefix]time.Time{}}
	for _, o := range others {
		k.others = append(k.others, linkAddr{netip.MustParsePrefix(o), forever})
	}
	return k
}

func (k *fakeKernel) links() ([]link, error) {
	l := link{index: 2, name: "eth0", up: true, ethernet: true, mac: mac, addrs: slices.Clone(k.others)}
	k.mu.Lock()
	defer k.mu.Unlock()
	for p, end := range k.expires {
		if left := time.Until(end); left > 0 {
			l.addrs = append(l.addrs, linkAddr{p, left})
		}
	}
	return []link{l}, nil
}

func (k *fakeKernel) put(_ link, p netip.Prefix, lifetime time.Duration) error {
	if k.fail == nil {
		k.stay(p.String(), lifetime)
	}
	return k.fail
}

// stay has the kernel keep an address for a while from now.
func (k *fakeKernel) stay(p string, lifetime time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expires[netip.MustParsePrefix(p)] = time.Now().Add(lifetime)
}

func (k *fakeKernel) remove(_ link, p netip.Prefix) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.expires, p)
	return nil
}

func (k *fakeKernel) send(_ link, etherType uint16, _ [6]byte, _ []byte) error {
	k.tell(fmt.Sprintf("%04x", etherType))
	return nil
}

func (k *fakeKernel) sendIP(to netip.Addr, _ []byte) error {
	k.tell(to.String())
	return nil
}

func (k *fakeKernel) tell(what string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sent = append(k.sent, what)
}

// told says what was sent since it was asked last.
func (k *fakeKernel) told() (sent []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sent, k.sent = k.sent, nil
	return sent
}

func (k *fakeKernel) close() error { return nil }

// has says which addresses of ours the kernel has.
func (k *fakeKernel) has() (all []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for p, end := range k.expires {
		if time.Now().Before(end) {
			all = append(all, p.String())
		}
	}
	slices.Sort(all)
	return all
}

var floating = netip.MustParsePrefix("10.0.0.50/24")

// hold runs fn with a Holder over a fake kernel, in a bubble of time of its own.
func hold(t *testing.T, k *fakeKernel, cfg Config, fn func(h *Holder)) {
	synctest.Test(t, func(t *testing.T) {
		cfg.kernel = k
		h, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		fn(h)
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if got := k.has(); got != nil {
			t.Errorf("after Close the kernel has %s", got)
		}
	})
}

// TestRenew: an address stays while this node may have it, and not much longer;
// and it is not put on again by itself.
func TestRenew(t *testing.T) {
	var valid atomic.Bool
	valid.Store(true)
	lapsed := make(chan netip.Prefix, 9)
	k := newFake("10.0.0.11/24")
	hold(t, k, Config{
		Valid:  func(a netip.Addr) bool { return valid.Load() && a == floating.Addr() },
		Lapsed: func(p netip.Prefix) { lapsed <- p },
	}, func(h *Holder) {
		if err := h.Add(floating); err != nil {
			t.Fatal(err)
		}
		if err := h.Add(floating); err != nil || len(h.Held()) != 1 {
			t.Errorf("added again: %v, %v", err, h.Held())
		}
		time.Sleep(time.Minute)
		if got := k.has(); len(got) != 1 || got[0] != "10.0.0.50/32" {
			t.Fatalf("after a minute the kernel has %s", got)
		}
		valid.Store(false)
		time.Sleep(3100 * time.Millisecond)
		if got := k.has(); got != nil {
			t.Errorf("the kernel still has %s", got)
		}
		valid.Store(true)
		time.Sleep(time.Minute)
		if got := k.has(); got != nil || len(h.Held()) != 0 {
			t.Errorf("the kernel has %s again, held %v, without Add", got, h.Held())
		}
		if len(lapsed) != 1 {
			t.Errorf("%d lapsed", len(lapsed))
		} else if p := <-lapsed; p != floating {
			t.Errorf("lapsed: %v", p)
		}
		if err := h.Add(floating); err != nil || len(k.has()) != 1 {
			t.Errorf("added anew: %v, %s", err, k.has())
		}
	})
}

// TestShortDoubt: a node that is sure again in time keeps its address.
func TestShortDoubt(t *testing.T) {
	var valid atomic.Bool
	valid.Store(true)
	k := newFake("10.0.0.11/24")
	hold(t, k, Config{Valid: func(netip.Addr) bool { return valid.Load() }}, func(h *Holder) {
		if err := h.Add(floating); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Second + time.Millisecond)
		valid.Store(false)
		time.Sleep(1900 * time.Millisecond)
		valid.Store(true)
		time.Sleep(10 * time.Second)
		if got := k.has(); len(got) != 1 {
			t.Errorf("the kernel has %s", got)
		}
	})
}

// TestLate: a process that was away for longer than the lifetime does not
// renew what the kernel, for whatever reason, still has.
func TestLate(t *testing.T) {
	k := newFake("10.0.0.11/24")
	hold(t, k, Config{Renew: time.Hour}, func(h *Holder) {
		if err := h.Add(floating); err != nil {
			t.Fatal(err)
		}
		k.stay("10.0.0.50/32", 2*time.Second)
		if lapsed := h.renew(time.Now().Add(3 * time.Second)); len(lapsed) != 1 {
			t.Errorf("lapsed %v", lapsed)
		}
		if got := k.has(); got != nil {
			t.Errorf("the kernel has %s", got)
		}
	})
}

func TestAddRefuses(t *testing.T) {
	k := newFake("10.0.0.11/24", "10.0.0.50/24")
	hold(t, k, Config{}, func(h *Holder) {
		if err := h.Add(floating); err == nil || !strings.Contains(err.Error(), "10.0.0.50 is on eth0 already, for good") {
			t.Errorf("an address that the machine has: %v", err)
		}
		if err := h.Clean([]netip.Prefix{floating}); err != nil {
			t.Error(err)
		}
		if links, _ := k.links(); len(links[0].addrs) != 2 {
			t.Error("Clean took what is not ours")
		}
		if err := h.Add(netip.MustParsePrefix("10.1.0.1/24")); err == nil {
			t.Error("an address in no interface's subnet was added")
		}
		k.fail = errors.New("no")
		if err := h.Add(netip.MustParsePrefix("10.0.0.51/24")); err == nil || len(h.Held()) != 0 {
			t.Errorf("held without the kernel: %v, %v", err, h.Held())
		}
	})
}

// TestStale: what an earlier process left is taken off, or over.
func TestStale(t *testing.T) {
	k := newFake("10.0.0.11/24")
	hold(t, k, Config{}, func(h *Holder) {
		for _, p := range []string{"10.0.0.50/24", "10.0.0.51/32", "10.0.0.52/32"} {
			k.stay(p, 2*time.Second)
		}
		if err := h.Add(floating); err != nil {
			t.Fatal(err)
		}
		if err := h.Clean([]netip.Prefix{floating, netip.MustParsePrefix("10.0.0.51/24")}); err != nil {
			t.Error(err)
		}
		if got := fmt.Sprint(k.has()); got != "[10.0.0.50/32 10.0.0.52/32]" {
			t.Errorf("the kernel has %s", got)
		}
		if err := h.Remove(floating); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		if got := k.has(); got != nil {
			t.Errorf("after Remove the kernel has %s", got)
		}
	})
}

// TestTelling: announcements and tickles go out several times, and end with the
// address.
func TestTelling(t *testing.T) {
	k := newFake("10.0.0.11/24", "fd00::11/64")
	local := netip.MustParseAddrPort("10.0.0.50:2049")
	remotes := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.9:700"), netip.MustParseAddrPort("[fd00::9]:700")}
	v6 := netip.MustParsePrefix("fd00::50/64")
	hold(t, k, Config{}, func(h *Holder) {
		h.Announce(floating)
		h.Tickle(local, remotes)
		time.Sleep(10 * time.Second)
		if got := k.told(); got != nil {
			t.Fatalf("told of an address that is not held: %s", got)
		}
		if err := errors.Join(h.Add(floating), h.Add(v6)); err != nil {
			t.Fatal(err)
		}
		h.Announce(v6)
		time.Sleep(10 * time.Second)
		if got := fmt.Sprint(k.told()); got != "[86dd 86dd 86dd 86dd 86dd]" {
			t.Errorf("announced with %s", got)
		}
		h.Tickle(local, remotes)
		time.Sleep(10 * time.Second)
		if got := fmt.Sprint(k.told()); got != "[10.0.0.9 10.0.0.9 10.0.0.9]" {
			t.Errorf("tickled %s", got)
		}
		h.Announce(floating)
		time.Sleep(1500 * time.Millisecond)
		if err := h.Remove(floating); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		if got := fmt.Sprint(k.told()); got != "[0806 0806 0806 0806 0806 0806]" {
			t.Errorf("announced with %s", got)
		}
	})
}
