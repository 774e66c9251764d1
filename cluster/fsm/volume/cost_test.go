package volume

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// A costRig is a volume on a disk, with the caches of a node by default, that
// gets commands as Raft brings them: in batches, from lanes of one writer.
type costRig struct {
	t       *testing.T
	m       *fsm.Machine
	view    View
	dir     string
	index   uint64
	writer  cluster.WriterID
	entries []cluster.Entry
	took    []time.Duration // each full batch
	rnd     *rand.Rand
}

// costBatch is how many commands a batch has, each from a lane of its own.
const costBatch = 64

func newCostRig(t *testing.T) *costRig {
	c := &costRig{t: t, dir: t.TempDir(), rnd: rand.New(rand.NewPCG(1, 2))}
	t.Cleanup(c.close)
	c.open(256 << 20)
	c.apply(c.entry(Format{HashKey: [16]byte{1, 2, 3}, Mode: 0o777, Class: cluster.Class{Copies: 3}}))
	id, err := fsm.DecodeOpenWriter(c.apply(c.entry(&fsm.OpenWriter{Node: "n1", Nonce: 1}))[0])
	if err != nil {
		t.Fatal(err)
	}
	c.writer = id
	return c
}

// open opens the machine with a cache of a size.
func (c *costRig) open(cache int64) {
	c.t.Helper()
	m, err := fsm.Open(fsm.Options{Dir: c.dir, Core: New(), CacheBytes: cache, MemTableBytes: 64 << 20})
	if err != nil {
		c.t.Fatal(err)
	}
	c.m, c.view = m, View{m.Reader()}
}

func (c *costRig) close() {
	if c.m == nil {
		return
	}
	if err := c.m.Close(); err != nil {
		c.t.Error(err)
	}
	c.m = nil
}

// entry makes the log entry of a command.
func (c *costRig) entry(b fsm.Body) cluster.Entry {
	c.index++
	env := fsm.Envelope{Time: cluster.Time(1_800_000_000_000_000_000 + c.index)}
	if c.writer != 0 {
		env.Writer, env.Lane, env.Seq = c.writer, uint16(c.index%costBatch), c.index
	}
	return cluster.Entry{Index: c.index, Term: 1, Command: fsm.AppendCommand(nil, env, b)}
}

// apply applies entries, all of which must succeed, and returns their results.
func (c *costRig) apply(entries ...cluster.Entry) (bodies [][]byte) {
	c.t.Helper()
	for i, r := range c.m.Apply(entries) {
		body, err := fsm.SplitResult(r)
		if err != nil {
			c.t.Fatalf("command %d of %d: %v", i, len(entries), err)
		}
		bodies = append(bodies, body)
	}
	return bodies
}

// create makes a file, later, with others.
func (c *costRig) create(dir cluster.Ino, name string) {
	c.entries = append(c.entries, c.entry(Create{Dir: dir, Name: name, Type: cluster.TypeRegular, How: Guarded, Gen: 1}))
	if len(c.entries) < costBatch {
		return
	}
	began := time.Now()
	c.apply(c.entries...)
	c.took = append(c.took, time.Since(began))
	c.entries = c.entries[:0]
}

// mkdirs makes directories, now: dir-i in parent(i), for i in [from, to).
func (c *costRig) mkdirs(from, to int, parent func(i int) cluster.Ino) (made []cluster.Ino) {
	c.t.Helper()
	c.flush()
	for from < to {
		var batch []cluster.Entry
		for ; from < to && len(batch) < costBatch; from++ {
			batch = append(batch, c.entry(Create{
				Dir: parent(from), Name: fmt.Sprintf("dir-%d", from), Type: cluster.TypeDirectory, How: Guarded, Gen: 1,
			}))
		}
		for _, body := range c.apply(batch...) {
			r, err := DecodeCreateResult(body)
			if err != nil {
				c.t.Fatal(err)
			}
			made = append(made, r.Attr.Ino)
		}
	}
	return made
}

// flush applies what is left.
func (c *costRig) flush() {
	c.t.Helper()
	c.apply(c.entries...)
	c.entries = c.entries[:0]
}

// A cost is what operations take at some number of files.
type cost struct {
	files        int
	create       time.Duration // mean since the last cost: what Pebble does behind it is in that
	createMedian time.Duration // of a batch, for each command in it
	lookup       time.Duration // median: name, and attributes
	page         time.Duration // median: 1,000 entries with attributes, from anywhere
	disk         int64         // bytes
	memory       int64         // bytes that the process has, caches included
}

