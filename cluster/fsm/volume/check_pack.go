package volume

import (
	"slices"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

func hasMark(r fsm.Reader, ino cluster.Ino) bool {
	_, ok := r.Get(nil, appendMarkKey(nil, ino))
	return ok
}

// checkOwners looks whether each extent's file is known to refer to its blob,
// and whether owner records are of blobs that count them.
func (c *checker) checkOwners() {
	var b Blob
	var known bool
	var owners []cluster.Ino // sorted
	c.each(prefixExtent, func(key, val []byte) {
		ino, end, _ := parseExtentKey(key)
		e, ok := decodeExtent(end, val)
		if !ok || e.inline() {
			return
		}
		if e.Blob != b.ID {
			b, known = c.blob(e.Blob)
			b.ID = e.Blob
			owners = owners[:0]
			if known {
				owners, known = appendOwnersOf(c.Reader, owners, &b)
				slices.Sort(owners)
			}
		}
		if !known {
			return
		}
		if _, found := slices.BinarySearch(owners, ino); !found {
			c.problem(Problem{Ino: ino, Blob: e.Blob, Text: "is not known to refer to it"})
		}
	})
	var at cluster.BlobID
	shares := 0
	finish := func() {
		if at == 0 {
			return
		}
		want := -1
		if b, ok := c.blob(at); ok && b.Shares != tooShared {
			want = int(b.Shares)
		} else if ok {
			want = maxShares
		}
		if shares != want {
			c.blobf(at, "has %d owner records, and counts %d", shares, want)
		}
	}
	c.each(prefixOwner, func(key, val []byte) {
		id, ino, ok := parseOwnerKey(key)
		_, list := decodeOwners(nil, val)
		if !ok || !list || (ino == 0) != (len(val) > 0) {
			c.blobf(id, "an owner record is damaged")
		}
		if id != at {
			finish()
			at, shares = id, 0
		}
		shares++
	})
	finish()
	c.each(prefixBlob, func(key, val []byte) {
		d := codec.NewDec(key[1:])
		id := cluster.BlobID(d.Uint64())
		if b, ok := decodeBlob(id, val); ok && b.Shares > 0 {
			if has := c.has(appendOwnerKey(nil, id, 0), appendOwnerKey(nil, id+1, 0)); !has {
				c.blobf(id, "counts owner records, and has none")
			}
		}
	})
}

// has reports whether there is a key in [lower, upper).
func (c *checker) has(lower, upper []byte) (found bool) {
	c.Ascend(lower, upper, func(_, _ []byte) bool {
		found = true
		return false
	})
	return found
}

// checkThin looks whether the thin blobs are those that are listed.
func (c *checker) checkThin() {
	c.each(prefixThin, func(key, _ []byte) {
		d := codec.NewDec(key[1:])
		id := cluster.BlobID(d.Uint64())
		if b, ok := c.blob(id); d.Done() != nil || !ok || !b.Thin() {
			c.blobf(id, "is listed as thin, but is not")
		}
	})
	c.each(prefixBlob, func(key, val []byte) {
		d := codec.NewDec(key[1:])
		id := cluster.BlobID(d.Uint64())
		if b, ok := decodeBlob(id, val); ok && b.Thin() {
			if _, listed := c.Get(nil, appendThinKey(nil, id)); !listed {
				c.blobf(id, "is thin: %d of its %d bytes are referred to; but it is not listed", b.Bytes, b.Len)
			}
		}
	})
}

// checkMarks looks whether marks can be read. That files have them that need
// one is checkExtents'.
func (c *checker) checkMarks() {
	c.each(prefixMark, func(key, val []byte) {
		ino, ok := parseMarkKey(key)
		d := codec.NewDec(val)
		if d.Uvarint(); !ok || d.Done() != nil {
			c.inodef(ino, "its mark is damaged")
		}
	})
}
