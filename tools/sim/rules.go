package sim

import (
	"bytes"
	"slices"
	"sort"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/datastore/checksum"
)

// rules watches over the world. It keeps books of its own, in the simplest
// form: who is fenced, what was executed, and each file byte by byte.
type rules struct {
	w        *World
	front    uint64 // index that the books are at
	acked    uint64 // index of the newest command that a client was told of
	writers  map[cluster.WriterID]*writerBook
	blobs    map[cluster.BlobID]*blobBook
	order    []cluster.BlobID // that were committed and may be alive, in that order
	files    map[cluster.Ino]*fileBook
	inos     []cluster.Ino // of files, in order
	sets     map[cluster.ReplicaSetID]volume.ReplicaSet
	done     map[uint64]uint64     // operation to the index of its command
	requests map[fsm.Origin][]byte // what each had for a result
}

type writerBook struct {
	node   cluster.NodeID
	fenced bool
	low    uint32
	lanes  map[uint16]laneBook
}

type laneBook struct {
	seq    uint64
	result []byte
}

type blobBook struct {
	data      []byte
	set       cluster.ReplicaSetID
	committed bool
	refs      int // bytes of files with a name that are its
}

// A cell is a byte of a file.
type cell struct {
	blob cluster.BlobID // 0: a hole, or inline
	b    byte
}

type fileBook struct {
	cells    []cell
	versions []version // by index
	unlinked bool
}

type version struct {
	index uint64
	data  []byte
}

func newRules(w *World) *rules {
	return &rules{
		w: w, writers: map[cluster.WriterID]*writerBook{}, blobs: map[cluster.BlobID]*blobBook{},
		files: map[cluster.Ino]*fileBook{}, sets: map[cluster.ReplicaSetID]volume.ReplicaSet{}, done: map[uint64]uint64{}, requests: map[fsm.Origin][]byte{},
	}
}

// missf tells of a rule that was not kept. Where only outcomes count, what comes
// of it must show by itself.
func (r *rules) missf(format string, args ...any) {
	if !r.w.cfg.Outcomes {
		r.w.failf(format, args...)
	}
}

// put: a blob id is written with one content, once, wherever it is put.
func (r *rules) put(id cluster.BlobID, data []byte) {
	b := r.blobs[id]
	if b == nil {
		r.blobs[id] = &blobBook{data: data}
		return
	}
	if !bytes.Equal(b.data, data) {
		r.missf("blob %v is put with two contents", id)
	}
}

// final reports whether no command can commit the blob any more.
func (r *rules) final(id cluster.BlobID) bool {
	w := r.writers[id.Writer()]
	return w != nil && (w.fenced || id.Counter() < w.low)
}

// dropped: a copy is deleted only if nothing refers to it and nothing ever will.
func (r *rules) dropped(s *store, id cluster.BlobID) {
	if !r.final(id) {
		r.missf("store %d deletes blob %v, which its writer may still commit", s.id, id)
	}
	b := r.blobs[id]
	if b == nil || !b.committed {
		return
	}
	if b.refs > 0 {
		r.missf("store %d deletes blob %v, which %d bytes of files are in", s.id, id, b.refs)
	}
	for _, n := range r.w.nodes {
		if n.up && n.replica.applied == r.front {
			if _, used := n.replica.view.Blob(id); used {
				r.missf("store %d deletes blob %v, which has a record", s.id, id)
			}
			return
		}
	}
}

// applied is the first execution of an entry, after its batch.
func (r *rules) applied(at *replica, e *logEntry) {
	r.front = e.Index
	body, err := fsm.SplitResult(e.result)
	env := &e.env
	switch env.Kind {
	case fsm.KindOpenWriter:
		id, derr := fsm.DecodeOpenWriter(body)
		if err != nil || derr != nil {
			r.w.failf("entry %d: opening a writer: %v, %v", e.Index, err, derr)
		}
		if r.writers[id] != nil {
			return
		}
		node := e.body.(*fsm.OpenWriter).Node
		for _, w := range r.writers {
			w.fenced = w.fenced || w.node == node
		}
		r.writers[id] = &writerBook{node: node, lanes: map[uint16]laneBook{}}
		return
	case fsm.KindFenceWriter:
		if w := r.writers[e.body.(*fsm.FenceWriter).Writer]; w != nil && err == nil {
			w.fenced = true
		}
		return
	}
	if env.Writer == 0 {
		r.effect(at, e, nil, body, err)
		return
	}
	w := r.writers[env.Writer]
	if w == nil {
		r.w.failf("entry %d is of a writer that there never was", e.Index)
	}
	switch last := w.lanes[env.Lane]; {
	case env.Seq == last.seq:
		r.w.count.duplicates++
		if !bytes.Equal(e.result, last.result) && (err != cluster.EFENCED || !w.fenced) {
			r.w.failf("entry %d repeats a command of writer %d, but has another result: %x, %x", e.Index, env.Writer, e.result, last.result)
		}
		return
	case env.Seq < last.seq:
		r.w.count.duplicates++
		// A writer's lanes are forgotten once its node has opened two others.
		if err != cluster.EINVAL && (err != cluster.EFENCED || !w.fenced) {
			r.w.failf("entry %d is an old command of writer %d, but its result is %v", e.Index, env.Writer, err)
		}
		return
	case w.fenced:
		r.w.count.fenced++
		if err != cluster.EFENCED {
			r.w.failf("entry %d: the fenced writer %d has an effect: %T, %v", e.Index, env.Writer, e.body, err)
		}
		return
	}
	w.lanes[env.Lane] = laneBook{env.Seq, e.result}
	if !r.repeated(e) {
		r.effect(at, e, w, body, err)
	}
	w.low = max(w.low, env.LowWater)
}

