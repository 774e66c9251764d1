package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// MaxPunch is the most extents that one Punch frees.
const MaxPunch = 4096

// applyPunch runs Punch. The extents behind the end of a file are none, so a
// hole does not change the size.
func applyPunch(tx *fsm.Tx, _ *fsm.Envelope, c *Punch, dst []byte) ([]byte, cluster.Errno) {
	n, errno := loadFile(tx, c.Ino)
	if errno != cluster.OK {
		return dst, errno
	}
	if c.Len == 0 {
		return dst, cluster.EINVAL
	}
	if c.Extend {
		if c.Off > cluster.MaxFileSize || c.Len > cluster.MaxFileSize-c.Off {
			return dst, cluster.EFBIG
		}
		if c.Off+c.Len <= n.Size {
			return AttrResult{Attr: n.Attr}.AppendTo(dst), cluster.OK
		}
		n.Size = c.Off + c.Len
		return written(tx, &n, 0, c.KillPriv, AttrResult{}, dst)
	}
	end := n.Size
	if c.Off < end && c.Len < end-c.Off {
		end = c.Off + c.Len
	}
	var r AttrResult
	if c.Off < end {
		from := lastExtents(tx, c.Ino, c.Off, end, MaxPunch)
		if from > c.Off {
			r.More, r.Done = true, from
		}
		m := beginMap(tx, &n.Attr)
		m.hole(from, end)
		if errno := m.end(&n.Attr); errno != cluster.OK {
			return dst, errno
		}
	}
	return written(tx, &n, 0, c.KillPriv, r, dst)
}

// truncate makes the file of a size bytes long: what lies behind is freed, so
// that it reads as zeros should the file grow again. It adjusts a.Size and
// a.Used. The caller, who stores a, frees very large files' extents in bounded
// steps first, by Punch.
func truncate(tx *fsm.Tx, a *cluster.Attr, size uint64) cluster.Errno {
	if size > cluster.MaxFileSize {
		return cluster.EFBIG
	}
	if size < a.Size {
		m := beginMap(tx, a)
		m.hole(size, maxOffset)
		if errno := m.end(a); errno != cluster.OK {
			return errno
		}
	}
	a.Size = size
	return cluster.OK
}

// lastExtents returns an offset in [off, end) from which on there are at most
// limit extents, and at least one unless there are none: off if there are no
// more than that. The keys can be walked upwards only, so it looks for the
// offset by halves: every look ends after limit extents.
func lastExtents(r fsm.Reader, ino cluster.Ino, off, end uint64, limit int) uint64 {
	// Nothing but a file of very many extents gets beyond here.
	if n := countExtents(r, ino, off, end, limit); n <= limit {
		return off
	}
	lo, hi := off, end // too many from lo on, few enough from hi on
	const enough = 4   // a limit/enough of extents is a good catch
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		n := countExtents(r, ino, mid, end, limit)
		if n > limit {
			lo = mid
			continue
		}
		hi = mid
		if n >= limit/enough {
			break
		}
	}
	return hi
}

// countExtents returns how many extents overlap [off, end), or limit+1 if they
// are more than limit.
func countExtents(r fsm.Reader, ino cluster.Ino, off, end uint64, limit int) int {
	n := 0
	ascendExtents(r, ino, off, end, func(e *Extent) bool {
		if e.Off >= end {
			return false
		}
		n++
		return n <= limit
	})
	return n
}
