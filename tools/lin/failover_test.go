package lin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/tools/kclient"
)

// identities is how many floating addresses there are.
const identities = 2

func floating(i int) string { return fmt.Sprintf("%s.%d", kclient.Subnet, 50+i) }

// labName is the environment variable that has the name of the lab at whose
// bridge this process is.
const labName = "HAWSER_LIN_LAB"

// atBridge runs the test in a process at the bridge of a lab of three hosts,
// which floating addresses can move between. In there it returns the lab.
func atBridge(t *testing.T) *kclient.Lab {
	t.Helper()
	if name := os.Getenv(labName); name != "" {
		return kclient.OpenLab(name, 3, 0)
	}
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: floating addresses need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("NOT TESTED: the package iproute2 is missing")
	}
	name := fmt.Sprintf("lin%d", os.Getpid())
	lab, err := kclient.NewLab(name, 3, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx := t.Context()
	if end, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-10*time.Second))
		defer cancel()
	}
	madeOf(t)
	cmd := lab.Command(ctx, 0, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = append(os.Environ(), labName+"="+name)
	var said bytes.Buffer
	cmd.Stdout = &said
	if testing.Verbose() {
		cmd.Stdout = io.MultiWriter(&said, os.Stdout)
	}
	cmd.Stderr = cmd.Stdout
	err = cmd.Run()
	switch {
	case err != nil:
		t.Errorf("at the bridge: %v", err)
		if !testing.Verbose() {
			t.Log(said.String())
		}
	case !strings.Contains(said.String(), "--- PASS: "+t.Name()):
		t.Errorf("at the bridge nothing was tested:\n%s", said.String())
	}
	return nil
}

// A scene is what the survivors of one part work on.
type scene struct {
	trees [][]client.FH // the directories of each
	share []client.FH
	lock  client.FH
}

// The clients of a scene: of names, of share reservations, of locks.
const (
	trees      = 2
	treeEach   = 4
	shareCount = 4
	lockCount  = Owners / 2
)

