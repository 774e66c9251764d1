package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
	"github.com/hawserfs/hawser/conf"
)

// A devCluster is a cluster on this machine: a process for each node, their
// data in one folder.
type devCluster struct {
	dir   string
	nodes int
	port  int
	out   io.Writer
	exe   string
}

// The ports of a node: NFS is port+i, peers are port+peerOffset+i.
const peerOffset = 100

// devStop is how long a node may take to stop before it is killed.
const devStop = 20 * time.Second

func (s *shared) dev() *cobra.Command {
	d := &devCluster{}
	clean := false
	limit := 90 * time.Second
	cmd := &cobra.Command{
		Use: "dev", Short: "Run a cluster on this machine, to try it; stop with Ctrl-C", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if d.nodes < 1 || d.nodes > 9 {
				return fmt.Errorf("--nodes is %d: a cluster on one machine has 1 to 9", d.nodes)
			}
			if d.exe, err = os.Executable(); err != nil {
				return err
			}
			if d.dir, err = filepath.Abs(d.dir); err != nil {
				return err
			}
			d.out = cmd.OutOrStdout()
			if clean {
				if err := os.RemoveAll(d.dir); err != nil {
					return err
				}
			}
			return d.run(cmd.Context(), limit)
		},
	}
	cmd.Flags().StringVar(&d.dir, "dir", "hawser-dev", "folder for the cluster's data and logs")
	cmd.Flags().IntVar(&d.nodes, "nodes", 3, "number of nodes")
	cmd.Flags().IntVar(&d.port, "port", 12049, "NFS port of the first node; the others follow")
	cmd.Flags().BoolVar(&clean, "clean", false, "start with an empty cluster: what is in the folder is removed")
	cmd.Flags().DurationVar(&limit, "timeout", limit, "how long the cluster may take until it is healthy")
	return cmd
}

// run starts the nodes, makes them a cluster if they are none yet, and waits.
func (d *devCluster) run(ctx context.Context, limit time.Duration) error {
	// The nodes get a signal when the thread that started them ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ended := make(chan error, d.nodes)
	var processes []*exec.Cmd
	var wg sync.WaitGroup
	defer func() {
		for _, p := range processes {
			// It may have ended already.
			_ = p.Process.Signal(syscall.SIGTERM)
		}
		killer := time.AfterFunc(devStop, func() {
			for _, p := range processes {
				_ = p.Process.Kill()
			}
		})
		wg.Wait()
		killer.Stop()
	}()
	for i := 1; i <= d.nodes; i++ {
		p, err := d.start(i)
		if err != nil {
			return err
		}
		processes = append(processes, p)
		wg.Go(func() { ended <- fmt.Errorf("node n%d ended (%w): its log is %s", i, p.Wait(), d.file(i, "log")) })
	}
	ready := make(chan error, 1)
	readyCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	wg.Go(func() { ready <- d.form(readyCtx) })
	for {
		select {
		case err := <-ready:
			if err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
			d.announce()
		case err := <-ended:
			if ctx.Err() != nil {
				return nil
			}
			cancel()
			return err
		case <-ctx.Done():
			fmt.Fprintln(d.out, "stopping; the data stays in", d.dir)
			return nil
		}
	}
}

func (d *devCluster) file(i int, what string) string {
	return filepath.Join(d.dir, fmt.Sprintf("n%d", i), what)
}

func (d *devCluster) peerAddr(i int) string {
	return fmt.Sprintf("127.0.0.1:%d", d.port+peerOffset+i-1)
}

// start writes node i's configuration and starts its process.
func (d *devCluster) start(i int) (*exec.Cmd, error) {
	c := conf.Default()
	c.Node.Name = fmt.Sprintf("n%d", i)
	c.Node.Data = d.file(i, "data")
	c.Listen.Peer = d.peerAddr(i)
	c.Listen.NFS = []string{fmt.Sprintf("127.0.0.1:%d", d.port+i-1)}
	// A Unix socket's path is short; the folder's may not be.
	c.Listen.Admin = filepath.Join(os.TempDir(), fmt.Sprintf("hawser-dev-%d-n%d.sock", d.port, i))
	// Several nodes share this machine's memory and one disk.
	c.Cache.Data, c.Cache.Metadata, c.Cache.Dirty = 128<<20, 64<<20, 64<<20
	c.Store.SegmentSize, c.Store.Reserve = 64<<20, 256<<20
	if err := os.MkdirAll(c.Node.Data, 0o750); err != nil {
		return nil, err
	}
	if err := os.WriteFile(d.file(i, "hawser.yaml"), []byte(conf.YAML(c)), 0o600); err != nil {
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

// form makes the nodes one cluster, if they are none yet, and waits until all is well.
func (d *devCluster) form(ctx context.Context) error {
	for i := 1; i <= d.nodes; i++ {
		c, err := d.client(i)
		if err != nil {
			return err
		}
		var st admin.Status
		for {
			if st, err = c.Status(ctx); err == nil {
				break
			}
			if !pause(ctx) {
				return fmt.Errorf("node n%d does not answer: %w", i, err)
			}
		}
		switch {
		case st.Cluster.Member:
		case i == 1:
			err = c.Init(ctx, admin.InitRequest{Name: "dev", Class: admin.Class{Consistency: "strict", Copies: uint8(min(3, d.nodes))}})
		default:
			err = c.Join(ctx, admin.JoinRequest{Address: d.peerAddr(1)})
		}
		if err != nil {
			return fmt.Errorf("node n%d: %w", i, err)
		}
	}
	return d.healthy(ctx)
}

// healthy waits until every node serves and sees nothing wrong.
func (d *devCluster) healthy(ctx context.Context) error {
	var last string
	for i := 1; i <= d.nodes; {
		c, err := d.client(i)
		if err != nil {
			return err
		}
		st, err := c.Status(ctx)
		switch {
		case err != nil:
			last = err.Error()
		case len(st.Cluster.Problems) > 0:
			last = st.Cluster.Problems[0]
		case len(st.Serving) == 0:
			last = fmt.Sprintf("node n%d does not serve yet", i)
		default:
			i++
			continue
		}
		if !pause(ctx) {
			return errors.New("the cluster did not become healthy in time: " + last)
		}
	}
	return nil
}

// pause waits a moment, unless ctx ends.
func pause(ctx context.Context) bool {
	select {
	case <-time.After(50 * time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}

func (d *devCluster) announce() {
	fmt.Fprintf(d.out, "A cluster of %d nodes is running; its data is in %s. As root, mount any node:\n\n", d.nodes, d.dir)
	for i := 1; i <= d.nodes; i++ {
		fmt.Fprintf(d.out, "    mount -t nfs4 -o port=%d 127.0.0.1:/ /mnt\n", d.port+i-1)
	}
	fmt.Fprintf(d.out, "\nThe first volume is /mnt/main. `hawser status --config %s` shows the cluster. Ctrl-C stops it.\n", d.file(1, "hawser.yaml"))
}
