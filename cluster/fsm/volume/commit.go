package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

func init() {
	register(KindCommitExtents, command(applyCommit))
	register(KindPunch, command(applyPunch))
	register(KindClone, command(applyClone))
}

// applyCommit runs CommitExtents, the rules of which are the safety of the
// data path. The engine has seen to it that the writer is not fenced and that
// the command was not applied before.
func applyCommit(tx *fsm.Tx, env *fsm.Envelope, c *CommitExtents, dst []byte) ([]byte, cluster.Errno) {
	w, ok := tx.Writer(env.Writer)
	if !ok {
		return dst, cluster.EINVAL
	}
	n, errno := loadFile(tx, c.Ino)
	if errno != cluster.OK {
		return dst, errno
	}
	for i := range c.Blobs {
		if errno := checkNewBlob(tx, &w, &c.Blobs[i]); errno != cluster.OK {
			return dst, errno
		}
	}
	m := beginMap(tx, &n.Attr)
	if !m.led.enter(c.Blobs) {
		m.abandon()
		return dst, cluster.EINVAL
	}
	for i := range c.Extents {
		x := &c.Extents[i]
		if errno := m.checkNewExtent(x); errno != cluster.OK {
			m.abandon()
			return dst, errno
		}
		e := Extent{Off: x.Off, Len: x.Len, Blob: x.Blob, BlobOff: x.BlobOff, Bytes: x.Bytes}
		m.put(&e)
	}
	n.Size = m.size
	if errno := m.end(&n.Attr); errno != cluster.OK {
		return dst, errno
	}
	for i := range c.Extents {
		if x := &c.Extents[i]; marks(n.Size, x.Off, x.Len, x.Blob == 0) {
			mark(tx, c.Ino)
			break
		}
	}
	return written(tx, &n, c.Mtime, c.KillPriv, AttrResult{}, dst)
}

// checkNewBlob says whether a blob may become visible. ERETRY makes the
// front-end write its bytes again, under a new id.
func checkNewBlob(tx *fsm.Tx, w *fsm.Writer, b *NewBlob) cluster.Errno {
	if b.Len == 0 || b.Len > cluster.MaxBlob {
		return cluster.EINVAL
	}
	// A blob that is not its writer's, or is below its low-water mark, may be
	// deleted from stores at any time: nobody would wait for this commit.
	if on(ruleOwnBlob) && b.ID.Writer() != w.ID {
		return cluster.ERETRY
	}
	if on(ruleLowWater) && b.ID.Counter() < w.LowWater {
		return cluster.ERETRY
	}
	// A blob is committed once: afterwards only Clone adds references.
	if on(ruleOnce) && wasBlob(tx, b.ID) {
		return cluster.ERETRY
	}
	if on(ruleNotGarbage) && hasSetBlob(tx, prefixGarbage, b.Set, b.ID) {
		return cluster.ERETRY
	}
	// The members at the epoch of the put are those that hold the blob.
	set, ok := loadSet(tx, b.Set)
	if !ok {
		return cluster.ERETRY
	}
	if on(ruleEpoch) && set.Epoch != b.Epoch {
		return cluster.ERETRY
	}
	if on(ruleWritable) && set.State != Writable {
		return cluster.ERETRY
	}
	return cluster.OK
}

// checkNewExtent says whether an extent is well-formed, and of a blob of the
// same command: sharing a blob that is there is Clone's.
func (m *mapper) checkNewExtent(x *NewExtent) cluster.Errno {
	if x.Len == 0 {
		return cluster.EINVAL
	}
	if x.Off > cluster.MaxFileSize || uint64(x.Len) > cluster.MaxFileSize-x.Off {
		return cluster.EFBIG
	}
	if x.Blob == 0 {
		if x.Len > cluster.MaxInline || len(x.Bytes) != int(x.Len) {
			return cluster.EINVAL
		}
		return cluster.OK
	}
	i := m.led.find(x.Blob)
	if on(ruleNewBlob) && (i < 0 || m.led.entries[i].fresh == nil) {
		return cluster.EINVAL
	}
	if i >= 0 && on(ruleBlobBounds) {
		if b := m.led.entries[i].fresh; b != nil && (x.BlobOff > b.Len || x.Len > b.Len-x.BlobOff) {
			return cluster.EINVAL
		}
	}
	return cluster.OK
}

// loadFile returns the inode of a regular file. One that is about to be reaped
// is gone: what was added to it now would be left over.
func loadFile(tx *fsm.Tx, ino cluster.Ino) (inode, cluster.Errno) {
	n, ok := loadInode(tx, ino)
	switch {
	case !ok:
		return n, cluster.ESTALE
	case n.Type == cluster.TypeDirectory:
		return n, cluster.EISDIR
	case n.Type != cluster.TypeRegular:
		return n, cluster.EINVAL
	case n.Nlink == 0 && on(ruleReaped) && !isHeld(tx, ino):
		return n, cluster.ESTALE
	}
	return n, cluster.OK
}

// written stores n after a change of its data and appends the result r with
// its attributes.
func written(tx *fsm.Tx, n *inode, mtime cluster.Time, kill bool, r AttrResult, dst []byte) ([]byte, cluster.Errno) {
	n.modify(tx)
	if mtime != 0 {
		n.Mtime = mtime
	}
	if kill {
		n.Mode = KillPriv(n.Mode)
	}
	storeInode(tx, n)
	r.Attr = n.Attr
	return r.AppendTo(dst), cluster.OK
}
