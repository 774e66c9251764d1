package address

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A fakeKernel has one interface, and drops addresses as the real one does.
type fakeKernel struct {
	others  []linkAddr // given by somebody else
	expires map[netip.Prefix]time.Time
	sent    []string
	fail    error
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
	for p, end := range k.expires {
		if left := time.Until(end); left > 0 {
			l.addrs = append(l.addrs, linkAddr{p, left})
		}
	}
	return []link{l}, nil
}

func (k *fakeKernel) put(_ link, p netip.Prefix, lifetime time.Duration) error {
	if k.fail == nil {
		k.expires[p] = time.Now().Add(lifetime)
	}
	return k.fail
}

func (k *fakeKernel) remove(_ link, p netip.Prefix) error {
	delete(k.expires, p)
	return nil
}

func (k *fakeKernel) send(_ link, etherType uint16, _ [6]byte, _ []byte) error {
	k.sent = append(k.sent, fmt.Sprintf("%04x", etherType))
	return nil
}

func (k *fakeKernel) sendIP(to netip.Addr, _ []byte) error {
	k.sent = append(k.sent, to.String())
	return nil
}

func (k *fakeKernel) close() error { return nil }

// has says which addresses of ours the kernel has.
func (k *fakeKernel) has() (all []string) {
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
	valid := true
	var lapsed []netip.Prefix
	k := newFake("10.0.0.11/24")
	hold(t, k, Config{
		Valid:  func(a netip.Addr) bool { return valid && a == floating.Addr() },
		Lapsed: func(p netip.Prefix) { lapsed = append(lapsed, p) },
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
		valid = false
		time.Sleep(3100 * time.Millisecond)
		if got := k.has(); got != nil {
			t.Errorf("the kernel still has %s", got)
		}
		valid = true
		time.Sleep(time.Minute)
		if got := k.has(); got != nil || len(h.Held()) != 0 {
			t.Errorf("the kernel has %s again, held %v, without Add", got, h.Held())
		}
		if len(lapsed) != 1 || lapsed[0] != floating {
			t.Errorf("lapsed: %v", lapsed)
		}
		if err := h.Add(floating); err != nil || len(k.has()) != 1 {
			t.Errorf("added anew: %v, %s", err, k.has())
		}
	})
}

// TestShortDoubt: a node that is sure again in time keeps its address.
func TestShortDoubt(t *testing.T) {
	valid := true
	k := newFake("10.0.0.11/24")
	hold(t, k, Config{Valid: func(netip.Addr) bool { return valid }}, func(h *Holder) {
		if err := h.Add(floating); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Second + time.Millisecond)
		valid = false
		time.Sleep(1900 * time.Millisecond)
		valid = true
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
		k.expires[netip.MustParsePrefix("10.0.0.50/32")] = time.Now().Add(2 * time.Second)
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
			k.expires[netip.MustParsePrefix(p)] = time.Now().Add(2 * time.Second)
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
		if k.sent != nil {
			t.Fatalf("told of an address that is not held: %s", k.sent)
		}
		if err := errors.Join(h.Add(floating), h.Add(v6)); err != nil {
			t.Fatal(err)
		}
		h.Announce(v6)
		time.Sleep(10 * time.Second)
		if got := fmt.Sprint(k.sent); got != "[86dd 86dd 86dd 86dd 86dd]" {
			t.Errorf("announced with %s", got)
		}
		k.sent = nil
		h.Tickle(local, remotes)
		time.Sleep(10 * time.Second)
		if got := fmt.Sprint(k.sent); got != "[10.0.0.9 10.0.0.9 10.0.0.9]" {
			t.Errorf("tickled %s", got)
		}
		k.sent = nil
		h.Announce(floating)
		time.Sleep(1500 * time.Millisecond)
		if err := h.Remove(floating); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		if got := fmt.Sprint(k.sent); got != "[0806 0806 0806 0806 0806 0806]" {
			t.Errorf("announced with %s", got)
		}
	})
}
