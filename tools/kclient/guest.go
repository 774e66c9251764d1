package kclient

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// umlProgram is the kernel of Debian's package user-mode-linux.
const umlProgram = "linux.uml"

//go:embed init.sh
var initScript []byte

// Options says what kernel a guest runs, and on what.
type Options struct {
	// Kernel is a folder made by FetchKernels; "" is the installed kernel.
	Kernel string
	// Memory as UML takes it, page cache included; "" is 1G.
	Memory string
}

// A Guest is a running kernel. Commands run in it side by side.
type Guest struct {
	lab     *Lab
	tap     int
	process *exec.Cmd
	console io.WriteCloser
	scratch string
	exited  chan struct{}
	ready   chan struct{}

	mu      sync.Mutex
	next    int
	waiting map[int]chan int // exit status, by command
	tail    []string         // of the console
}

// StartGuest boots a kernel on tap i (from 1) of the lab and waits until it
// takes commands.
func (l *Lab) StartGuest(ctx context.Context, i int, o Options) (*Guest, error) {
	linux, modules := umlProgram, "/usr/lib/uml/modules/*"
	if o.Kernel != "" {
		linux, modules = filepath.Join(o.Kernel, "linux"), filepath.Join(o.Kernel, "modules", "*")
	}
	found, err := filepath.Glob(modules)
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("no kernel modules in %s: install user-mode-linux, or name a folder that holds a fetched kernel", modules)
	}
	if modules, err = filepath.EvalSymlinks(found[0]); err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp("", "kclient-")
	if err != nil {
		return nil, err
	}
	init := filepath.Join(scratch, "init")
	if err := os.WriteFile(init, initScript, 0o700); err != nil {
		return nil, errors.Join(err, os.RemoveAll(scratch))
	}
	memory := o.Memory
	if memory == "" {
		memory = "1G"
	}
	g := &Guest{
		lab: l, tap: i, scratch: scratch,
		exited: make(chan struct{}), ready: make(chan struct{}), waiting: map[int]chan int{},
	}
	g.process = l.Command(context.WithoutCancel(ctx), 0, linux,
		"mem="+memory, "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet", "init="+init,
		"k_scratch="+scratch, "k_modules="+modules, "k_ip="+GuestAddr(i)+"/24", fmt.Sprintf("k_name=client%d", i), "k_end=1",
		fmt.Sprintf("vec0:transport=tap,ifname=tap%d,depth=128,gro=1,mtu=%s", i, mtu), "con=null", "con0=fd:0,fd:1")
	g.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	g.process.Env = append(os.Environ(), "TMPDIR="+scratch)
	if g.console, err = g.process.StdinPipe(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(scratch))
	}
	out, err := g.process.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(scratch))
	}
	g.process.Stderr = g.process.Stdout
	if err := g.process.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(scratch))
	}
	go g.watch(out)
	l.mu.Lock()
	l.guests[i] = g
	l.mu.Unlock()
	select {
	case <-g.ready:
		return g, nil
	case <-g.exited:
		err = errors.New("the guest ended while it booted")
	case <-time.After(time.Minute):
		err = errors.New("the guest did not boot within a minute")
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, errors.Join(fmt.Errorf("%w; its console:\n%s", err, g.Console()), g.Close())
}

// GuestAddr returns the address of the guest on tap i.
func GuestAddr(i int) string { return fmt.Sprintf("%s.%d", Subnet, 100+i) }

// consoleLines is how much of a guest's console is kept.
const consoleLines = 200

// watch follows the console: what the init script reports, and the rest for Console.
func (g *Guest) watch(out io.Reader) {
	defer close(g.exited)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		id, status, report := strings.Cut(strings.TrimPrefix(line, "kclient-done "), " ")
		n, err1 := strconv.Atoi(id)
		code, err2 := strconv.Atoi(status)
		switch {
		case line == "kclient-ready":
			close(g.ready)
		case strings.HasPrefix(line, "kclient-done ") && report && err1 == nil && err2 == nil:
			g.mu.Lock()
			if c := g.waiting[n]; c != nil {
				c <- code // buffered
				delete(g.waiting, n)
			}
			g.mu.Unlock()
		default:
			g.mu.Lock()
			if g.tail = append(g.tail, line); len(g.tail) > consoleLines {
				g.tail = g.tail[1:]
			}
			g.mu.Unlock()
		}
	}
	// Its exit status says nothing: a guest ends by power-off or by a signal.
	_ = g.process.Wait()
}

// Console returns the last lines of the guest's console.
func (g *Guest) Console() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Join(g.tail, "\n")
}

// A Result is what a command in a guest did.
type Result struct {
	Output string // standard output and error
	Status int
}

// Run runs a shell script in the guest and returns what it printed. The error
// says that the guest gave no answer; a script that failed has a Status.
func (g *Guest) Run(ctx context.Context, script string) (Result, error) {
	done := make(chan int, 1)
	g.mu.Lock()
	g.next++
	id := g.next
	g.waiting[id] = done
	g.mu.Unlock()
	base := filepath.Join(g.scratch, strconv.Itoa(id))
	if err := os.WriteFile(base+".cmd", []byte(script), 0o600); err != nil {
		return Result{}, err
	}
	if _, err := fmt.Fprintf(g.console, "%d\n", id); err != nil {
		return Result{}, fmt.Errorf("guest %d takes no commands: %w; its console:\n%s", g.tap, err, g.Console())
	}
	r := Result{Status: -1}
	var err error
	select {
	case r.Status = <-done:
	case <-g.exited:
		err = fmt.Errorf("guest %d ended; its console:\n%s", g.tap, g.Console())
	case <-ctx.Done():
		err = fmt.Errorf("guest %d: %w; its console:\n%s", g.tap, ctx.Err(), g.Console())
	}
	out, readErr := os.ReadFile(base + ".out")
	r.Output = string(out)
	if err == nil {
		err = readErr
	}
	return r, err
}

// Close ends the guest as a power cut does: what it had mounted stays with the
// server until its lease ends. Unmount first to leave in order.
func (g *Guest) Close() error {
	g.lab.mu.Lock()
	if g.lab.guests[g.tap] == g {
		delete(g.lab.guests, g.tap)
	}
	g.lab.mu.Unlock()
	// The kernel and the processes that it runs are one process group.
	err := syscall.Kill(-g.process.Process.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		err = nil
	}
	<-g.exited
	return errors.Join(err, os.RemoveAll(g.scratch))
}
