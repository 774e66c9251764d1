package cli

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A screen takes what a command writes while it runs.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// A running dev command.
type running struct {
	screen
	cancel context.CancelFunc
	ended  chan error
}

func startDev(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	cmd := Root("test")
	cmd.SetArgs(append([]string{"dev"}, args...))
	cmd.SetOut(&r.screen)
	go func() { r.ended <- cmd.ExecuteContext(ctx) }()
	return r
}

// stop is Ctrl-C.
func (r *running) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	select {
	case err := <-r.ended:
		if err != nil {
			t.Error("dev ended with", err)
		}
	case <-time.After(devStop + 10*time.Second):
		t.Fatal("dev did not stop")
	}
}

func (r *running) wait(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(90 * time.Second); !strings.Contains(r.String(), text); time.Sleep(20 * time.Millisecond) {
		select {
		case err := <-r.ended:
			t.Fatalf("dev ended with %v before it said %q", err, text)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("dev did not say %q:\n%s", text, r)
		}
	}
}

// freePort returns a port from which a dev cluster's are probably free.
func freePort(t *testing.T) string {
	t.Helper()
	for range 50 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := ln.Addr().(*net.TCPAddr).Port
		_ = ln.Close()
		d := &devCluster{port: port, nodes: 3}
		if port < 65000 && d.tryPorts() == nil {
			return strconv.Itoa(port)
		}
	}
	t.Fatal("no free ports")
	return ""
}

// processOf returns the process that runs with a configuration file.
func processOf(t *testing.T, file string) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		// Processes come and go.
		if text, err := os.ReadFile(name); err == nil && strings.Contains(string(text), "server\x00--config\x00"+file+"\x00") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatal("no process runs with", file)
	return 0
}

func TestDev(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster of processes")
	}
	dir, port := t.TempDir(), freePort(t)
	r := startDev(t, "--dir", dir, "--port", port)
	r.wait(t, "A cluster of 3 nodes is running")
	config := filepath.Join(dir, "n1", "hawser.yaml")
	if out, _, err := run("volume", "create", "scratch", "--config", config); err != nil || !strings.Contains(out, "scratch") {
		t.Errorf("volume create: %v, %s", err, out)
	}

	t.Run("in a folder that is in use", func(t *testing.T) {
		for _, args := range [][]string{{"--dir", dir}, {"--dir", dir, "--clean"}, {"--dir", dir, "--port", "30000"}} {
			if _, _, err := run(append([]string{"dev"}, args...)...); err == nil || !strings.Contains(err.Error(), "another `hawser dev` runs") {
				t.Errorf("%v: got %v", args, err)
			}
		}
		if _, _, err := run("dev", "--dir", t.TempDir(), "--port", port); err == nil || !strings.Contains(err.Error(), "address already in use") {
			t.Errorf("ports in use: got %v", err)
		}
		if _, _, err := run("check", "--offline", config); err == nil || !strings.Contains(err.Error(), "stop it first") {
			t.Errorf("an offline check of a running node: got %v", err)
		}
	})

	if err := syscall.Kill(processOf(t, filepath.Join(dir, "n2", "hawser.yaml")), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.wait(t, "Node n2 ended (signal: killed); the others go on")
	if out, _, err := run("volume", "list", "--config", config); err != nil || !strings.Contains(out, "scratch") {
		t.Errorf("with a node killed: %v, %s", err, out)
	}
	r.stop(t)
	if !strings.Contains(r.String(), "stopping; the data stays in "+dir) {
		t.Errorf("dev said\n%s", r)
	}

	// It finds its nodes and ports again, and its data.
	r = startDev(t, "--dir", dir)
	r.wait(t, "A cluster of 3 nodes is running")
	if out, _, err := run("volume", "list", "--config", config); err != nil || !strings.Contains(out, "scratch") {
		t.Errorf("after a restart: %v, %s", err, out)
	}
	r.stop(t)
	all := []string{"check", "--offline"}
	for i := 1; i <= 3; i++ {
		all = append(all, filepath.Join(dir, fmt.Sprintf("n%d", i), "hawser.yaml"))
	}
	if out, _, err := run(all...); err != nil || !strings.Contains(out, "2 volumes") || strings.Contains(out, "NOT LOOKED AT") {
		t.Errorf("an offline check of all: %v, %s", err, out)
	}
}

