package volume

import (
	"fmt"
	"maps"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// fataler is what testing.TB and rapid.T share.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// A dataEnv is a volume with writers. Commands have the time of their index.
type dataEnv struct {
	t       fataler
	m       *fsm.Machine
	view    View
	index   uint64
	now     cluster.Time // added to the index
	events  []any
	origin  fsm.Origin // of commands
	writers map[string]*testWriter
	log     []cluster.Entry // every command
	// Contents of blobs that were made of others; all others are made of blobByte.
	packs map[cluster.BlobID][]byte
}

// know gives a blob a content: what is missing of its length are zeros.
func (e *dataEnv) know(b NewBlob, p []byte) {
	if e.packs == nil {
		e.packs = make(map[cluster.BlobID][]byte)
	}
	c := make([]byte, b.Len)
	copy(c, p)
	e.packs[b.ID] = c
}

// byteOf returns a byte of a blob.
func (e *dataEnv) byteOf(id cluster.BlobID, off uint32) byte {
	if p, ok := e.packs[id]; ok {
		return p[off]
	}
	return blobByte(id, off)
}

type testWriter struct {
	id      cluster.WriterID
	seq     uint64
	counter uint32 // next blob's
	low     uint32
}

func newData(t fataler) *dataEnv { return newDataSized(t, 4<<20) }

// newMachine makes an empty machine.
func newMachine(t fataler, core fsm.Core, memTable uint64) *fsm.Machine {
	t.Helper()
	m, err := fsm.Open(fsm.Options{Dir: "volume", FS: vfs.NewMem(), Core: core, CacheBytes: 1 << 20, MemTableBytes: memTable})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return m
}

// newDataSized is newData with memtables of a size.
func newDataSized(t fataler, memTable uint64) *dataEnv {
	m := newMachine(t, New(), memTable)
	e := &dataEnv{t: t, m: m, view: View{m.Reader()}, writers: make(map[string]*testWriter)}
	m.Subscribe(func(_ uint64, events []any) { e.events = append(e.events, events...) })
	e.must("", Format{HashKey: [16]byte{1, 2, 3}, Mode: 0o777, Class: cluster.Class{Copies: 2}})
	return e
}

func (e *dataEnv) close() {
	if err := e.m.Close(); err != nil {
		e.t.Fatalf("close: %v", err)
	}
}

// entry makes the log entry of a command by a writer ("": none).
func (e *dataEnv) entry(by string, b fsm.Body) cluster.Entry {
	e.index++
	env := fsm.Envelope{Time: e.now + cluster.Time(e.index), Origin: e.origin}
	if by != "" {
		w := e.writers[by]
		w.seq++
		env.Writer, env.Lane, env.Seq, env.LowWater = w.id, 1, w.seq, w.low
	}
	entry := cluster.Entry{Index: e.index, Term: 1, Command: fsm.AppendCommand(nil, env, b)}
	e.log = append(e.log, entry)
	return entry
}

// replay applies the log again, entry by entry, and compares the states.
func (e *dataEnv) replay() {
	e.t.Helper()
	m := newMachine(e.t, New(), 4<<20)
	defer m.Close()
	for i := range e.log {
		m.Apply(e.log[i : i+1])
	}
	dump := func(m *fsm.Machine) map[string]string {
		d := make(map[string]string)
		m.Reader().Ascend([]byte{'!'}, []byte{'z' + 1}, func(key, value []byte) bool {
			d[string(key)] = string(value)
			return true
		})
		return d
	}
	if !maps.Equal(dump(e.m), dump(m)) {
		e.t.Fatalf("the same log, cut into other batches, makes another state")
	}
}

func (e *dataEnv) apply(by string, b fsm.Body) ([]byte, error) {
	return fsm.SplitResult(e.m.Apply([]cluster.Entry{e.entry(by, b)})[0])
}

func (e *dataEnv) must(by string, b fsm.Body) []byte {
	e.t.Helper()
	body, err := e.apply(by, b)
	if err != nil {
		e.t.Fatalf("%T%+v: %v", b, b, err)
	}
	return body
}

// attr applies a command with an AttrResult.
func (e *dataEnv) attr(by string, b fsm.Body) AttrResult {
	e.t.Helper()
	r, err := DecodeAttrResult(e.must(by, b))
	if err != nil {
		e.t.Fatalf("result of %T: %v", b, err)
	}
	return r
}

// open makes the writer name of a node; the node's earlier one is fenced.
func (e *dataEnv) open(name, node string) *testWriter {
	e.t.Helper()
	id, err := fsm.DecodeOpenWriter(e.must("", &fsm.OpenWriter{Node: cluster.NodeID(node), Nonce: e.index}))
	if err != nil {
		e.t.Fatalf("open writer: %v", err)
	}
	w := &testWriter{id: id}
	e.writers[name] = w
	return w
}

// create makes a file in the root.
func (e *dataEnv) create(name string) cluster.Ino {
	e.t.Helper()
	r, err := DecodeCreateResult(e.must("", Create{Dir: cluster.RootIno, Name: name, Type: cluster.TypeRegular, Gen: 7}))
	if err != nil {
		e.t.Fatalf("create: %v", err)
	}
	return r.Attr.Ino
}

// releaseClient repeats ReleaseClient until it is done, and returns how often.
func (e *dataEnv) releaseClient(client uint64, ino cluster.Ino) (steps int) {
	e.t.Helper()
	for more := true; more; steps++ {
		r, err := DecodeReleaseClientResult(e.must("", ReleaseClient{Client: client, Ino: ino}))
		if err != nil {
			e.t.Fatalf("release client: %v", err)
		}
		more = r.More
	}
	return steps
}

// set makes a writable replica set.
func (e *dataEnv) set(members ...cluster.StoreID) ReplicaSet {
	e.t.Helper()
	r, err := DecodePutReplicaSetResult(e.must("", PutReplicaSet{Set: ReplicaSet{Members: members, Copies: 2}}))
	if err != nil {
		e.t.Fatalf("set: %v", err)
	}
	return r.Set
}

// blob numbers a new blob of a writer.
func (e *dataEnv) blob(by string, set ReplicaSet, length uint32) NewBlob {
	w := e.writers[by]
	w.counter++
	return NewBlob{ID: cluster.MakeBlobID(w.id, w.counter), Set: set.ID, Epoch: set.Epoch, Len: length, CRC: 42}
}

// problems runs Check.
func (e *dataEnv) problems() []string {
	var p []string
	s := e.m.Snapshot()
	defer s.Close()
	Check(View{s}, func(q Problem) { p = append(p, q.String()) })
	return p
}

func (e *dataEnv) check() {
	e.t.Helper()
	if p := e.problems(); len(p) > 0 {
		e.t.Fatalf("check: %q", p)
	}
}

// blobByte is the content of blobs that were not made of others.
func blobByte(id cluster.BlobID, off uint32) byte {
	return byte(uint64(id)*31 + uint64(off)*7 + 1)
}

// read returns a file's content as its extents have it.
func (e *dataEnv) read(ino cluster.Ino) []byte {
	e.t.Helper()
	a, ok := e.view.Inode(ino)
	if !ok {
		e.t.Fatalf("inode %d is gone", ino)
	}
	p := make([]byte, a.Size)
	e.view.Extents(ino, 0, a.Size, func(x *Extent) bool {
		if x.Blob == 0 {
			copy(p[x.Off:], x.Bytes)
			return true
		}
		for i := range x.Len {
			p[x.Off+uint64(i)] = e.byteOf(x.Blob, x.BlobOff+i)
		}
		return true
	})
	return p
}

// extents describes a file's extents.
func (e *dataEnv) extents(ino cluster.Ino) string {
	s := ""
	e.view.Extents(ino, 0, maxOffset, func(x *Extent) bool {
		if x.Blob == 0 {
			s += fmt.Sprintf("[%d,%d) inline\n", x.Off, x.End())
		} else {
			s += fmt.Sprintf("[%d,%d) blob %v+%d\n", x.Off, x.End(), x.Blob, x.BlobOff)
		}
		return true
	})
	return s
}

// refs returns a blob's references; 0 if it is not there.
func (e *dataEnv) refs(id cluster.BlobID) uint32 {
	b, _ := e.view.Blob(id)
	return b.Refs
}

// inGarbage reports whether a blob is in its set's delete queue.
func (e *dataEnv) inGarbage(set cluster.ReplicaSetID, id cluster.BlobID) bool {
	return hasSetBlob(e.view.Reader, prefixGarbage, set, id)
}

// withoutRule runs fn with a rule switched off.
func withoutRule(r rule, fn func()) {
	rulesOff |= r
	defer func() { rulesOff &^= r }()
	fn()
}

func inline(off uint64, p []byte) NewExtent {
	return NewExtent{Off: off, Len: uint32(len(p)), Bytes: p}
}

var _ fataler = testing.TB(nil)
