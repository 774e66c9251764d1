package volume

import (
	"bytes"
	"errors"
	"testing"

	"github.com/hawserfs/hawser/cluster"
)

// commitOf is a commit of one blob, all of it at the start of ino.
func commitOf(ino cluster.Ino, b NewBlob) CommitExtents {
	return CommitExtents{Ino: ino, Blobs: []NewBlob{b}, Extents: []NewExtent{{Len: b.Len, Blob: b.ID}}}
}

func errOf(_ []byte, err error) error { return err }

// TestRules has a violation of each rule. It is refused; and with the rule
// switched off, the test notices.
func TestRules(t *testing.T) {
	var set ReplicaSet
	var ino cluster.Ino
	lock := func(owner byte, start, end uint64, excl bool) Lock {
		return Lock{Ino: ino, Owner: LockOwner{owner}, Client: 1, Start: start, End: end, Exclusive: excl}
	}
	for _, c := range []struct {
		name string
		rule rule
		try  func(e *dataEnv) error
		want error // nil: try returns an error of its own if the rule is broken
	}{
		{"blob of another writer", ruleOwnBlob, func(e *dataEnv) error {
			return errOf(e.apply("a", commitOf(ino, e.blob("b", set, 10))))
		}, cluster.ERETRY},
		{"blob below the low-water mark", ruleLowWater, func(e *dataEnv) error {
			b := e.blob("a", set, 10)
			e.writers["a"].low = b.ID.Counter() + 1
			e.must("a", Touch{})
			return errOf(e.apply("a", commitOf(ino, b)))
		}, cluster.ERETRY},
		{"blob committed twice", ruleOnce, func(e *dataEnv) error {
			b := e.blob("a", set, 10)
			e.must("a", commitOf(ino, b))
			return errOf(e.apply("a", commitOf(e.create("other"), b)))
		}, cluster.ERETRY},
		{"blob in the delete queue", ruleNotGarbage, func(e *dataEnv) error {
			b := e.blob("a", set, 10)
			e.must("a", commitOf(ino, b))
			e.must("a", Punch{Ino: ino, Len: 10})
			if !e.inGarbage(set.ID, b.ID) {
				t.Fatal("not in the delete queue")
			}
			return errOf(e.apply("a", commitOf(ino, b)))
		}, cluster.ERETRY},
		{"old epoch", ruleEpoch, func(e *dataEnv) error {
			b := e.blob("a", set, 10)
			e.must("", PutReplicaSet{Set: set})
			return errOf(e.apply("a", commitOf(ino, b)))
		}, cluster.ERETRY},
		{"read-only set", ruleWritable, func(e *dataEnv) error {
			ro := set
			ro.State = ReadOnly
			e.must("", PutReplicaSet{Set: ro})
			ro.Epoch++
			return errOf(e.apply("a", commitOf(ino, e.blob("a", ro, 10))))
		}, cluster.ERETRY},
		{"extent of a blob that is there", ruleNewBlob, func(e *dataEnv) error {
			b := e.blob("a", set, 10)
			e.must("a", commitOf(ino, b))
			return errOf(e.apply("a", CommitExtents{Ino: e.create("other"), Extents: []NewExtent{{Len: 10, Blob: b.ID}}}))
		}, cluster.EINVAL},
		{"extent beyond its blob", ruleBlobBounds, func(e *dataEnv) error {
			c := commitOf(ino, e.blob("a", set, 10))
			c.Extents[0].BlobOff = 1
			return errOf(e.apply("a", c))
		}, cluster.EINVAL},
		{"collected while its writer may commit it again", ruleCollect, func(e *dataEnv) error {
			b := e.blob("a", set, 10)
			e.must("a", commitOf(ino, b))
			e.must("a", Punch{Ino: ino, Len: 10})
			e.must("b", Collected{Set: set.ID, Blobs: []cluster.BlobID{b.ID}})
			return errOf(e.apply("a", commitOf(ino, b)))
		}, cluster.ERETRY},
		{"new member of a writable set with blobs", ruleQuiet, func(e *dataEnv) error {
			e.must("a", commitOf(ino, e.blob("a", set, 10)))
			moved := set
			moved.Members = []cluster.StoreID{1, 9}
			return errOf(e.apply("", PutReplicaSet{Set: moved}))
		}, cluster.EINVAL},
		{"set retired with blobs", ruleRetire, func(e *dataEnv) error {
			e.must("a", commitOf(ino, e.blob("a", set, 10)))
			gone := set
			gone.State = Retired
			return errOf(e.apply("", PutReplicaSet{Set: gone}))
		}, cluster.ENOTEMPTY},
		{"set changed from an old epoch", ruleSetEpoch, func(e *dataEnv) error {
			e.must("", PutReplicaSet{Set: set})
			return errOf(e.apply("", PutReplicaSet{Set: set}))
		}, cluster.ECONFLICT},
		{"set of another code", ruleSetCode, func(e *dataEnv) error {
			coded := set
			coded.Members, coded.Code = []cluster.StoreID{1, 2, 3}, cluster.Code{K: 2, M: 1}
			return errOf(e.apply("", PutReplicaSet{Set: coded}))
		}, cluster.EINVAL},
		{"recoded into other bytes", ruleRecodeSame, func(e *dataEnv) error {
			b, to := e.blob("a", set, 10), e.blob("a", set, 10)
			e.must("a", commitOf(ino, b))
			to.CRC++
			return errOf(e.apply("a", Recode{Blob: b.ID, From: b.ID, To: to}))
		}, cluster.EINVAL},
		{"recoded from a form that is gone", ruleRecodeFrom, func(e *dataEnv) error {
			b, one, two := e.blob("a", set, 10), e.blob("a", set, 10), e.blob("a", set, 10)
			e.must("a", commitOf(ino, b))
			e.must("a", Recode{Blob: b.ID, From: b.ID, To: one})
			return errOf(e.apply("a", Recode{Blob: b.ID, From: b.ID, To: two}))
		}, cluster.ECONFLICT},
		{"recoded into a blob of another writer", ruleOwnBlob, func(e *dataEnv) error {
			b := e.blob("a", set, 10)
			e.must("a", commitOf(ino, b))
			return errOf(e.apply("a", Recode{Blob: b.ID, From: b.ID, To: e.blob("b", set, 10)}))
		}, cluster.ERETRY},
		{"recoded into a blob that its writer is past", ruleLowWater, func(e *dataEnv) error {
			b, to := e.blob("a", set, 10), e.blob("a", set, 10)
			e.must("a", commitOf(ino, b))
			e.writers["a"].low = to.ID.Counter() + 1
			e.must("a", Touch{})
			return errOf(e.apply("a", Recode{Blob: b.ID, From: b.ID, To: to}))
		}, cluster.ERETRY},
		{"recoded onto a set that has changed", ruleEpoch, func(e *dataEnv) error {
			b, to := e.blob("a", set, 10), e.blob("a", set, 10)
			e.must("a", commitOf(ino, b))
			e.must("", PutReplicaSet{Set: set})
			return errOf(e.apply("a", Recode{Blob: b.ID, From: b.ID, To: to}))
		}, cluster.ERETRY},
		{"committed again after it was recoded", ruleOnce, func(e *dataEnv) error {
			b, to := e.blob("a", set, 10), e.blob("a", set, 10)
			e.must("a", commitOf(ino, b))
			e.must("a", Recode{Blob: b.ID, From: b.ID, To: to})
			if err := errOf(e.apply("a", commitOf(e.create("one"), b))); !errors.Is(err, cluster.ERETRY) {
				return err
			}
			return errOf(e.apply("a", commitOf(e.create("other"), to)))
		}, cluster.ERETRY},
		{"conflicting lock", ruleConflict, func(e *dataEnv) error {
			e.must("a", lock(1, 0, 10, false))
			return errOf(e.apply("b", lock(2, 10, 20, true)))
		}, cluster.ELOCKED},
		{"open of what is denied", ruleShare, func(e *dataEnv) error {
			e.must("a", PutState{Ino: ino, State: State{Other: StateID{1}, Client: 1, Access: ShareRead, Deny: ShareWrite}})
			return errOf(e.apply("b", PutState{Ino: ino, State: State{Other: StateID{2}, Client: 2, Access: ShareWrite}}))
		}, cluster.ESHARE},
		{"reaped while an open is recorded", ruleStates, func(e *dataEnv) error {
			e.must("a", PutState{Ino: ino, State: State{Other: StateID{1}, Access: ShareWrite}})
			e.must("a", Remove{Dir: cluster.RootIno, Name: "f"})
			e.must("a", ReleaseUnlinked{Inos: []cluster.Ino{ino}})
			e.must("b", ReleaseUnlinked{Inos: []cluster.Ino{ino}})
			e.must("", Reap{Max: 100})
			if _, ok := e.view.Inode(ino); !ok {
				return errors.New("gone")
			}
			return nil
		}, nil},
		{"reaped while open", ruleHeld, func(e *dataEnv) error {
			e.must("a", Remove{Dir: cluster.RootIno, Name: "f"})
			e.must("a", ReleaseUnlinked{Inos: []cluster.Ino{ino}})
			e.must("", Reap{Max: 100})
			if _, ok := e.view.Inode(ino); !ok {
				return errors.New("gone")
			}
			return nil
		}, nil},
		{"written while it is reaped", ruleReaped, func(e *dataEnv) error {
			c := CommitExtents{Ino: ino, Extents: []NewExtent{inline(0, []byte("x")), inline(100, []byte("y"))}}
			e.must("a", c)
			e.must("a", Remove{Dir: cluster.RootIno, Name: "f"})
			e.must("a", ReleaseUnlinked{Inos: []cluster.Ino{ino}})
			e.must("b", ReleaseUnlinked{Inos: []cluster.Ino{ino}})
			e.must("", Reap{Max: 1})
			return errOf(e.apply("a", c))
		}, cluster.ESTALE},
		{"other bytes than those that were put", ruleSameBytes, func(e *dataEnv) error {
			e.must("a", CommitExtents{Ino: ino, Extents: []NewExtent{inline(0, page(1, 2000))}})
			p := e.packing("b", set, 2000)
			p.all(1<<20, ino)
			e.must("a", CommitExtents{Ino: ino, Extents: []NewExtent{inline(7, []byte("new"))}})
			return p.unchanged(ino)
		}, nil},
		{"a blob in place of a newer one", ruleSameExtent, func(e *dataEnv) error {
			e.must("a", commitOf(ino, e.blob("a", set, 2000)))
			p := e.packing("b", set, 2000)
			p.all(1<<20, ino)
			e.must("a", commitOf(ino, e.blob("a", set, 2000)))
			return p.unchanged(ino)
		}, nil},
		{"a mark that is newer than what was looked at", ruleMarked, func(e *dataEnv) error {
			e.must("a", CommitExtents{Ino: ino, Extents: []NewExtent{inline(0, page(1, 2000))}})
			p := e.packing("b", set, 2000)
			p.all(1<<20, ino)
			p.c.Done = []Mark{e.markOf(ino)}
			e.must("a", CommitExtents{Ino: ino, Extents: []NewExtent{inline(5000, page(2, 3000))}})
			p.run()
			return firstOf(e.problems())
		}, nil},
	} {
		run := func() error {
			e := newData(t)
			defer e.close()
			e.open("a", "n1")
			e.open("b", "n2")
			set = e.set(1, 2)
			ino = e.create("f")
			return c.try(e)
		}
		if err := run(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		withoutRule(c.rule, func() {
			if err := run(); errors.Is(err, c.want) {
				t.Errorf("%s: the test does not notice that the rule is off", c.name)
			}
		})
	}
}

// unchanged runs the packing and returns an error if ino reads otherwise then.
func (p *packing) unchanged(ino cluster.Ino) error {
	want := p.e.read(ino)
	if p.run(); !bytes.Equal(p.e.read(ino), want) {
		return errors.New("the file reads otherwise")
	}
	return nil
}

func firstOf(problems []string) error {
	if len(problems) > 0 {
		return errors.New(problems[0])
	}
	return nil
}

// TestCommitRefusals are the other checks of CommitExtents: it applies whole
// or not at all.
func TestCommitRefusals(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	set := e.set(1, 2)
	ino := e.create("f")
	dir, err := DecodeCreateResult(e.must("", Create{Dir: 1, Name: "d", Type: cluster.TypeDirectory, Gen: 1}))
	if err != nil {
		t.Fatal(err)
	}
	big := make([]byte, cluster.MaxInline+1)
	b := e.blob("a", set, 10)
	for _, c := range []struct {
		name string
		c    CommitExtents
		by   string
		want error
	}{
		{"no writer", CommitExtents{Ino: ino, Extents: []NewExtent{inline(0, []byte("x"))}}, "", cluster.EINVAL},
		{"no inode", CommitExtents{Ino: 99, Extents: []NewExtent{inline(0, []byte("x"))}}, "a", cluster.ESTALE},
		{"directory", CommitExtents{Ino: dir.Attr.Ino, Extents: []NewExtent{inline(0, []byte("x"))}}, "a", cluster.EISDIR},
		{"no bytes", CommitExtents{Ino: ino, Extents: []NewExtent{{Len: 3}}}, "a", cluster.EINVAL},
		{"empty extent", CommitExtents{Ino: ino, Extents: []NewExtent{{}}}, "a", cluster.EINVAL},
		{"too many bytes", CommitExtents{Ino: ino, Extents: []NewExtent{inline(0, big)}}, "a", cluster.EINVAL},
		{"too large a file", CommitExtents{Ino: ino, Extents: []NewExtent{inline(cluster.MaxFileSize, []byte("x"))}}, "a", cluster.EFBIG},
		{"offset wraps", CommitExtents{Ino: ino, Extents: []NewExtent{inline(^uint64(0), []byte("x"))}}, "a", cluster.EFBIG},
		{"same blob twice", CommitExtents{Ino: ino, Blobs: []NewBlob{b, b}, Extents: []NewExtent{{Len: 10, Blob: b.ID}}}, "a", cluster.EINVAL},
		{"empty blob", CommitExtents{Ino: ino, Blobs: []NewBlob{{ID: b.ID, Set: set.ID, Epoch: set.Epoch}}}, "a", cluster.EINVAL},
		{"no such set", CommitExtents{Ino: ino, Blobs: []NewBlob{{ID: b.ID, Set: 99, Epoch: 1, Len: 1}}}, "a", cluster.ERETRY},
		{"second extent is bad", CommitExtents{
			Ino: ino, Blobs: []NewBlob{b},
			Extents: []NewExtent{{Len: 10, Blob: b.ID}, {Off: 5, Len: 11, Blob: b.ID}},
		}, "a", cluster.EINVAL},
	} {
		if _, err := e.apply(c.by, c.c); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if a, _ := e.view.Inode(ino); a.Size != 0 || a.Used != 0 || e.extents(ino) != "" || e.refs(b.ID) != 0 {
			t.Fatalf("%s: left something behind", c.name)
		}
		e.check()
	}
	// A fenced writer commits nothing.
	e.open("a2", "n1")
	if _, err := e.apply("a", commitOf(ino, b)); !errors.Is(err, cluster.EFENCED) {
		t.Errorf("fenced writer: %v", err)
	}
	// Its successor does not commit what it has put.
	if _, err := e.apply("a2", commitOf(ino, b)); !errors.Is(err, cluster.ERETRY) {
		t.Errorf("successor: %v", err)
	}
	if !e.view.Deletable(b.ID) {
		t.Error("an orphan of a fenced writer is not deletable")
	}
}

func TestDeletable(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	set := e.set(1, 2)
	ino := e.create("f")
	orphan, used := e.blob("a", set, 10), e.blob("a", set, 20)
	say := func(when string, o, u bool) {
		t.Helper()
		if got := e.view.Deletable(orphan.ID); got != o {
			t.Errorf("%s: orphan deletable: %v", when, got)
		}
		if got := e.view.Deletable(used.ID); got != u {
			t.Errorf("%s: used deletable: %v", when, got)
		}
	}
	say("put only", false, false)
	e.must("a", commitOf(ino, used))
	say("committed", false, false)
	e.writers["a"].low = used.ID.Counter() + 1
	e.must("a", Touch{})
	say("past them", true, false)
	e.must("a", Punch{Ino: ino, Len: 100})
	say("punched", true, true)
	n := 0
	e.view.Garbage(set.ID, 0, func(g Garbage) bool {
		if n++; g.Blob != used.ID || g.Set != set.ID || g.Index != e.index || g.Time != cluster.Time(e.index) {
			t.Errorf("garbage %+v", g)
		}
		return true
	})
	e.must("a", Collected{Set: set.ID, Blobs: []cluster.BlobID{used.ID, orphan.ID}})
	if n != 1 || e.inGarbage(set.ID, used.ID) {
		t.Errorf("%d garbage, still there: %v", n, e.inGarbage(set.ID, used.ID))
	}
	say("collected", true, true)
	if e.view.Deletable(cluster.MakeBlobID(77, 1)) {
		t.Error("a blob of a writer that is not known is deletable")
	}
	e.check()
}

// TestUnusedBlob: a blob that no extent of its commit uses goes to the delete
// queue, as does one that the same command covers again.
func TestUnusedBlob(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	set := e.set(1, 2)
	ino := e.create("f")
	b1, b2, b3 := e.blob("a", set, 10), e.blob("a", set, 10), e.blob("a", set, 10)
	e.must("a", CommitExtents{
		Ino: ino, Blobs: []NewBlob{b1, b2, b3},
		Extents: []NewExtent{{Len: 10, Blob: b1.ID}, {Len: 10, Blob: b2.ID}, {Off: 2, Len: 3, Blob: b2.ID, BlobOff: 2}},
	})
	if e.refs(b1.ID) != 0 || e.refs(b2.ID) != 3 || e.refs(b3.ID) != 0 || !e.inGarbage(set.ID, b1.ID) || !e.inGarbage(set.ID, b3.ID) {
		t.Errorf("references %d %d %d", e.refs(b1.ID), e.refs(b2.ID), e.refs(b3.ID))
	}
	e.check()
}
