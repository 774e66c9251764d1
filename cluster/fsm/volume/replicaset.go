package volume

import (
	"slices"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

func init() {
	register(KindPutReplicaSet, command(applyPutReplicaSet))
	register(KindCollected, command(applyCollected))
}

// EventReplicaSets tells that a replica set was made or changed.
type EventReplicaSets struct{}

const (
	maxMembers = cluster.MaxData + cluster.MaxParity // stores in a replica set
	maxCopies  = 3
)

// loadSet returns a replica set, and whether there is one.
func loadSet(r fsm.Reader, id cluster.ReplicaSetID) (ReplicaSet, bool) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	val, ok := r.Get(s.val[:0], appendSetKey(s.key[:0], id))
	if !ok {
		return ReplicaSet{}, false
	}
	s.val = val[:0]
	return mustDecodeSet(val), true
}

func mustDecodeSet(val []byte) ReplicaSet {
	d := codec.NewDec(val)
	var set ReplicaSet
	decodeSet(&d, &set)
	if d.Done() != nil {
		damaged("replica set", uint64(set.ID))
	}
	return set
}

func storeSet(tx *fsm.Tx, set *ReplicaSet) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.val = appendSet(s.val[:0], set)
	tx.Set(appendSetKey(s.key[:0], set.ID), s.val)
}

// applyPutReplicaSet makes or changes a replica set. A store becomes a member
// of a set that has blobs only while the set is read-only: that is when all of
// its blobs can have been copied there.
func applyPutReplicaSet(tx *fsm.Tx, _ *fsm.Envelope, c *PutReplicaSet, dst []byte) ([]byte, cluster.Errno) {
	set := c.Set
	if !validSet(&set) {
		return dst, cluster.EINVAL
	}
	if set.ID == 0 {
		v, ok := loadRecord(tx)
		if !ok {
			return dst, cluster.EINVAL // not formatted
		}
		if v.NextSet == 0 {
			v.NextSet = 1
		}
		set.ID, set.Epoch = v.NextSet, 1
		v.NextSet++
		storeRecord(tx, &v)
	} else {
		old, ok := loadSet(tx, set.ID)
		if !ok {
			return dst, cluster.ENOENT
		}
		if on(ruleSetEpoch) && old.Epoch != set.Epoch {
			return dst, cluster.ECONFLICT
		}
		if old.State == Retired && set.State != Retired {
			return dst, cluster.EINVAL
		}
		if on(ruleSetCode) && old.Code != set.Code {
			return dst, cluster.EINVAL
		}
		if blobs := hasBlobs(tx, set.ID); blobs {
			if on(ruleQuiet) && old.State != ReadOnly && !slices.Equal(old.Members, set.Members) {
				return dst, cluster.EINVAL
			}
			if on(ruleRetire) && set.State == Retired {
				return dst, cluster.ENOTEMPTY
			}
		}
		set.Epoch++
	}
	storeSet(tx, &set)
	tx.Emit(EventReplicaSets{})
	return PutReplicaSetResult{Set: set}.AppendTo(dst), cluster.OK
}

func validSet(s *ReplicaSet) bool {
	if !s.Code.IsZero() && (!s.Code.Valid() || len(s.Members) != s.Code.Shards()) {
		return false
	}
	if len(s.Members) == 0 || len(s.Members) > maxMembers || s.Copies == 0 || s.Copies > maxCopies || s.State > Retired {
		return false
	}
	for i, m := range s.Members {
		if m == 0 || slices.Contains(s.Members[:i], m) {
			return false
		}
	}
	return true
}

// hasBlobs reports whether any blob is on the set.
func hasBlobs(r fsm.Reader, set cluster.ReplicaSetID) (has bool) {
	r.Ascend(appendSetBlobKey(nil, prefixSetBlob, set, 0), appendSetBlobKey(nil, prefixSetBlob, set+1, 0),
		func(_, _ []byte) bool {
			has = true
			return false
		})
	return has
}

// applyCollected runs Collected. A blob stays in the queue, and so can't be
// committed, until its writer is past it; then none will ever commit it.
func applyCollected(tx *fsm.Tx, _ *fsm.Envelope, c *Collected, dst []byte) ([]byte, cluster.Errno) {
	for _, id := range c.Blobs {
		w, known := tx.Writer(id.Writer())
		if on(ruleCollect) && !final(id, w, known) {
			continue
		}
		deleteSetBlob(tx, prefixGarbage, c.Set, id)
	}
	return dst, cluster.OK
}

// final reports whether no commit of a blob can come any more, from what is
// known of its writer.
func final(id cluster.BlobID, w fsm.Writer, known bool) bool {
	return known && (w.Fenced || id.Counter() < w.LowWater)
}
