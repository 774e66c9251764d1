package volume

import (
	"fmt"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// A Problem is an invariant of the volume that does not hold. The members that
// it is not about are 0.
type Problem struct {
	Ino  cluster.Ino
	Blob cluster.BlobID
	Set  cluster.ReplicaSetID
	Text string
}

// String returns the problem as a line of text.
func (p Problem) String() string {
	s := p.Text
	if p.Set != 0 {
		s = fmt.Sprintf("replica set %d: %s", p.Set, s)
	}
	if p.Blob != 0 {
		s = fmt.Sprintf("blob %v: %s", p.Blob, s)
	}
	if p.Ino != 0 {
		s = fmt.Sprintf("inode %d: %s", p.Ino, s)
	}
	return s
}

// A CheckResult counts what Check has looked at.
type CheckResult struct {
	Inodes, Entries, Extents, Blobs, Garbage, Sets, Locks, States, Unlinked, Problems uint64
}

// countMax is how many reference or link counts Check holds in memory; with
// more, it reads the records that refer to them several times. Tests lower it.
var countMax uint64 = 4 << 20

// Check reads the whole volume and reports each invariant that does not hold:
// of the tree, the extents, the blobs and their references, the replica sets,
// the locks and states, and the usage. v must be of one state: a Snapshot's, or that of a
// machine at rest. What the stores hold of the blobs is not its business.
func Check(v View, report func(Problem)) CheckResult {
	c := checker{Reader: v.Reader, report: report, sets: make(map[cluster.ReplicaSetID]ReplicaSet), writers: make(map[cluster.WriterID]fsm.Writer)}
	c.checkKeys()
	rec, ok := c.checkRecord()
	if !ok {
		return c.CheckResult
	}
	c.rec = rec
	fsm.LoadWriters(v.Reader, func(w fsm.Writer) bool {
		c.writers[w.ID] = w
		return true
	})
	c.checkSets()
	c.checkInodes()
	c.checkDirents()
	c.checkLinks()
	c.checkTree()
	c.checkXattrs()
	c.checkExtents()
	c.checkBlobs()
	c.checkRefs()
	c.checkOwners()
	c.checkThin()
	c.checkMarks()
	c.checkSetBlobs()
	c.checkGarbage()
	c.checkToCode()
	c.checkLocks()
	c.checkLockIndex()
	c.checkStates()
	c.checkStateIndex()
	c.checkUnlinked()
	c.checkUsage()
	return c.CheckResult
}

type checker struct {
	fsm.Reader
	CheckResult
	report  func(Problem)
	rec     record
	sets    map[cluster.ReplicaSetID]ReplicaSet
	writers map[cluster.WriterID]fsm.Writer
	usage   Usage // counted

	// The inode that was looked up last.
	ino   inode
	inoIs bool
}

func (c *checker) problem(p Problem) {
	c.Problems++
	c.report(p)
}

func (c *checker) inodef(ino cluster.Ino, format string, args ...any) {
	c.problem(Problem{Ino: ino, Text: fmt.Sprintf(format, args...)})
}

func (c *checker) blobf(id cluster.BlobID, format string, args ...any) {
	c.problem(Problem{Blob: id, Text: fmt.Sprintf(format, args...)})
}

// each calls fn for every key that begins with prefix.
func (c *checker) each(prefix byte, fn func(key, val []byte)) {
	c.Ascend([]byte{prefix}, []byte{prefix + 1}, func(key, val []byte) bool {
		fn(key, val)
		return true
	})
}

// inode returns an inode; one that is damaged was reported by checkInodes.
func (c *checker) inode(ino cluster.Ino) (*inode, bool) {
	if c.ino.Ino == ino && ino != 0 {
		return &c.ino, c.inoIs
	}
	c.ino, c.inoIs = inode{}, false
	if val, ok := c.Get(nil, appendInodeKey(nil, ino)); ok {
		n, err := decodeInode(val)
		c.ino, c.inoIs = n, err == nil
	}
	c.ino.Ino = ino
	return &c.ino, c.inoIs
}

// parts returns in how many passes n counts are made.
func parts(n uint64) uint64 { return n/countMax + 1 }

// checkKeys reports keys that belong to nothing.
func (c *checker) checkKeys() {
	for p := byte('A'); p <= 'Z'; p++ {
		switch p {
		case prefixVolume, prefixInode, prefixDirent, prefixXattr, prefixExtent, prefixBlob, prefixSetBlob,
			prefixGarbage, prefixSet, prefixLock, prefixState, prefixUnlinked, prefixUsage, prefixMark, prefixOwner,
			prefixThin, prefixToCode, 'W':
			continue
		}
		c.Ascend([]byte{p}, []byte{p + 1}, func(key, _ []byte) bool {
			c.problem(Problem{Text: fmt.Sprintf("keys like %q belong to nothing", key)})
			return false
		})
	}
}

func (c *checker) checkRecord() (record, bool) {
	val, ok := c.Get(nil, []byte{prefixVolume})
	if !ok {
		// Before Format there is nothing but, at most, writers.
		c.Ascend([]byte{'A'}, []byte{'W'}, func(key, _ []byte) bool {
			c.problem(Problem{Text: fmt.Sprintf("there is no volume record, but a key %q", key)})
			return false
		})
		return record{}, false
	}
	rec, err := decodeRecord(val)
	if err != nil {
		c.problem(Problem{Text: "the volume record is damaged: " + err.Error()})
		return record{}, false
	}
	return rec, true
}

// checkUsage compares what was counted on the way with what commands counted.
func (c *checker) checkUsage() {
	var u Usage
	c.each(prefixUsage, func(key, val []byte) {
		d := codec.NewDec(val)
		u = Usage{Bytes: d.Uvarint(), Inodes: d.Uvarint()}
		if d.Done() != nil || string(key) != string(appendUsageKey(nil, usageVolume, 0)) {
			c.problem(Problem{Text: fmt.Sprintf("usage record %x is of nothing, or damaged", key)})
		}
	})
	if u != c.usage {
		c.problem(Problem{Text: fmt.Sprintf("usage says %d bytes and %d inodes, there are %d and %d",
			u.Bytes, u.Inodes, c.usage.Bytes, c.usage.Inodes)})
	}
}
