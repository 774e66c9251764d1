package address

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A lab is two nodes and a client on a bridge, each in a network namespace.
type lab struct{ name string }

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: putting addresses on interfaces needs root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("NOT TESTED: the package iproute2 is missing")
	}
	l := &lab{fmt.Sprintf("hwa%d", os.Getpid())}
	t.Cleanup(func() {
		for _, ns := range []string{"hub", "n1", "n2", "cl"} {
			// It may not have been made.
			_ = exec.Command("ip", "netns", "del", l.ns(ns)).Run()
		}
	})
	l.ip(t, "netns add "+l.ns("hub"))
	l.in(t, "hub", "link add br0 type bridge", "link set br0 up")
	for i, n := range []string{"n1", "n2", "cl"} {
		l.ip(t, "netns add "+l.ns(n))
		l.in(t, "hub", fmt.Sprintf("link add %s type veth peer name eth0 netns %s", n, l.ns(n)), "link set "+n+" master br0 up")
		l.in(t, n, "link set lo up", "link set eth0 up",
			fmt.Sprintf("addr add 10.78.0.%d/24 dev eth0", 11+i), fmt.Sprintf("addr add fd78::%d/64 dev eth0 nodad", 11+i))
	}
	return l
}

func (l *lab) ns(name string) string { return l.name + "-" + name }

func (l *lab) ip(t *testing.T, args string) string {
	t.Helper()
	out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %v: %s", args, err, out)
	}
	return string(out)
}

func (l *lab) in(t *testing.T, name string, commands ...string) {
	t.Helper()
	for _, c := range commands {
		l.ip(t, "-n "+l.ns(name)+" "+c)
	}
}

// has says whether a node's kernel has an address.
func (l *lab) has(t *testing.T, name string, p netip.Prefix) bool {
	t.Helper()
	return strings.Contains(l.ip(t, "-n "+l.ns(name)+" -o addr show dev eth0"), p.Addr().String()+"/")
}

// do calls fn in a namespace: sockets that it makes stay there.
func (l *lab) do(t *testing.T, name string, fn func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		// The thread ends with the goroutine, since it is not unlocked.
		runtime.LockOSThread()
		f, err := os.Open("/run/netns/" + l.ns(name))
		if err == nil {
			err = errors.Join(unix.Setns(int(f.Fd()), unix.CLONE_NEWNET), f.Close())
		}
		if err == nil {
			err = fn()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("in %s: %v", name, err)
	}
}

// holder returns a Holder of a node.
func (l *lab) holder(t *testing.T, name string, cfg Config) (h *Holder) {
	t.Helper()
	l.do(t, name, func() (err error) {
		h, err = New(cfg)
		return err
	})
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// greet has a node tell everybody who connects to an address its name, whether
// it has the address or not.
func (l *lab) greet(t *testing.T, name string, at netip.AddrPort) {
	t.Helper()
	var ln net.Listener
	l.do(t, name, func() (err error) {
		lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			var fault error
			err := c.Control(func(fd uintptr) {
				if fault = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1); at.Addr().Is6() {
					fault = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_FREEBIND, 1)
				}
			})
			return errors.Join(err, fault)
		}}
		ln, err = lc.Listen(t.Context(), "tcp", at.String())
		return err
	})
	done := make(chan struct{})
	var conns []net.Conn
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, name)
			conns = append(conns, c)
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-done
		for _, c := range conns {
			_ = c.Close()
		}
	})
}

// dial connects from the client, and returns who answers.
func (l *lab) dial(t *testing.T, to netip.AddrPort) (c net.Conn, who string) {
	t.Helper()
	l.do(t, "cl", func() (err error) {
		d := net.Dialer{Timeout: 5 * time.Second}
		c, err = d.DialContext(t.Context(), "tcp", to.String())
		return err
	})
	t.Cleanup(func() { _ = c.Close() })
	buf := make([]byte, 2)
	if _, err := io.ReadFull(c, buf); err != nil {
		t.Fatal(err)
	}
	return c, string(buf)
}

