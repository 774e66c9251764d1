package systest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hawserfs/hawser/tools/kclient"
)

// A client is a kernel that mounts nodes of the cluster.
type client struct {
	t     *testing.T
	c     *testCluster
	guest *kclient.Guest
}

// kernel names a folder with a newer kernel to run the tests with; empty is
// the installed one.
var kernel = os.Getenv("HAWSER_TEST_KERNEL")

// client boots a kernel on tap i.
func (c *testCluster) client(i int, memory string) *client {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	g, err := c.lab.StartGuest(ctx, i, kclient.Options{Kernel: kernel, Memory: memory})
	if err != nil {
		c.t.Fatal(err)
	}
	return &client{t: c.t, c: c, guest: g}
}

// mountCommand is the command that mounts node i at /mnt/nfs.
func (c *testCluster) mountCommand(i int, options string) string {
	return fmt.Sprintf("mount -t nfs4 -o %s %s:/ /mnt/nfs", options, c.lab.HostAddr(i))
}

// run runs a script in the guest; it must succeed within limit.
func (k *client) run(limit time.Duration, script string) string {
	k.t.Helper()
	out, err := k.try(limit, script)
	if err != nil {
		k.t.Fatal(err)
	}
	return out
}

// try runs a script in the guest, each command of which must succeed.
func (k *client) try(limit time.Duration, script string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	began := time.Now()
	r, err := k.guest.Run(ctx, "set -eu\n"+script)
	if err == nil && r.Status != 0 {
		err = fmt.Errorf("exit status %d", r.Status)
	}
	if err != nil {
		return r.Output, fmt.Errorf("after %v: %w\nscript:\n%s\noutput:\n%s", time.Since(began).Round(time.Millisecond), err, script, r.Output)
	}
	k.t.Logf("%6.1f s  %s", time.Since(began).Seconds(), firstLine(script))
	return r.Output, nil
}

// start runs a script in the background and returns what waits for it.
func (k *client) start(limit time.Duration, script string) (wait func() (string, error)) {
	type outcome struct {
		out string
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		out, err := k.try(limit, script)
		done <- outcome{out, err}
	}()
	return func() (string, error) {
		o := <-done
		return o.out, o.err
	}
}

func firstLine(s string) string {
	s = strings.TrimSpace(s)
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		return s[:i] + " …"
	}
	return s
}
