package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/vfs/writer"
)

// Sizes of the simulated world, where a blob is small so that there are many.
const (
	maxInline = 48
	maxBlob   = 160
	maxFile   = 1200
	retries   = 6
	hedge     = 200 * time.Millisecond
	attempts  = 4
)

// placed says where a blob was put.
type placed struct {
	id    cluster.BlobID
	set   cluster.ReplicaSetID
	epoch uint32
	data  []byte
}

func (p *placed) newBlob() volume.NewBlob {
	return volume.NewBlob{ID: p.id, Set: p.set, Epoch: p.epoch, Len: uint32(len(p.data)), CRC: checksum.Sum(p.data)}
}

// writeThrough writes p and commits it (vfs: mount.writeThrough).
func (fe *frontEnd) writeThrough(t *task, s *writer.Session, ino cluster.Ino, off uint64, p []byte, op uint64, early func()) error {
	for range retries {
		c := volume.CommitExtents{Ino: ino, Mtime: cluster.Time(op)}
		var ids []cluster.BlobID
		if len(p) <= maxInline {
			c.Extents = append(c.Extents, volume.NewExtent{Off: off, Len: uint32(len(p)), Bytes: p})
		}
		for done := 0; done < len(p) && len(p) > maxInline; {
			n := min(len(p)-done, maxBlob)
			pl, err := fe.put(t, s, p[done:done+n])
			if err != nil {
				s.Finish(ids...)
				return cluster.EAGAIN
			}
			ids = append(ids, pl.id)
			c.Blobs = append(c.Blobs, pl.newBlob())
			c.Extents = append(c.Extents, volume.NewExtent{Off: off + uint64(done), Len: uint32(n), Blob: pl.id})
			done += n
		}
		if fe.w.broken(BreakAck) {
			early()
		}
		if fe.w.broken(BreakFinish) {
			s.Finish(ids...) // before the outcome is known
		}
		if fe.w.broken(BreakWhole) && len(c.Blobs) > 1 {
			d := c
			d.Blobs, d.Extents = c.Blobs[:1], c.Extents[:1]
			c.Blobs, c.Extents = c.Blobs[1:], c.Extents[1:]
			if _, _, err := fe.proposeBy(s, d); err != nil {
				return cluster.EAGAIN
			}
		}
		_, _, err := fe.proposeBy(s, c)
		s.Finish(ids...)
		switch {
		case errors.Is(err, cluster.ERETRY):
			continue
		case errors.Is(err, cluster.EFENCED):
			return cluster.EAGAIN
		default:
			return err
		}
	}
	return cluster.EAGAIN
}

// A putTry puts a blob to one set under one id.
type putTry struct {
	placed
	members []cluster.StoreID
	have    []bool
	left    int
	failed  bool
	ended   bool // its result was seen
}

// put puts data to all members of a set, and to another one under a new id
// after a while or an error; the first whole one wins (datastore/placement:
// put.run with mount.put).
func (fe *frontEnd) put(t *task, s *writer.Session, data []byte) (placed, error) {
	var tries []*putTry
	var tried []cluster.ReplicaSetID
	var avoid []cluster.StoreID
	abandon := func(won *putTry) {
		for _, a := range tries {
			if a != won {
				fe.w.count.abandoned++
				s.Finish(a.id)
			}
		}
	}
	begin := func() error {
		if len(tries) == attempts {
			return cluster.EAGAIN
		}
		set, ok := fe.choose(tried, avoid)
		if !ok {
			return cluster.ENOSPC
		}
		id, err := s.Alloc()
		if err != nil {
			return err
		}
		if fe.w.broken(BreakNewID) && fe.lastID.Writer() == id.Writer() && fe.w.oneIn(10) {
			id = fe.lastID
		}
		fe.lastID = id
		tried = append(tried, set.ID)
		a := &putTry{placed: placed{id, set.ID, set.Epoch, data}, members: set.Members, have: make([]bool, len(set.Members)), left: len(set.Members)}
		tries = append(tries, a)
		for i, m := range set.Members {
			st := fe.w.store(m)
			request(fe.w, fe.n, st.n, func(reply func(error)) { st.put(a.id, a.set, a.epoch, data, reply) }, func(err error) {
				switch {
				case err != nil:
					a.failed = true
				case !a.have[i]:
					a.have[i] = true
					a.left--
					if fe.w.broken(BreakCopies) {
						a.left = 0
					}
				}
				t.wake()
			})
		}
		return nil
	}
	if err := begin(); err != nil {
		return placed{}, err
	}
	for running := 1; ; {
		var ended *putTry
		t.wait(hedge, func() bool {
			for _, a := range tries {
				if !a.ended && (a.left == 0 || a.failed) {
					ended = a
					return true
				}
			}
			return false
		})
		switch {
		case ended == nil && running > 1 && len(tries) < attempts:
			// Two at a time are enough, until one is given up.
			for _, a := range tries {
				if !a.ended {
					a.failed = true
					break
				}
			}
			continue
		case ended == nil:
			for _, a := range tries {
				for i, m := range a.members {
					if !a.have[i] {
						avoid = append(avoid, m)
					}
				}
			}
			fe.w.count.hedged++
			if running > 0 && len(tries) == attempts {
				for _, a := range tries {
					a.failed = true
				}
				continue
			}
		case !ended.failed:
			abandon(ended)
			return ended.placed, nil
		default:
			ended.ended = true
			running--
		}
		if err := begin(); err == nil {
			running++
		} else if running == 0 {
			abandon(nil)
			return placed{}, err
		} else if ended == nil {
			// No other set: what is under way has its time-out.
			for _, a := range tries {
				a.failed = a.failed || !fe.w.store(a.members[0]).n.up || fe.w.oneIn(4)
			}
		}
	}
}

// choose picks a set whose members are thought to be up.
func (fe *frontEnd) choose(tried []cluster.ReplicaSetID, avoid []cluster.StoreID) (volume.ReplicaSet, bool) {
	var good, bad []volume.ReplicaSet
	for _, set := range fe.n.replica.view.ReplicaSets() {
		if set.State != volume.Writable && !fe.w.broken(BreakChoose) || set.State == volume.Retired || slices.Contains(tried, set.ID) {
			continue
		}
		up, avoided := true, false
		for _, m := range set.Members {
			s := fe.w.store(m)
			up = up && !s.lost && linked(fe.n, s.n)
			avoided = avoided || slices.Contains(avoid, m)
		}
		switch {
		case !up && !fe.w.oneIn(10): // health is not always right
		case avoided:
			bad = append(bad, set)
		default:
			good = append(good, set)
		}
	}
	if len(good) == 0 {
		good = bad
	}
	if len(good) == 0 {
		return volume.ReplicaSet{}, false
	}
	return good[fe.w.rng.IntN(len(good))], true
}