// TestDevStops: Ctrl-C at any time stops the nodes, and no process stays.
func TestDevStops(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	for _, after := range []time.Duration{0, 30 * time.Millisecond, 300 * time.Millisecond, time.Second} {
		r := startDev(t, "--dir", t.TempDir(), "--port", freePort(t))
		time.Sleep(after)
		r.stop(t)
	}
}

func TestDevNodeFails(t *testing.T) {
	dir, port := t.TempDir(), freePort(t)
	d := &devCluster{dir: dir, nodes: 1, port: 1}
	d.port, _ = strconv.Atoi(port)
	if err := d.configure(1); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(d.file(1, "hawser.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.file(1, "hawser.yaml"), append(text, "nonsense: 1\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := run("dev", "--dir", dir); err == nil || !strings.Contains(err.Error(), "unknown setting nonsense") {
		t.Errorf("a damaged configuration: got %v", err)
	}
	if err := os.WriteFile(d.file(1, "hawser.yaml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.file(1, "data/node.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := run("dev", "--dir", dir); err == nil || !strings.Contains(err.Error(), "node n1 ended before") || !strings.Contains(err.Error(), "node.json is damaged") {
		t.Errorf("a damaged node: got %v", err)
	}
}

func TestDevFolder(t *testing.T) {
	made := func(t *testing.T, nodes int) *devCluster {
		dir, port := t.TempDir(), freePort(t)
		d := &devCluster{dir: dir, nodes: nodes}
		d.port, _ = strconv.Atoi(port)
		for i := 1; i <= nodes; i++ {
			if err := d.configure(i); err != nil {
				t.Fatal(err)
			}
		}
		return d
	}
	for _, x := range []struct {
		name                         string
		nodes, port                  int
		clean, nodesGiven, portGiven bool
		want                         int // nodes; 0: refused
		err                          string
	}{
		{name: "taken over", nodes: 3, port: 12049, want: 2},
		{name: "more nodes", nodes: 3, nodesGiven: true, want: 3},
		{name: "fewer nodes", nodes: 1, nodesGiven: true, err: "has 2 nodes"},
		{name: "another port", nodes: 3, port: 20000, portGiven: true, err: "was made with --port"},
		{name: "clean", nodes: 1, nodesGiven: true, clean: true, want: 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			old := made(t, 2)
			if x.port == 0 {
				x.port = old.port
			}
			stray := filepath.Join(old.dir, "notes")
			if err := os.WriteFile(stray, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			d := &devCluster{dir: old.dir, nodes: x.nodes, port: x.port}
			err := d.prepare(x.clean, x.nodesGiven, x.portGiven)
			switch {
			case x.err != "":
				if err == nil || !strings.Contains(err.Error(), x.err) {
					t.Errorf("got %v, want an error with %q", err, x.err)
				}
				return
			case err != nil:
				t.Fatal(err)
			case d.nodes != x.want || d.port != old.port:
				t.Errorf("got %d nodes at %d, want %d at %d", d.nodes, d.port, x.want, old.port)
			}
			if err := d.lock.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(stray); err != nil {
				t.Errorf("a file that is not the cluster's: %v", err)
			}
		})
	}
	t.Run("moved", func(t *testing.T) {
		old := made(t, 1)
		to := filepath.Join(t.TempDir(), "x")
		if err := os.Rename(old.dir, to); err != nil {
			t.Fatal(err)
		}
		d := &devCluster{dir: to, nodes: 1, port: old.port}
		if err := d.prepare(false, false, false); err == nil || !strings.Contains(err.Error(), "move it back") {
			t.Errorf("got %v", err)
		}
	})
}
