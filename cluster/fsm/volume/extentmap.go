package volume

import (
	"sync"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

const (
	// mergeBelow is the size from which on an inline extent is left alone: two
	// smaller ones that touch become one. So a log that is written line by
	// line has extents of 4 to 8 KiB, and a database's pages stay a record
	// each, which the next write of the page replaces without rewriting more.
	mergeBelow = cluster.ChecksumBlock
	// maxCollect is how many extents are looked at, at a time.
	maxCollect = 512
)

// A mapper changes the extents of one file within a command.
type mapper struct {
	tx    *fsm.Tx
	ino   cluster.Ino
	size  uint64 // no extent ends behind it
	delta int64  // bytes mapped more than before
	freed uint32 // extents taken away
	led   ledger

	exts []Extent // what collect found
	buf  []byte   // its bytes
}

var mappers = sync.Pool{New: func() any { return new(mapper) }}

// beginMap returns a mapper for the file of a. It is given back by end.
func beginMap(tx *fsm.Tx, a *cluster.Attr) *mapper {
	m := mappers.Get().(*mapper)
	m.tx, m.ino, m.size = tx, a.Ino, a.Size
	m.delta, m.freed = 0, 0
	m.led.begin(tx, a.Class.Code)
	return m
}

// end settles references and usage, and adjusts a.Used.
func (m *mapper) end(a *cluster.Attr) cluster.Errno {
	errno := m.led.settle()
	if errno == cluster.OK {
		a.Used = addClamped(a.Used, m.delta)
		addUsage(m.tx, m.delta, 0)
	}
	m.abandon()
	return errno
}

// abandon gives the mapper back; the command fails.
func (m *mapper) abandon() {
	const keep = 64 << 10
	if cap(m.buf) > keep {
		m.buf = nil
	}
	clear(m.exts)
	m.tx, m.led = nil, ledger{}
	mappers.Put(m)
}

// collect puts the extents that overlap [off, end) into m.exts, and, if near
// is set, those that touch it. It reports whether those are all. The bytes of
// inline ones are kept where a part of them may stay.
func (m *mapper) collect(off, end uint64, near bool) (whole bool) {
	clear(m.exts)
	m.exts, m.buf = m.exts[:0], m.buf[:0]
	from := off
	if near && off > 0 {
		from--
	}
	whole = true
	ascendExtents(m.tx, m.ino, from, end, func(e *Extent) bool {
		if e.Off == end && !near {
			return false
		}
		if len(m.exts) == maxCollect {
			whole = false
			return false
		}
		c := *e
		c.Bytes = nil
		if e.inline() && (e.Off < off || e.End() > end) {
			start := len(m.buf)
			m.buf = append(m.buf, e.Bytes...)
			c.Bytes = m.buf[start:len(m.buf):len(m.buf)]
		}
		m.exts = append(m.exts, c)
		return e.End() <= end
	})
	return whole
}

// drop takes [off, end) out of e, which overlaps it, and returns what is left
// of it on both sides, for the caller to store: left ends at off, right begins
// at end. The record of e is deleted unless right replaces it.
func (m *mapper) drop(e *Extent, off, end uint64) (left, right Extent) {
	pieces := int64(-1)
	cutOff, cutEnd := e.Off, e.End()
	if cutOff < off {
		left, cutOff = e.cut(e.Off, off), off
		pieces++
	}
	if cutEnd > end {
		right, cutEnd = e.cut(end, e.End()), end
		pieces++
	} else {
		deleteExtent(m.tx, m.ino, e.End())
	}
	if pieces < 0 {
		m.freed++
	}
	if !e.inline() {
		m.led.add(e.Blob, pieces, -int64(cutEnd-cutOff))
	}
	m.delta -= int64(cutEnd - cutOff)
	return left, right
}

// hole takes away what is mapped in [off, end).
func (m *mapper) hole(off, end uint64) {
	if off >= m.size {
		return
	}
	for off < end {
		whole := m.collect(off, end, false)
		next := end
		for i := range m.exts {
			e := &m.exts[i]
			next = e.End()
			left, right := m.drop(e, off, end)
			if left.Len > 0 {
				putExtent(m.tx, m.ino, &left)
			}
			if right.Len > 0 {
				putExtent(m.tx, m.ino, &right)
			}
		}
		if whole {
			return
		}
		off = next
	}
}

// put maps [e.Off, e.End()) to e, in place of what is there.
func (m *mapper) put(e *Extent) {
	off, end := e.Off, e.End()
	small := e.inline() && e.Len < mergeBelow
	m.delta += int64(e.Len)
	if !e.inline() {
		m.led.share(e.Blob, int64(e.Len), m.ino)
	}
	if off >= m.size && (!small || off > m.size || off == 0) {
		// An append with nothing to merge with: there is nothing to read.
		m.size = end
		putExtent(m.tx, m.ino, e)
		return
	}
	m.size = max(m.size, end)
	if !m.collect(off, end, small) {
		m.hole(off, end)
		m.collect(off, end, small)
	}
	if m.patch(e) {
		return
	}
	n := *e
	var left, right Extent                  // neighbours, or rests of what e covers
	leftStored, rightStored := false, false // as records of their own
	for i := range m.exts {
		x := &m.exts[i]
		switch {
		case x.End() <= off:
			left, leftStored = *x, true
		case x.Off >= end:
			right, rightStored = *x, true
		default:
			l, r := m.drop(x, off, end)
			if l.Len > 0 {
				left, leftStored = l, false
			}
			if r.Len > 0 {
				right, rightStored = r, false
			}
		}
	}
	if mergeable(&left, &n) {
		if leftStored {
			deleteExtent(m.tx, m.ino, off)
		}
		n = m.join(&left, &n)
	} else if left.Len > 0 && !leftStored {
		putExtent(m.tx, m.ino, &left)
	}
	if mergeable(&n, &right) {
		n = m.join(&n, &right) // has the key of right
	} else if right.Len > 0 && !rightStored {
		putExtent(m.tx, m.ino, &right)
	}
	putExtent(m.tx, m.ino, &n)
}

// patch writes e, which is inline, into the one inline extent that has all of
// its range, if there is one: it stays whole.
func (m *mapper) patch(e *Extent) bool {
	if !e.inline() {
		return false
	}
	for i := range m.exts {
		x := &m.exts[i]
		if !x.inline() || x.Off > e.Off || x.End() < e.End() || x.Bytes == nil {
			continue
		}
		copy(x.Bytes[e.Off-x.Off:], e.Bytes)
		putExtent(m.tx, m.ino, x)
		m.delta -= int64(e.Len)
		return true
	}
	return false
}

// mergeable reports whether a and b, which follows it, become one extent.
func mergeable(a, b *Extent) bool {
	return a.Len > 0 && b.Len > 0 && a.inline() && b.inline() && a.Len < mergeBelow && b.Len < mergeBelow
}

// join returns the extent of both a's and b's bytes.
func (m *mapper) join(a, b *Extent) Extent {
	start := len(m.buf)
	m.buf = append(append(m.buf, a.Bytes...), b.Bytes...)
	return Extent{Off: a.Off, Len: a.Len + b.Len, Bytes: m.buf[start:len(m.buf):len(m.buf)]}
}
