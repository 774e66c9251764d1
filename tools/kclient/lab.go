package kclient

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Subnet is the lab's network: hosts are at Subnet.11 and up, guests at
// Subnet.101 and up, the bridge (from where tests reach the hosts) at Subnet.1.
const Subnet = "10.77.0"

// mtu is the lab's frame size: large, as in a cluster network.
const mtu = "9000"

// A Lab is a set of hosts on one bridge.
type Lab struct {
	name    string
	hosts   int
	clients int

	mu     sync.Mutex
	guests map[int]*Guest // by tap
}

// Available says why labs and guests can't run here, or returns nil.
func Available() error {
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	}
	for _, x := range []struct{ program, pkg string }{
		{"ip", "iproute2"}, {umlProgram, "user-mode-linux"}, {"modprobe", "kmod"}, {"mount.nfs4", "nfs-common"},
	} {
		if _, err := exec.LookPath(x.program); err != nil {
			missing = append(missing, "package "+x.pkg)
		}
	}
	if missing != nil {
		return errors.New("kernel clients need " + strings.Join(missing, ", "))
	}
	return nil
}

// NewLab makes a lab of hosts and of taps for guests. name must be unique on
// the machine, at most 10 letters and digits.
func NewLab(name string, hosts, clients int) (*Lab, error) {
	l := &Lab{name: name, hosts: hosts, clients: clients, guests: map[int]*Guest{}}
	hub := l.hub()
	script := [][]string{
		{"netns", "add", hub},
		{"-n", hub, "link", "set", "lo", "up"},
		{"-n", hub, "link", "add", "br0", "type", "bridge"},
		{"-n", hub, "link", "set", "br0", "mtu", mtu, "up"},
		{"-n", hub, "addr", "add", Subnet + ".1/24", "dev", "br0"},
	}
	for i := 1; i <= hosts; i++ {
		script = append(script, l.hostScript(i)...)
	}
	for i := 1; i <= clients; i++ {
		tap := fmt.Sprintf("tap%d", i)
		script = append(script,
			[]string{"-n", hub, "tuntap", "add", "dev", tap, "mode", "tap"},
			[]string{"-n", hub, "link", "set", tap, "mtu", mtu, "master", "br0", "up"},
		)
	}
	for _, args := range script {
		if err := ip(args...); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

// hostScript is the commands that make host i.
func (l *Lab) hostScript(i int) [][]string {
	hub, ns, cable := l.hub(), l.namespace(i), fmt.Sprintf("v%d", i)
	return [][]string{
		{"netns", "add", ns},
		{"link", "add", cable, "netns", hub, "mtu", mtu, "type", "veth", "peer", "name", "eth0", "netns", ns, "mtu", mtu},
		{"-n", hub, "link", "set", cable, "master", "br0", "up"},
		{"-n", ns, "link", "set", "lo", "up"},
		{"-n", ns, "link", "set", "eth0", "up"},
		{"-n", ns, "addr", "add", l.HostAddr(i) + "/24", "dev", "eth0"},
	}
}

// AddHost adds a host to the lab and returns its number.
func (l *Lab) AddHost() (int, error) {
	l.hosts++
	for _, args := range l.hostScript(l.hosts) {
		if err := ip(args...); err != nil {
			return 0, err // Close removes what is there of it
		}
	}
	return l.hosts, nil
}

// OpenLab returns the lab that an earlier process left up, for use by hand.
func OpenLab(name string, hosts, clients int) *Lab {
	return &Lab{name: name, hosts: hosts, clients: clients, guests: map[int]*Guest{}}
}

func (l *Lab) hub() string            { return l.name + "-hub" }
func (l *Lab) namespace(i int) string { return fmt.Sprintf("%s-n%d", l.name, i) }

// HostAddr returns the address of host i, from 1.
func (l *Lab) HostAddr(i int) string { return fmt.Sprintf("%s.%d", Subnet, 10+i) }

// Command returns a command that runs on host i; 0 is the bridge, from where all hosts are reached.
func (l *Lab) Command(ctx context.Context, i int, program string, args ...string) *exec.Cmd {
	ns := l.hub()
	if i > 0 {
		ns = l.namespace(i)
	}
	return exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", ns, program}, args...)...)
}

// Cut pulls host i's network cable.
func (l *Lab) Cut(i int) error {
	return ip("-n", l.hub(), "link", "set", fmt.Sprintf("v%d", i), "down")
}

// Heal plugs host i's network cable in again.
func (l *Lab) Heal(i int) error {
	return ip("-n", l.hub(), "link", "set", fmt.Sprintf("v%d", i), "up")
}

// Close stops the lab's guests and removes its hosts.
func (l *Lab) Close() error {
	l.mu.Lock()
	guests := make([]*Guest, 0, len(l.guests))
	for _, g := range l.guests {
		guests = append(guests, g)
	}
	l.mu.Unlock()
	var faults []error
	for _, g := range guests {
		faults = append(faults, g.Close())
	}
	out, err := exec.Command("ip", "netns", "list").Output()
	faults = append(faults, err)
	for line := range strings.Lines(string(out)) {
		ns, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if ns == l.hub() || strings.HasPrefix(ns, l.name+"-n") {
			faults = append(faults, ip("netns", "del", ns))
		}
	}
	return errors.Join(faults...)
}

// ip runs the ip program.
func ip(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
