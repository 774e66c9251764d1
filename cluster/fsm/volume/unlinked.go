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

// EventUnlinked tells front-ends that the last name of a file is gone. Each
// answers with PutStates, which records the opens that it knows of, or with
// ReleaseUnlinked if it has the file not open (any more).
type EventUnlinked struct {
	Ino cluster.Ino
}

// EventReapable tells that an unlinked file can be freed by Reap: nobody has
// it open any more.
type EventReapable struct{}

const (
	// HoldTime is how long a file is kept for a writer that was fenced before
	// it said whether it had the file open: whoever serves its clients then
	// records their opens as they come back.
	HoldTime = cluster.Time(time.Hour)
	// maxLook is how many held inodes one Reap looks at.
	maxLook = 1024
	// maxReap bounds Reap.Max.
	maxReap = 16384
)

// unlink is called for a regular file whose last name is gone: it stays as
// long as a state of it is recorded, or a front-end may have it open. The
// caller stores a.
func unlink(tx *fsm.Tx, a *cluster.Attr) cluster.Errno {
	live := tx.LiveWriters()
	holders := make([]cluster.WriterID, len(live))
	for i := range live {
		holders[i] = live[i].ID
	}
	setHolders(tx, a.Ino, holders)
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

// setHolders stores the writers that may have an unlinked inode open: it is
// held by them, and by its states.
func setHolders(tx *fsm.Tx, ino cluster.Ino, holders []cluster.WriterID) {
	if len(holders) > 0 || on(ruleStates) && hasStates(tx, ino) {
		setHeld(tx, ino, holders)
		return
	}
	deleteUnlinked(tx, unlinkedHeld, ino)
	setReady(tx, ino)
}

// settleHeld makes an inode ready to be reaped if it is unlinked, a state was
// the last that held it, and the state is gone.
func settleHeld(tx *fsm.Tx, ino cluster.Ino) {
	if holders, held := holdersOf(tx, ino); held && len(holders) == 0 {
		setHolders(tx, ino, nil)
	}
}

// holdersOf returns the writers that hold an inode, and whether it is held.
func holdersOf(r fsm.Reader, ino cluster.Ino) (holders []cluster.WriterID, held bool) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	val, ok := r.Get(s.val[:0], appendUnlinkedKey(s.key[:0], unlinkedHeld, ino))
	s.val = val[:0]
	if !ok {
		return nil, false
	}
	return appendHolders(nil, ino, val), true
}

// holds reports whether a writer is among those that hold an inode.
func holds(r fsm.Reader, ino cluster.Ino, w cluster.WriterID) bool {
	holders, _ := holdersOf(r, ino)
	return slices.Contains(holders, w)
}

// releaseHold ends a writer's hold of an inode, if it has one.
func releaseHold(tx *fsm.Tx, ino cluster.Ino, w cluster.WriterID) {
	holders, _ := holdersOf(tx, ino)
	if i := slices.Index(holders, w); i >= 0 {
		setHolders(tx, ino, slices.Delete(holders, i, i+1))
	}
}

// applyReleaseUnlinked runs ReleaseUnlinked. An inode that is not held by the
// writer is passed over: it may have been released before.
func applyReleaseUnlinked(tx *fsm.Tx, env *fsm.Envelope, c *ReleaseUnlinked, dst []byte) ([]byte, cluster.Errno) {
	for _, ino := range c.Inos {
		releaseHold(tx, ino, env.Writer)
	}
	return dst, cluster.OK
}

// refreshHolders ends the holds of writers that are gone.
func refreshHolders(tx *fsm.Tx, ino cluster.Ino, holders []cluster.WriterID) {
	kept := holders[:0:0]
	for _, id := range holders {
		if w, known := tx.Writer(id); known && !holdExpired(&w, tx.Time()) {
			kept = append(kept, id)
		}
	}
	if len(kept) < len(holders) {
		setHolders(tx, ino, kept)
	}
}

// holdExpired reports whether what a writer holds is given up: it was fenced
// long ago.
func holdExpired(w *fsm.Writer, now cluster.Time) bool {
	return !on(ruleHeld) || w.Fenced && now > max(w.FencedAt, w.Opened)+HoldTime
}