// TestTakeover: while the old holder's kernel is still there and has the
// address, a client's connections go to the new one within a second.
func TestTakeover(t *testing.T) {
	l := newLab(t)
	for _, p := range []netip.Prefix{netip.MustParsePrefix("10.78.0.50/24"), netip.MustParsePrefix("fd78::50/64")} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			at := netip.AddrPortFrom(p.Addr(), 2049)
			l.greet(t, "n1", at)
			l.greet(t, "n2", at)
			old, young := l.holder(t, "n1", Config{}), l.holder(t, "n2", Config{})
			if err := old.Add(p); err != nil {
				t.Fatal(err)
			}
			old.Announce(p)
			c, who := l.dial(t, at)
			if who != "n1" {
				t.Fatalf("%s has answered first", who)
			}
			time.Sleep(1100 * time.Millisecond) // the client's neighbour cache defends an entry for a second

			// n1 goes on renewing, as if it did not know.
			began := time.Now()
			if err := young.Add(p); err != nil {
				t.Fatal(err)
			}
			young.Announce(p)
			young.Tickle(at, []netip.AddrPort{netip.MustParseAddrPort(c.LocalAddr().String())})
			if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("the old connection: %v", err)
			}
			// The old node's kernel asks and answers for the address, too: the later
			// announcements have the last word.
			for _, who = l.dial(t, at); who != "n2"; _, who = l.dial(t, at) {
				if time.Since(began) > 3*time.Second {
					t.Fatalf("%s has answered after the take-over", who)
				}
				time.Sleep(50 * time.Millisecond)
			}
			t.Logf("the client is at the new node after %v", time.Since(began))
			if !l.has(t, "n1", p) {
				t.Error("the old node had lost the address meanwhile: nothing was shown")
			}
			if err := errors.Join(old.Remove(p), young.Remove(p)); err != nil {
				t.Error(err)
			}
			if l.has(t, "n1", p) || l.has(t, "n2", p) {
				t.Error("an address that was removed is still there")
			}
		})
	}
}

// TestKernelDrops: the kernel takes the address of a process that does not renew it.
func TestKernelDrops(t *testing.T) {
	l := newLab(t)
	for _, p := range []netip.Prefix{netip.MustParsePrefix("10.78.0.50/24"), netip.MustParsePrefix("fd78::50/64")} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			lapsed := make(chan netip.Prefix, 1)
			valid := make(chan struct{})
			h := l.holder(t, "n1", Config{
				Lifetime: 2 * time.Second,
				Valid: func(netip.Addr) bool {
					select {
					case <-valid:
						return false
					default:
						return true
					}
				},
				Lapsed: func(p netip.Prefix) { lapsed <- p },
			})
			if err := h.Add(p); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
			if !l.has(t, "n1", p) {
				t.Errorf("%s is gone, though it was renewed", p)
			}
			close(valid)
			began := time.Now()
			for l.has(t, "n1", p) {
				if time.Since(began) > 5*time.Second {
					t.Fatalf("%s is still there", p)
				}
				time.Sleep(10 * time.Millisecond)
			}
			t.Logf("%s has gone after %v", p, time.Since(began))
			if got := <-lapsed; got != p {
				t.Errorf("lapsed: %s", got)
			}
		})
	}
}

// TestKernelStale: what a killed process left does not stay on, and what the
// machine was given is not touched.
func TestKernelStale(t *testing.T) {
	l := newLab(t)
	p, fixed := netip.MustParsePrefix("10.78.0.50/24"), netip.MustParsePrefix("10.78.0.51/24")
	l.in(t, "n1", "addr add 10.78.0.50/32 dev eth0 valid_lft 3 preferred_lft 0", "addr add 10.78.0.51/24 dev eth0")
	h := l.holder(t, "n1", Config{})
	if err := h.Clean([]netip.Prefix{p, fixed}); err != nil {
		t.Fatal(err)
	}
	if l.has(t, "n1", p) || !l.has(t, "n1", fixed) {
		t.Error("Clean took the wrong address")
	}
	if err := h.Add(fixed); err == nil {
		t.Error("a fixed address was taken for floating")
	}
}