// effect keeps the books of a command that was executed.
func (r *rules) effect(at *replica, e *logEntry, w *writerBook, body []byte, err error) {
	if err != nil {
		if err == cluster.ERETRY {
			r.w.count.again++
		}
		if err == cluster.EINTERNAL {
			r.w.failf("entry %d: %T%+v fails by a bug", e.Index, e.body, e.body)
		}
		return
	}
	switch c := e.body.(type) {
	case volume.CommitExtents:
		r.commit(e, &c, w)
	case volume.Relocate:
		r.relocate(e, &c, w, body)
	case volume.Punch:
		r.write(c.Ino, e.Index, func(f *fileBook) { r.fill(f, c.Off, min(c.Off+c.Len, uint64(len(f.cells)))) })
	case volume.SetAttr:
		if c.Attr.Mask&cluster.SetSize != 0 {
			r.write(c.Ino, e.Index, func(f *fileBook) { r.resize(f, c.Attr.Size) })
		}
	case volume.Clone:
		r.clone(e, &c)
	case volume.Create:
		res, err := volume.DecodeCreateResult(body)
		if err != nil {
			r.w.failf("entry %d: %v", e.Index, err)
		}
		if r.files[res.Attr.Ino] == nil {
			r.files[res.Attr.Ino] = &fileBook{versions: []version{{index: e.Index}}}
			r.inos = append(r.inos, res.Attr.Ino)
		}
	case volume.Remove:
		res, err := volume.DecodeRemoveResult(body)
		if err != nil {
			r.w.failf("entry %d: %v", e.Index, err)
		}
		if f := r.files[res.Attr.Ino]; f != nil {
			r.forget(f)
			f.unlinked = true
		}
	case volume.PutReplicaSet:
		res, err := volume.DecodePutReplicaSetResult(body)
		if err != nil {
			r.w.failf("entry %d: %v", e.Index, err)
		}
		r.sets[res.Set.ID] = res.Set
		r.everyCopy(res.Set.ID)
	}
}

// commit: all that makes data visible.
func (r *rules) commit(e *logEntry, c *volume.CommitExtents, w *writerBook) {
	op := uint64(c.Mtime)
	if at, ok := r.done[op]; ok {
		r.w.failf("entry %d executes operation %d, which entry %d has executed", e.Index, op, at)
	}
	r.done[op] = e.Index
	r.w.count.commits++
	for i := range c.Blobs {
		r.commitBlob(e, &c.Blobs[i], w)
	}
	r.write(c.Ino, e.Index, func(f *fileBook) {
		for i := range c.Extents {
			x := &c.Extents[i]
			end := int(x.Off) + int(x.Len)
			if end > len(f.cells) {
				r.resize(f, uint64(end))
			}
			data := x.Bytes
			if x.Blob != 0 {
				data = r.blobs[x.Blob].data[x.BlobOff:]
			}
			for j := range min(int(x.Len), len(data)) {
				r.set(f, int(x.Off)+j, cell{x.Blob, data[j]})
			}
		}
	})
}

