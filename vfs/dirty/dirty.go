// Package dirty keeps what was written to a file and is not committed yet: runs
// of bytes by offset, where a later write covers earlier ones.
package dirty

import "sort"

// A Run is a run of bytes of the file. Its bytes are never changed.
type Run struct {
	Off   uint64
	Bytes []byte
	// Piece is what the run was put away with by Mark, and Skip where in it
	// the run begins; nil if it was not.
	Piece any
	Skip  uint32
}

// End returns the offset behind the run.
func (r *Run) End() uint64 { return r.Off + uint64(len(r.Bytes)) }

// cut returns the part of r in [off, end), which lies within it.
func (r Run) cut(off, end uint64) Run {
	skip := off - r.Off
	return Run{Off: off, Bytes: r.Bytes[skip : end-r.Off : end-r.Off], Piece: r.Piece, Skip: r.Skip + uint32(skip)}
}

// A Map is what is dirty in a file. The zero Map is empty.
type Map struct {
	runs []Run // by offset; they don't overlap
}

// Empty reports whether nothing is dirty.
func (m *Map) Empty() bool { return m == nil || len(m.runs) == 0 }

// Runs returns the runs by offset. They must not be changed.
func (m *Map) Runs() []Run {
	if m == nil {
		return nil
	}
	return m.runs
}

// End returns the offset behind the last run, 0 if there is none.
func (m *Map) End() uint64 {
	if m.Empty() {
		return 0
	}
	return m.runs[len(m.runs)-1].End()
}

// find returns the first run that ends behind off.
func (m *Map) find(off uint64) int {
	return sort.Search(len(m.runs), func(i int) bool { return m.runs[i].End() > off })
}

// Write makes [off, off+len(p)) dirty. It keeps p.
func (m *Map) Write(off uint64, p []byte) {
	if len(p) > 0 {
		m.insert(Run{Off: off, Bytes: p})
	}
}

func (m *Map) insert(n Run) {
	end := n.End()
	i := m.find(n.Off)
	j := i
	var rest [3]Run
	k := 0
	if i < len(m.runs) && m.runs[i].Off < n.Off {
		rest[k] = m.runs[i].cut(m.runs[i].Off, n.Off)
		k++
	}
	rest[k] = n
	k++
	for j < len(m.runs) && m.runs[j].Off < end {
		if r := &m.runs[j]; r.End() > end {
			rest[k] = r.cut(end, r.End())
			k++
		}
		j++
	}
	m.runs = splice(m.runs, i, j, rest[:k])
}

// splice replaces s[i:j] by with.
func splice(s []Run, i, j int, with []Run) []Run {
	old := len(s)
	if grow := len(with) - (j - i); grow > 0 {
		s = append(s, with[:grow]...) // the values don't matter
		copy(s[j+grow:], s[j:old])
	} else if grow < 0 {
		copy(s[j+grow:], s[j:])
		clear(s[old+grow:])
		s = s[:old+grow]
	}
	copy(s[i:], with)
	return s
}

// Cover writes all that is dirty in over on top of m.
func (m *Map) Cover(over *Map) {
	for _, r := range over.Runs() {
		m.insert(r)
	}
}

// Slice calls fn for what is dirty in [off, end), by offset.
func (m *Map) Slice(off, end uint64, fn func(r Run)) {
	if m.Empty() {
		return
	}
	for i := m.find(off); i < len(m.runs) && m.runs[i].Off < end; i++ {
		r := m.runs[i]
		fn(r.cut(max(r.Off, off), min(r.End(), end)))
	}
}

// Around returns the longest range of runs without holes and without pieces
// that has off in it; lo == hi if there is none.
func (m *Map) Around(off uint64) (lo, hi uint64) {
	i := m.find(off)
	if i == len(m.runs) || m.runs[i].Off > off || m.runs[i].Piece != nil {
		return off, off
	}
	lo, hi = m.runs[i].Off, m.runs[i].End()
	for j := i - 1; j >= 0 && m.runs[j].End() == lo && m.runs[j].Piece == nil; j-- {
		lo = m.runs[j].Off
	}
	for j := i + 1; j < len(m.runs) && m.runs[j].Off == hi && m.runs[j].Piece == nil; j++ {
		hi = m.runs[j].End()
	}
	return lo, hi
}

// Mark makes piece the piece of all in [off, end), which must have no holes,
// and returns its bytes.
func (m *Map) Mark(off, end uint64, piece any) [][]byte {
	m.split(off)
	m.split(end)
	var data [][]byte
	for i := m.find(off); i < len(m.runs) && m.runs[i].Off < end; i++ {
		r := &m.runs[i]
		r.Piece, r.Skip = piece, uint32(r.Off-off)
		data = append(data, r.Bytes)
	}
	return data
}

// split makes a run end at off, if one has off inside.
func (m *Map) split(off uint64) {
	i := m.find(off)
	if i < len(m.runs) && m.runs[i].Off < off {
		r := m.runs[i]
		m.runs = splice(m.runs, i, i+1, []Run{r.cut(r.Off, off), r.cut(off, r.End())})
	}
}
