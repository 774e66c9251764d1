package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
)

// A devCluster is a cluster on this machine: a process for each node, their
// data in one folder.
type devCluster struct {
	dir   string
	nodes int
	port  int
	out   io.Writer
	exe   string
	lock  *os.File
}

// The ports of a node: NFS is port+i, peers are port+peerOffset+i.
const peerOffset = 100

// maxDevNodes is how many nodes a cluster on one machine may have.
const maxDevNodes = 9

// devStop is how long a node may take to stop before it is killed.
const devStop = 20 * time.Second

func (s *shared) dev() *cobra.Command {
	d := &devCluster{}
	clean := false
	limit := 90 * time.Second
	cmd := &cobra.Command{
		Use: "dev", Short: "Run a cluster on this machine, to try it; stop with Ctrl-C", Args: cobra.NoArgs,
		Long: "Starts a process for each node, and makes them a cluster the first time. Their configuration, data and\n" +
			"logs are in one folder; run again, it finds them. Kill a node and see what happens: the others go on.",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			d.out = cmd.OutOrStdout()
			if d.exe, err = os.Executable(); err != nil {
				return err
			}
			flags := cmd.Flags()
			if err := d.prepare(clean, flags.Changed("nodes"), flags.Changed("port")); err != nil {
				return err
			}
			return errors.Join(d.run(cmd.Context(), limit), d.lock.Close())
		},
	}
	cmd.Flags().StringVar(&d.dir, "dir", "hawser-dev", "folder for the cluster's data and logs")
	cmd.Flags().IntVar(&d.nodes, "nodes", 3, "number of nodes, 1 to 9")
	cmd.Flags().IntVar(&d.port, "port", 12049, "NFS port of the first node; the others follow")
	cmd.Flags().BoolVar(&clean, "clean", false, "start with an empty cluster: the nodes in the folder are removed")
	cmd.Flags().DurationVar(&limit, "timeout", limit, "how long the cluster may take until it is healthy")
	return cmd
}

// A nodeEnd says that a node's process has ended.
type nodeEnd struct {
	node int
	err  error
}

// run starts the nodes, makes them a cluster if they are none yet, and waits.
func (d *devCluster) run(ctx context.Context, limit time.Duration) error {
	// The nodes get a signal when the thread that started them ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ended := make(chan nodeEnd, d.nodes)
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
		wg.Go(func() { ended <- nodeEnd{i, p.Wait()} })
	}
	type outcome struct {
		problem string
		err     error
	}
	ready := make(chan outcome, 1)
	readyCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	wg.Go(func() {
		problem, err := d.form(readyCtx)
		ready <- outcome{problem, err}
	})
	formed, running := false, d.nodes
	for {
		select {
		case <-ctx.Done():
			fmt.Fprintln(d.out, "stopping; the data stays in", d.dir)
			return nil
		case o := <-ready:
			switch {
			case ctx.Err() != nil:
				continue // and say so above
			case o.err != nil:
				return o.err
			}
			formed = true
			d.announce()
			if o.problem != "" {
				fmt.Fprintln(d.out, "\nNot all is well:", o.problem)
			}
		case e := <-ended:
			running--
			switch {
			case ctx.Err() != nil:
			case !formed:
				return fmt.Errorf("node n%d ended before the cluster was healthy (%w)%s", e.node, exitError(e.err), d.lastLog(e.node))
			case running == 0:
				return fmt.Errorf("node n%d ended too (%w), and no node is left%s", e.node, exitError(e.err), d.lastLog(e.node))
			default:
				fmt.Fprintf(d.out, "\nNode n%d ended (%v); the others go on. Its log is %s. To start it again:\n\n    %s server --config %s\n",
					e.node, exitError(e.err), d.file(e.node, "log"), d.exe, d.file(e.node, "hawser.yaml"))
			}
		}
	}
}

// exitError is how a process ended, also if it said that all went well.
func exitError(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// form makes the nodes one cluster, if they are none yet, and waits until all is well.
func (d *devCluster) form(ctx context.Context) (problem string, err error) {
	for i := 1; i <= d.nodes; i++ {
		c, err := d.client(i)
		if err != nil {
			return "", err
		}
		var st admin.Status
		for {
			if st, err = c.Status(ctx); err == nil {
				break
			}
			if !pause(ctx) {
				return "", fmt.Errorf("node n%d does not answer: %w%s", i, err, d.lastLog(i))
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
			return "", fmt.Errorf("node n%d: %w", i, err)
		}
	}
	return d.healthy(ctx)
}

// healthy waits until every node serves and sees nothing wrong. What is still
// wrong when all have served for a while is there to stay, like a lost disk,
// and is returned.
func (d *devCluster) healthy(ctx context.Context) (problem string, err error) {
	var serving time.Time // since when all nodes do
	for {
		all, last := true, ""
		for i := 1; i <= d.nodes; i++ {
			c, err := d.client(i)
			if err != nil {
				return "", err
			}
			st, err := c.Status(ctx)
			switch {
			case err != nil:
				all, last = false, err.Error()
			case len(st.Serving) == 0 && len(st.Cluster.Problems) == 0:
				all, last = false, fmt.Sprintf("node n%d does not serve yet", i)
			case len(st.Cluster.Problems) > 0:
				all, last = all && len(st.Serving) > 0, fmt.Sprintf("node n%d: %s", i, st.Cluster.Problems[0])
			}
		}
		switch {
		case last == "":
			return "", nil
		case !all:
			serving = time.Time{}
		case serving.IsZero():
			serving = time.Now()
		case time.Since(serving) > devPatience:
			return last, nil
		}
		if !pause(ctx) {
			return "", fmt.Errorf("the cluster did not become healthy in time: %s; the nodes' logs are %s", last, d.file(0, "log"))
		}
	}
}

// devPatience is how long a problem of nodes that all serve may take to pass.
const devPatience = 15 * time.Second

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
	fmt.Fprintf(d.out, "\nThe first volume is /mnt/main. To see the cluster:\n\n    %s status --config %s\n\nCtrl-C stops it.\n", d.exe, d.file(1, "hawser.yaml"))
}