// commitBlob: a blob becomes visible once, of its writer, and where it is durable.
func (r *rules) commitBlob(e *logEntry, n *volume.NewBlob, w *writerBook) {
	b := r.blobs[n.ID]
	switch {
	case n.ID.Writer() != e.env.Writer:
		r.missf("entry %d commits blob %v of another writer", e.Index, n.ID)
	case n.ID.Counter() < w.low:
		r.missf("entry %d commits blob %v, which was final below %d", e.Index, n.ID, w.low)
	case b == nil:
		r.w.failf("entry %d commits blob %v, which is nowhere", e.Index, n.ID)
	case b.committed:
		r.missf("entry %d commits blob %v a second time", e.Index, n.ID)
	case len(b.data) != int(n.Len) || checksum.Sum(b.data) != n.CRC:
		r.missf("entry %d commits blob %v with another length or checksum", e.Index, n.ID)
	}
	b.committed, b.set = true, n.Set
	set := r.sets[n.Set]
	if set.Epoch != n.Epoch || set.State != volume.Writable {
		r.missf("entry %d commits blob %v of epoch %d to set %d of epoch %d, state %d", e.Index, n.ID, n.Epoch, n.Set, set.Epoch, set.State)
	}
	for _, m := range set.Members {
		if s := r.w.store(m); !s.lost && !s.disk.durable(n.ID) {
			r.missf("entry %d commits blob %v, which is not durable on store %d of set %d", e.Index, n.ID, m, n.Set)
		}
	}
	r.order = append(r.order, n.ID)
}

func (r *rules) clone(e *logEntry, c *volume.Clone) {
	src := r.files[c.Src]
	if src == nil {
		r.w.failf("entry %d clones a file that is not there", e.Index)
	}
	from, end := min(c.SrcOff, uint64(len(src.cells))), uint64(len(src.cells))
	if c.Len != 0 {
		end = min(end, c.SrcOff+c.Len)
	}
	cells := slices.Clone(src.cells[from:max(from, end)])
	r.write(c.Dst, e.Index, func(f *fileBook) {
		if end := c.DstOff + uint64(len(cells)); end > uint64(len(f.cells)) {
			r.resize(f, end)
		}
		for i, x := range cells {
			r.set(f, int(c.DstOff)+i, x)
		}
	})
}

// write changes a file and keeps the version.
func (r *rules) write(ino cluster.Ino, index uint64, fn func(f *fileBook)) {
	f := r.files[ino]
	if f == nil {
		r.w.failf("entry %d changes inode %d, which is not there", index, ino)
	}
	fn(f)
	data := make([]byte, len(f.cells))
	for i := range f.cells {
		data[i] = f.cells[i].b
	}
	const keep = 600
	if len(f.versions) == keep {
		f.versions = append(f.versions[:0], f.versions[keep/2:]...)
	}
	f.versions = append(f.versions, version{index, data})
}

func (r *rules) set(f *fileBook, i int, c cell) {
	old := f.cells[i].blob
	f.cells[i] = c
	if f.unlinked {
		return
	}
	if old != 0 {
		r.blobs[old].refs--
	}
	if c.blob != 0 {
		r.blobs[c.blob].refs++
	}
}

func (r *rules) fill(f *fileBook, off, end uint64) {
	for i := off; i < end; i++ {
		r.set(f, int(i), cell{})
	}
}

func (r *rules) resize(f *fileBook, size uint64) {
	n := uint64(len(f.cells))
	if size < n {
		r.fill(f, size, n)
		f.cells = f.cells[:size]
		return
	}
	f.cells = append(f.cells, make([]cell, size-n)...)
}

// forget takes a file's references off: its name is gone.
func (r *rules) forget(f *fileBook) {
	if f.unlinked {
		return
	}
	for _, c := range f.cells {
		if c.blob != 0 {
			r.blobs[c.blob].refs--
		}
	}
}

// at returns a file's content at an index.
func (f *fileBook) at(index uint64) ([]byte, bool) {
	i := sort.Search(len(f.versions), func(i int) bool { return f.versions[i].index > index })
	if i == 0 {
		return nil, false
	}
	return f.versions[i-1].data, true
}

// told: a client hears of an operation only once it is in the log.
func (r *rules) told(op uint64) {
	index, ok := r.done[op]
	if !ok {
		r.w.failf("operation %d is acknowledged and was not executed", op)
	}
	r.acked = max(r.acked, index)
}

// everyCopy: what files refer to is durable on every member that lives.
func (r *rules) everyCopy(only cluster.ReplicaSetID) {
	live := r.order[:0]
	for _, id := range r.order {
		b := r.blobs[id]
		if b.refs == 0 && only == 0 && r.final(id) {
			continue // nothing refers to it any more, and it cannot come again
		}
		live = append(live, id)
		if b.refs == 0 || only != 0 && b.set != only {
			continue
		}
		for _, m := range r.sets[b.set].Members {
			if s := r.w.store(m); !s.lost && !s.disk.durable(id) {
				r.w.failf("blob %v, which %d bytes of files are in, is not durable on store %d of set %d", id, b.refs, m, b.set)
			}
		}
	}
	r.order = live
}
