package volume

import (
	"slices"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

func init() {
	register(KindReleaseUnlinked, command(applyReleaseUnlinked))
	register(KindReap, command(applyReap))
}

// EventUnlinked tells front-ends that the last name of a file is gone, or
// that they took over who may have it open from their earlier incarnation.
// Each answers with ReleaseUnlinked once it has the file not open (any more).
type EventUnlinked struct {
	Ino cluster.Ino
}

// EventReapable tells that an unlinked file can be freed by Reap: nobody has
// it open any more.
type EventReapable struct{}

const (
	// reclaimTime is how long a front-end that has restarted may take to have
	// its clients reclaim their opens. What its earlier incarnation held is
	// kept for so long, unless ReleaseNode says that they are done.
	reclaimTime = cluster.Time(5 * time.Minute)
	// maxLook is how many held inodes one Reap looks at.
	maxLook = 1024
	// maxReap bounds Reap.Max.
	maxReap = 16384
)

// unlink is called for a regular file whose last name is gone: it stays until
// no front-end has it open. The caller stores a.
func unlink(tx *fsm.Tx, a *cluster.Attr) cluster.Errno {
	live := tx.LiveWriters()
	if len(live) == 0 {
		setReady(tx, a.Ino)
		return cluster.OK
	}
	holders := make([]cluster.WriterID, len(live))
	for i := range live {
		holders[i] = live[i].ID
	}
	setHeld(tx, a.Ino, holders)
	tx.Emit(EventUnlinked{Ino: a.Ino})
	return cluster.OK
}

// setHeld stores who may have an unlinked inode open.
func setHeld(tx *fsm.Tx, ino cluster.Ino, holders []cluster.WriterID) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.val = s.val[:0]
	for _, w := range holders {
		s.val = codec.AppendUint32(s.val, uint32(w))
	}
	tx.Set(appendUnlinkedKey(s.key[:0], unlinkedHeld, ino), s.val)
}

// isHeld reports whether somebody may have an unlinked inode open.
func isHeld(r fsm.Reader, ino cluster.Ino) bool {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	val, ok := r.Get(s.val[:0], appendUnlinkedKey(s.key[:0], unlinkedHeld, ino))
	s.val = val[:0]
	return ok
}

// setReady says that an unlinked inode can be reaped.
func setReady(tx *fsm.Tx, ino cluster.Ino) {
	tx.Emit(EventReapable{})
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	tx.Set(appendUnlinkedKey(s.key[:0], unlinkedReady, ino), nil)
}

func deleteUnlinked(tx *fsm.Tx, list byte, ino cluster.Ino) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	tx.Delete(appendUnlinkedKey(s.key[:0], list, ino))
}

// appendHolders appends the writers of a held inode's record.
func appendHolders(dst []cluster.WriterID, ino cluster.Ino, val []byte) []cluster.WriterID {
	d := codec.NewDec(val)
	for d.Len() > 0 {
		dst = append(dst, cluster.WriterID(d.Uint32()))
	}
	if d.Done() != nil {
		damaged("the unlinked inode", uint64(ino))
	}
	return dst
}

// setHolders stores what is left of the holders of an inode.
func setHolders(tx *fsm.Tx, ino cluster.Ino, holders []cluster.WriterID) {
	if len(holders) > 0 {
		setHeld(tx, ino, holders)
		return
	}
	deleteUnlinked(tx, unlinkedHeld, ino)
	setReady(tx, ino)
}

// applyReleaseUnlinked runs ReleaseUnlinked. An inode that is not held by the
// writer is passed over: it may have been released before.
func applyReleaseUnlinked(tx *fsm.Tx, env *fsm.Envelope, c *ReleaseUnlinked, dst []byte) ([]byte, cluster.Errno) {
	var holders []cluster.WriterID
	var buf []byte
	for _, ino := range c.Inos {
		val, ok := tx.Get(buf[:0], appendUnlinkedKey(nil, unlinkedHeld, ino))
		if !ok {
			continue
		}
		buf = val
		holders = appendHolders(holders[:0], ino, val)
		i := slices.Index(holders, env.Writer)
		if i < 0 {
			continue
		}
		setHolders(tx, ino, slices.Delete(holders, i, i+1))
	}
	return dst, cluster.OK
}

// releaseHeld passes what the fenced writers of a node hold to the node's live
// writer, which says what is really open; if there is none, it is released.
func releaseHeld(tx *fsm.Tx, node cluster.NodeID) {
	var holders []cluster.WriterID
	tx.Ascend(appendUnlinkedBound(nil, unlinkedHeld), appendUnlinkedBound(nil, unlinkedReady), func(key, val []byte) bool {
		_, ino, ok := parseUnlinkedKey(key)
		if !ok {
			damaged("the unlinked inode", uint64(ino))
		}
		holders = appendHolders(holders[:0], ino, val)
		refreshHolders(tx, ino, holders, func(w fsm.Writer) bool { return w.Node == node })
		return true
	})
}

// refreshHolders passes what fenced writers hold, those for which gone is
// true, to their node's live writer, or releases it.
func refreshHolders(tx *fsm.Tx, ino cluster.Ino, holders []cluster.WriterID, gone func(fsm.Writer) bool) {
	kept := holders[:0:0]
	changed, passed := false, false
	for _, id := range holders {
		w, known := tx.Writer(id)
		if on(ruleHeld) && known && !(w.Fenced && gone(w)) {
			kept = append(kept, id)
			continue
		}
		changed = true
		if !known {
			continue
		}
		if heir, ok := liveWriter(tx, w.Node); ok && !slices.Contains(holders, heir.ID) && !slices.Contains(kept, heir.ID) {
			kept = append(kept, heir.ID)
			passed = true
		}
	}
	if !changed {
		return
	}
	setHolders(tx, ino, kept)
	if passed {
		tx.Emit(EventUnlinked{Ino: ino})
	}
}

// liveWriter returns a node's live writer; there is at most one.
func liveWriter(tx *fsm.Tx, node cluster.NodeID) (fsm.Writer, bool) {
	for _, w := range tx.LiveWriters() {
		if w.Node == node {
			return w, true
		}
	}
	return fsm.Writer{}, false
}