func (k cost) String() string {
	return fmt.Sprintf("%9d files: create %6.2f µs (median %.2f), lookup %6.2f µs, page of 1,000 %5.2f ms; %4d bytes a file on disk; %d MiB of memory",
		k.files, micros(k.create), micros(k.createMedian), micros(k.lookup), micros(k.page)/1000, k.disk/int64(k.files), k.memory>>20)
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// measure says what things cost now. path gives a file's directory and name;
// there are files of them. The median is taken of small groups, since the
// clock has a cost too.
func (c *costRig) measure(files int, path func(i int) (cluster.Ino, string)) cost {
	c.t.Helper()
	c.flush()
	k := cost{files: files}
	if n := len(c.took); n > 0 {
		var sum time.Duration
		for _, d := range c.took {
			sum += d
		}
		k.create = sum / time.Duration(n*costBatch)
		k.createMedian = median(c.took) / costBatch
		c.took = c.took[:0]
	}
	// As after a snapshot of the group.
	if err := flush(c.m); err != nil {
		c.t.Fatal(err)
	}
	c.read(&k, path)
	var err error
	if k.disk, err = diskSize(c.dir); err != nil {
		c.t.Fatal(err)
	}
	k.memory = resident(c.t)
	c.t.Log(k)
	return k
}

// read measures reading, with as much in the cache as it holds.
func (c *costRig) read(k *cost, path func(i int) (cluster.Ino, string)) {
	c.t.Helper()
	c.view.Ascend(nil, nil, func(_, _ []byte) bool { return true })
	const group = 10
	var looked, pages []time.Duration
	for range 2000 {
		var dirs [group]cluster.Ino
		var names [group]string
		for i := range group {
			dirs[i], names[i] = path(c.rnd.IntN(k.files))
		}
		began := time.Now()
		for i, name := range names {
			e, ok := c.view.Lookup(dirs[i], name)
			if !ok {
				c.t.Fatalf("%s is gone", name)
			}
			if _, ok := c.view.Inode(e.Ino); !ok {
				c.t.Fatalf("%s has no inode", name)
			}
		}
		looked = append(looked, time.Since(began)/group)
	}
	for range 200 {
		dir, _ := path(c.rnd.IntN(k.files))
		n, cookie := 0, c.rnd.Uint64()>>2
		began := time.Now()
		c.view.ReadDir(dir, cookie, func(e *Dirent) bool {
			if _, ok := c.view.Inode(e.Ino); !ok {
				c.t.Fatalf("%s has no inode", e.Name)
			}
			n++
			return n < 1000
		})
		if n > 0 { // of a small directory, what it has
			pages = append(pages, time.Since(began)*1000/time.Duration(n))
		}
	}
	k.lookup, k.page = median(looked), median(pages)
}

// scale is how many files the tests of costs make at most: HAWSER_SCALE.
func scale(t *testing.T) int {
	t.Helper()
	if testing.Short() || raceDetector {
		t.Skip("makes many files; the race detector has costs of its own")
	}
	text := os.Getenv("HAWSER_SCALE")
	if text == "" {
		return 200_000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 20_000 {
		t.Fatalf("HAWSER_SCALE=%s: want a number of files, at least 20000", text)
	}
	return n
}

// grown fails the test if an operation takes many times what it took with few
// files. What grows with the number of files, rather than with its logarithm,
// takes 20 times as long or more.
func grown(t *testing.T, few, many cost) {
	t.Helper()
	const most = 8
	for what, d := range map[string][2]time.Duration{
		"a create":          {few.createMedian, many.createMedian},
		"a look-up":         {few.lookup, many.lookup},
		"a page of READDIR": {few.page, many.page},
	} {
		if d[1] > most*d[0] {
			t.Errorf("%s takes %v with %d files and %v with %d", what, d[0], few.files, d[1], many.files)
		}
	}
}

// TestScaleCostDirectory: what is done with one file costs the same, however
// many there are in its directory.
func TestScaleCostDirectory(t *testing.T) {
	most := scale(t)
	c := newCostRig(t)
	name := func(i int) string { return fmt.Sprintf("file-%08d", i) }
	path := func(i int) (cluster.Ino, string) { return cluster.RootIno, name(i) }
	made := 0
	var costs []cost
	for _, files := range []int{10_000, 100_000, 1_000_000, most} {
		if files > most || files == made {
			continue
		}
		for ; made < files; made++ {
			c.create(cluster.RootIno, name(made))
		}
		costs = append(costs, c.measure(files, path))
	}
	many := costs[len(costs)-1]
	if many.disk > 200<<20 {
		// Not all of it fits into the cache: what does it cost if it does?
		c.close()
		c.open(4 * many.disk)
		warm := cost{files: many.files}
		c.read(&warm, path)
		t.Logf("with a cache that holds all of them: lookup %.2f µs, page of 1,000 %.2f ms", micros(warm.lookup), micros(warm.page)/1000)
	}
	grown(t, costs[0], many)
}

// TestScaleCostTree: the same in a tree of directories with ten files and two
// directories each, 17 levels deep with a million files. The files come level by
// level: the first of all directories, the second of all, and so on.
func TestScaleCostTree(t *testing.T) {
	const each = 10
	most := min(scale(t), 1_000_000)
	c := newCostRig(t)
	dirs := []cluster.Ino{cluster.RootIno}
	path := func(i int) (cluster.Ino, string) { return dirs[i/each], fmt.Sprintf("file-%d", i%each) }
	made := 0
	var costs []cost
	for _, files := range []int{10_000, most} {
		// A directory's parent is there before its own batch begins.
		for len(dirs) < files/each {
			to := min(files/each, 2*len(dirs), len(dirs)+costBatch)
			dirs = append(dirs, c.mkdirs(len(dirs), to, func(i int) cluster.Ino { return dirs[(i-1)/2] })...)
		}
		for k := range each {
			for i := made / each; i < files/each; i++ {
				dir, name := path(i*each + k)
				c.create(dir, name)
			}
		}
		made = files
		costs = append(costs, c.measure(files, path))
	}
	grown(t, costs[0], costs[1])
}
