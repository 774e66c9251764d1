package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
	"github.com/hawserfs/hawser/conf"
)

// file is a file or folder of node i; of all nodes, for a reader, if i is 0.
func (d *devCluster) file(i int, what string) string {
	node := fmt.Sprintf("n%d", i)
	if i == 0 {
		node = "n*"
	}
	return filepath.Join(d.dir, node, what)
}

func (d *devCluster) nfsAddr(i int) string { return fmt.Sprintf("127.0.0.1:%d", d.port+i-1) }
func (d *devCluster) peerAddr(i int) string {
	return fmt.Sprintf("127.0.0.1:%d", d.port+peerOffset+i-1)
}

// prepare takes the folder for this process, and decides on nodes and ports: a
// cluster that is there keeps its own.
func (d *devCluster) prepare(clean, nodesGiven, portGiven bool) (err error) {
	if d.nodes < 1 || d.nodes > maxDevNodes {
		return fmt.Errorf("--nodes is %d: a cluster on one machine has 1 to %d", d.nodes, maxDevNodes)
	}
	if last := 65535 - peerOffset - maxDevNodes; d.port < 1 || d.port > last {
		return fmt.Errorf("--port is %d: it must be 1 to %d", d.port, last)
	}
	// The nodes are told all in their files; what the environment says is for
	// one node.
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "HAWSER_") {
			if err := os.Unsetenv(name); err != nil {
				return err
			}
		}
	}
	if d.dir, err = filepath.Abs(d.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(d.dir, 0o750); err != nil {
		return fmt.Errorf("--dir: %w: choose a folder that you may write to", err)
	}
	if d.lock, err = os.OpenFile(filepath.Join(d.dir, "dev.lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return fmt.Errorf("--dir: %w: choose a folder that you may write to", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.lock.Close())
		}
	}()
	if err := unix.Flock(int(d.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("another `hawser dev` runs in %s (%w): stop it, or choose another folder with --dir and other ports with --port", d.dir, err)
	}
	for i := 1; clean && i <= maxDevNodes; i++ {
		if err := os.RemoveAll(d.file(i, "")); err != nil {
			return err
		}
	}
	if err := d.adopt(nodesGiven, portGiven); err != nil {
		return err
	}
	return d.tryPorts()
}

// adopt takes nodes and ports over from a cluster that is in the folder.
func (d *devCluster) adopt(nodesGiven, portGiven bool) error {
	there := 0
	for there < maxDevNodes {
		if _, err := os.Stat(d.file(there+1, "hawser.yaml")); err != nil {
			break
		}
		there++
	}
	if there == 0 {
		return nil
	}
	if nodesGiven && d.nodes < there {
		return fmt.Errorf("the cluster in %s has %d nodes: start it with as many, or an empty one with --clean", d.dir, there)
	}
	c, err := conf.Load(d.file(1, "hawser.yaml"))
	if err != nil {
		return fmt.Errorf("the cluster in %s: %w", d.dir, err)
	}
	if c.Node.Data != d.file(1, "data") {
		return fmt.Errorf("the cluster in %s was made in %s: move it back, or start an empty one with --clean", d.dir, filepath.Dir(filepath.Dir(c.Node.Data)))
	}
	port := 0
	for _, a := range c.Listen.NFS {
		_, text, _ := net.SplitHostPort(a)
		// A port that is no number is caught by the node.
		_, _ = fmt.Sscan(text, &port)
	}
	if portGiven && d.port != port {
		return fmt.Errorf("the cluster in %s was made with --port %d, which its nodes know each other by: start it with that one, or an empty one with --clean", d.dir, port)
	}
	d.port, d.nodes = port, max(there, d.nodes)
	if !nodesGiven {
		d.nodes = there
	}
	return nil
}

// tryPorts finds out at once what the nodes would only write to their logs.
func (d *devCluster) tryPorts() error {
	for i := 1; i <= d.nodes; i++ {
		for _, addr := range []string{d.nfsAddr(i), d.peerAddr(i)} {
			ln, err := net.Listen("tcp", addr)
			if err == nil {
				err = ln.Close()
			}
			if err != nil {
				return fmt.Errorf("node n%d can't listen (%w): stop what uses the port, or start another cluster on other ports with --dir and --port", i, err)
			}
		}
	}
	return nil
}

// configure writes node i's configuration, unless it has one.
func (d *devCluster) configure(i int) error {
	file := d.file(i, "hawser.yaml")
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	c := conf.Default()
	c.Node.Name = fmt.Sprintf("n%d", i)
	c.Node.Data = d.file(i, "data")
	c.Listen.Peer = d.peerAddr(i)
	c.Listen.NFS = []string{d.nfsAddr(i)}
	c.Listen.Admin = d.file(i, "admin.sock")
	if len(c.Listen.Admin) > conf.MaxSocketPath {
		c.Listen.Admin = filepath.Join(os.TempDir(), fmt.Sprintf("hawser-dev-%d-n%d.sock", d.port, i))
	}
	// Several nodes share this machine's memory and one disk.
	c.Cache.Data, c.Cache.Metadata, c.Cache.Dirty = 128<<20, 64<<20, 64<<20
	c.Store.SegmentSize, c.Store.Reserve = 64<<20, 256<<20
	if err := os.MkdirAll(c.Node.Data, 0o750); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(conf.YAML(c)), 0o600)
}

// start starts node i's process.
func (d *devCluster) start(i int) (*exec.Cmd, error) {
	if err := d.configure(i); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(d.file(i, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := exec.Command(d.exe, "server", "--config", d.file(i, "hawser.yaml"))
	p.Stdout, p.Stderr = log, log
	// Ctrl-C reaches the whole group of processes; the nodes are stopped in order by us.
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	return p, p.Start()
}

// client returns the admin client of node i.
func (d *devCluster) client(i int) (*admin.Client, error) {
	c, err := conf.Load(d.file(i, "hawser.yaml"))
	return admin.Dial(c.Listen.Admin), err
}

// lastLog is the end of node i's log, as an addition to an error.
func (d *devCluster) lastLog(i int) string {
	const lines, size = 3, 4096
	s := "; its log is " + d.file(i, "log")
	f, err := os.Open(d.file(i, "log"))
	if err != nil {
		return s
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return s
	}
	text := make([]byte, min(st.Size(), size))
	if _, err := f.ReadAt(text, st.Size()-int64(len(text))); err != nil || len(text) == 0 {
		return s
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return s + ", which ends:\n    " + strings.Join(all[max(0, len(all)-lines):], "\n    ")
}
