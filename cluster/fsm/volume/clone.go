package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// The bounds of one Clone.
const (
	MaxClone      = 16384   // extents
	maxCloneBytes = 8 << 20 // bytes of inline extents, which are copied
)

// applyClone runs Clone (RFC 7862 §15.13).
func applyClone(tx *fsm.Tx, _ *fsm.Envelope, c *Clone, dst []byte) ([]byte, cluster.Errno) {
	src, errno := loadFile(tx, c.Src)
	if errno != cluster.OK {
		return dst, errno
	}
	to, errno := loadFile(tx, c.Dst)
	if errno != cluster.OK {
		return dst, errno
	}
	if c.SrcOff > src.Size || c.Len > src.Size-c.SrcOff {
		return dst, cluster.EINVAL
	}
	length := c.Len
	if length == 0 {
		length = src.Size - c.SrcOff
	}
	if c.DstOff > cluster.MaxFileSize || length > cluster.MaxFileSize-c.DstOff {
		return dst, cluster.EFBIG
	}
	if c.Src == c.Dst && c.SrcOff < c.DstOff+length && c.DstOff < c.SrcOff+length && length > 0 {
		return dst, cluster.EINVAL
	}
	if length == 0 {
		return AttrResult{Attr: to.Attr, Done: c.Base}.AppendTo(dst), cluster.OK
	}
	exts, done := sourceExtents(tx, c.Src, c.SrcOff, c.SrcOff+length)
	m := beginMap(tx, &to.Attr)
	m.hole(c.DstOff, c.DstOff+done)
	for i := range exts {
		e := &exts[i]
		e.Off = e.Off - c.SrcOff + c.DstOff
		putExtent(tx, c.Dst, e)
		m.delta += int64(e.Len)
		if !e.inline() {
			m.led.share(e.Blob, int64(e.Len), c.Dst)
		}
	}
	if done > 0 {
		to.Size = max(to.Size, c.DstOff+done)
	}
	if errno := m.end(&to.Attr); errno != cluster.OK {
		return dst, errno
	}
	for i := range exts {
		if e := &exts[i]; marks(to.Size, e.Off, e.Len, e.inline()) {
			mark(tx, c.Dst)
			break
		}
	}
	return written(tx, &to, 0, c.KillPriv, AttrResult{More: done < length, Done: c.Base + done}, dst)
}

// sourceExtents returns the extents of ino in [off, end), cut to it, as many
// as one command clones, and how many bytes from off on they stand for.
func sourceExtents(tx *fsm.Tx, ino cluster.Ino, off, end uint64) (exts []Extent, done uint64) {
	done = end - off
	inline := 0
	ascendExtents(tx, ino, off, end, func(e *Extent) bool {
		if e.Off >= end {
			return false
		}
		if len(exts) == MaxClone || inline > maxCloneBytes {
			done = e.Off - off
			return false
		}
		c := e.cut(off, end)
		if c.inline() {
			c.Bytes = append([]byte(nil), c.Bytes...)
			inline += len(c.Bytes)
		}
		exts = append(exts, c)
		return true
	})
	return exts, done
}