func makeScene(t *testing.T, name string) (sc scene) {
	t.Helper()
	for i := range trees {
		sc.trees = append(sc.trees, makePlace(t, floating(0)+":2049", "main", fmt.Sprint(name, "-", i), proto.FileSync).dirs)
	}
	p := makePlace(t, floating(1)+":2049", "main", name, proto.FileSync)
	sc.share = p.files
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	c, err := client.Dial(ctx, floating(1)+":2049", client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.CreateFile(ctx, p.dirs[0], "locked", 0o666)
	if err == nil {
		sc.lock = f.FH()
		err = errors.Join(f.Close(ctx), c.Close(ctx))
	}
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

// play has clients of all identities work in a scene until stop is closed.
func play(t *testing.T, sc scene, seed uint64, forgetful bool, stop <-chan struct{}) (names, shared, locked *Recorder) {
	names, shared, locked = NewRecorder(), NewRecorder(), NewRecorder()
	var wg sync.WaitGroup
	var done, longest atomic.Int64
	id := 0
	add := func(rec *Recorder, work job) {
		s := &survivor{
			t: t, id: id, addr: floating(id%identities) + ":2049", opt: client.Options{Minor: uint32(1 + id/2%2)},
			rng: rand.New(rand.NewPCG(seed, uint64(id))), rec: rec, work: work, done: &done, longest: &longest, forgetful: forgetful,
		}
		id++
		wg.Go(func() { s.run(stop) })
	}
	for i := range trees * treeEach {
		add(names, &treeWorker{tree: i / treeEach, dirs: sc.trees[i/treeEach]})
	}
	for i := range shareCount {
		if forgetful {
			break // names alone
		}
		add(shared, &shareWorker{owner: i, files: sc.share})
	}
	for i := range lockCount {
		if forgetful {
			break
		}
		add(locked, &lockWorker{first: 2 * i, fh: sc.lock})
	}
	wg.Wait()
	t.Logf("%d operations, the longest took %v", done.Load(), time.Duration(longest.Load()).Round(time.Millisecond))
	return names, shared, locked
}

// TestFailover has clients of two floating addresses create, remove, rename and
// link names, open files with deny modes and lock them, while the addresses
// move and the nodes under them are killed, frozen, cut off and drained. Each
// client repeats what is not answered, so that every operation has one outcome,
// and all of them together must be what could have happened one after the other.
// The environment is TestCluster's.
func TestFailover(t *testing.T) {
	if testing.Short() || os.Getenv("HAWSER_LIN") == "" {
		t.Skip("runs a cluster of processes for a while: `make soak`, or HAWSER_LIN=1m")
	}
	lab := atBridge(t)
	if lab == nil {
		return
	}
	length, seed := drawn(t)
	c := startCluster(t, lab)
	for i := range identities {
		c.must(0, "address", "add", floating(i)+"/24")
	}
	c.served()

	t.Run("the check finds out clients that send new requests instead of repeating old ones", func(t *testing.T) {
		// Whether a lost answer matters in a history is a matter of luck.
		for try := range uint64(5) {
			stop := make(chan struct{})
			time.AfterFunc(2*time.Second, func() { close(stop) })
			names, _, _ := play(t, makeScene(t, fmt.Sprint("forgetful-", try)), seed+try, true, stop)
			if !check(t, "names", Trees, names) {
				return
			}
		}
		t.Error("operations that are executed twice pass for linearizable")
	})

	for left := length; left > 0 && !t.Failed(); left -= 15 * time.Second {
		sc := makeScene(t, left.String())
		stop, calm := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		var names, shared, locked *Recorder
		wg.Go(func() { c.upheaval(rand.New(rand.NewPCG(seed, uint64(left))), calm) })
		wg.Go(func() { names, shared, locked = play(t, sc, seed+uint64(left), false, stop) })
		time.Sleep(min(left, 15*time.Second))
		close(calm)
		time.Sleep(2 * time.Second)
		close(stop)
		wg.Wait()
		for _, x := range []struct {
			what  string
			model porcupine.Model
			rec   *Recorder
		}{{"names", Trees, names}, {"share reservations", Shares, shared.With(Excused)}, {"locks", Locks, locked}} {
			if !check(t, x.what, x.model, x.rec) {
				t.Errorf("operations on %s are not linearizable", x.what)
				show(t, x.model, x.rec)
			}
		}
		c.healthy(time.Minute)
	}
}

// holder returns which node serves a floating address, as node at knows it.
func (c *testCluster) holder(at int, address string) (int, error) {
	out, err := c.admin(at, "address", "list", "-o", "json")
	if err != nil {
		return 0, err
	}
	var list []struct{ Address, Node string }
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return 0, err
	}
	for _, a := range list {
		if strings.HasPrefix(a.Address, address+"/") && a.Node != "" {
			var n int
			_, err := fmt.Sscanf(a.Node, "n%d", &n)
			return n - 1, err
		}
	}
	return 0, fmt.Errorf("nobody serves %s: %s", address, out)
}

// served waits until all addresses are served.
func (c *testCluster) served() {
	c.t.Helper()
	for i := range identities {
		c.wait(30*time.Second, floating(i), func() error {
			_, err := c.holder(0, floating(i))
			return err
		})
	}
}

// upheaval is trouble for nodes that serve floating addresses, and moves these,
// until stop is closed. It leaves all nodes running.
func (c *testCluster) upheaval(rng *rand.Rand, stop <-chan struct{}) {
	pause := func(from, to time.Duration) bool {
		select {
		case <-stop:
			return false
		case <-time.After(from + time.Duration(rng.Int64N(int64(to-from)))):
			return true
		}
	}
	// try asks a node for something that can be refused while the cluster is
	// not yet what it was.
	try := func(i int, args ...string) {
		if out, err := c.admin(i, args...); err != nil {
			c.t.Logf("%v: %s", err, out)
		}
	}
	begin := time.Now()
	for round := 0; pause(500*time.Millisecond, 2*time.Second); round++ {
		i, address := rng.IntN(len(c.nodes)), floating(rng.IntN(identities))
		if h, err := c.holder(i, address); err == nil && rng.IntN(4) > 0 {
			i = h
		}
		other := (i + 1 + rng.IntN(len(c.nodes)-1)) % len(c.nodes)
		at := time.Since(begin).Round(time.Millisecond)
		long := 2 * time.Second
		if round%4 == 3 {
			long = 8 * time.Second // long enough for a node to be fenced
		}
		switch rng.IntN(7) {
		case 0:
			c.t.Logf("%v: node %d is killed", at, i+1)
			c.kill(i)
			pause(100*time.Millisecond, 2500*time.Millisecond)
			c.start(i)
		case 1:
			c.t.Logf("%v: node %d is frozen for up to %v", at, i+1, long)
			c.signal(i, syscall.SIGSTOP)
			pause(long/4, long)
			c.signal(i, syscall.SIGCONT)
		case 2:
			way := rng.IntN(4)
			in, out := way != 1, way != 2
			c.t.Logf("%v: node %d is cut off from the others for up to %v (to it %v, from it %v)", at, i+1, long, in, out)
			c.net.cut(i, in, out)
			pause(long/4, long)
			c.net.heal(i)
		case 3:
			c.t.Logf("%v: node %d's cable is pulled for up to %v", at, i+1, long)
			if err := c.lab.Cut(i + 1); err != nil {
				c.t.Error(err)
			}
			pause(long/4, long)
			if err := c.lab.Heal(i + 1); err != nil {
				c.t.Error(err)
			}
		case 4:
			c.t.Logf("%v: node %d is drained", at, i+1)
			try(other, "address", "drain", fmt.Sprint("n", i+1))
			pause(200*time.Millisecond, 2*time.Second)
			try(other, "address", "undrain", fmt.Sprint("n", i+1))
		default:
			c.t.Logf("%v: %s moves to node %d", at, address, other+1)
			try(i, "address", "move", address, fmt.Sprint("n", other+1))
		}
	}
}
