package volume

import (
	"fmt"

	"github.com/dchest/siphash"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// A Dirent is a name in a directory.
type Dirent struct {
	Cookie uint64 // > 2 and < 2^63; the same on every node as long as the name is there
	Ino    cluster.Ino
	Gen    uint32
	Type   cluster.FileType
	Name   string
}

// Names whose hashes are equal have cookies that differ in the lowest bits.
// The name at a hash's first cookie says whether the others are in use, so that
// a look-up costs one read; if it is removed while they are, it leaves an entry
// without an inode behind.
const (
	cookieSlots = 8
	firstCookie = cookieSlots // above 0 to 2, which are clients' own
)

// direntChained in the flags of a hash's first entry: others may follow.
const direntChained = 1

// hashName is a hash of 64 bits. Tests put a poor one in its place.
var hashName = func(k0, k1 uint64, name []byte) uint64 { return siphash.Hash(k0, k1, name) }

// firstSlot returns the first cookie that name may have in dir.
func (v *record) firstSlot(dir cluster.Ino, name string) uint64 {
	k0, k1 := v.hashKeys(dir)
	var buf [cluster.MaxName]byte
	h := hashName(k0, k1, append(buf[:0], name...))
	h = h >> 1 &^ (cookieSlots - 1)
	return max(h, firstCookie)
}

// A slot is a stored directory entry.
type slot struct {
	Dirent
	chained bool
}

func appendSlot(dst []byte, s *slot) []byte {
	var flags byte
	if s.chained {
		flags |= direntChained
	}
	dst = append(dst, flags)
	dst = codec.AppendUvarint(dst, uint64(s.Ino))
	if s.Ino == 0 {
		return dst
	}
	dst = codec.AppendUint32(dst, s.Gen)
	dst = append(dst, byte(s.Type))
	return append(dst, s.Name...)
}

// slotHead is a stored entry whose name is not copied.
type slotHead struct {
	chained bool
	ino     cluster.Ino
	gen     uint32
	typ     cluster.FileType
	name    []byte
}

// decodeSlot decodes what appendSlot made; ino is 0 if there is no entry.
func decodeSlot(val []byte) (slotHead, error) {
	d := codec.NewDec(val)
	h := slotHead{chained: d.Uint8()&direntChained != 0, ino: cluster.Ino(d.Uvarint())}
	if h.ino != 0 {
		h.gen = d.Uint32()
		h.typ = cluster.FileType(d.Uint8())
		h.name = d.Rest()
	}
	return h, d.Done()
}

func mustSlot(dir cluster.Ino, cookie uint64, val []byte) slotHead {
	h, err := decodeSlot(val)
	if err != nil {
		panic(fmt.Sprintf("volume: entry %d of directory %d is damaged (%v): restore this replica from another", cookie, dir, err))
	}
	return h
}

// findDirent returns name's entry in dir, and whether there is one.
func findDirent(r fsm.Reader, v *record, dir cluster.Ino, name string) (slot, bool) {
	if len(name) > cluster.MaxName {
		return slot{}, false
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	first := v.firstSlot(dir, name)
	for i := range uint64(cookieSlots) {
		val, ok := r.Get(s.val[:0], appendDirentKey(s.key[:0], dir, first+i))
		s.val = val[:0]
		if !ok {
			if i == 0 {
				return slot{}, false
			}
			continue
		}
		h := mustSlot(dir, first+i, val)
		if h.ino != 0 && string(h.name) == name {
			return slot{
				Dirent:  Dirent{Cookie: first + i, Ino: h.ino, Gen: h.gen, Type: h.typ, Name: name},
				chained: h.chained,
			}, true
		}
		if i == 0 && !h.chained {
			return slot{}, false
		}
	}
	return slot{}, false
}

// putSlot stores an entry at its cookie.
func putSlot(tx *fsm.Tx, dir cluster.Ino, e *slot) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.val = appendSlot(s.val[:0], e)
	tx.Set(appendDirentKey(s.key[:0], dir, e.Cookie), s.val)
}

// getSlot returns the entry at a cookie.
func getSlot(r fsm.Reader, dir cluster.Ino, cookie uint64) (slot, bool) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	val, ok := r.Get(s.val[:0], appendDirentKey(s.key[:0], dir, cookie))
	s.val = val[:0]
	if !ok {
		return slot{}, false
	}
	h := mustSlot(dir, cookie, val)
	return slot{
		Dirent:  Dirent{Cookie: cookie, Ino: h.ino, Gen: h.gen, Type: h.typ, Name: string(h.name)},
		chained: h.chained,
	}, true
}

// insertDirent makes the entry of a name that is not in dir, and chooses its
// cookie. ENOSPC if cookieSlots names have the same hash, which does not happen.
func insertDirent(tx *fsm.Tx, v *record, dir cluster.Ino, e Dirent) cluster.Errno {
	first := v.firstSlot(dir, e.Name)
	head, ok := getSlot(tx, dir, first)
	if !ok || head.Ino == 0 {
		e.Cookie = first
		putSlot(tx, dir, &slot{Dirent: e, chained: head.chained})
		return cluster.OK
	}
	for cookie := first + 1; cookie < first+cookieSlots; cookie++ {
		if _, ok := getSlot(tx, dir, cookie); ok {
			continue
		}
		e.Cookie = cookie
		putSlot(tx, dir, &slot{Dirent: e})
		if !head.chained {
			head.chained = true
			putSlot(tx, dir, &head)
		}
		return cluster.OK
	}
	return cluster.ENOSPC
}

// deleteDirent removes an entry that findDirent has found.
func deleteDirent(tx *fsm.Tx, dir cluster.Ino, e *slot) {
	first := e.Cookie &^ (cookieSlots - 1)
	if e.Cookie == first && !e.chained {
		tx.Delete(appendDirentKey(nil, dir, e.Cookie))
		return
	}
	if e.Cookie == first {
		// Others have this hash: look-ups must get to them.
		putSlot(tx, dir, &slot{Dirent: Dirent{Cookie: first}, chained: true})
		return
	}
	tx.Delete(appendDirentKey(nil, dir, e.Cookie))
	for cookie := first + 1; cookie < first+cookieSlots; cookie++ {
		if _, ok := getSlot(tx, dir, cookie); ok {
			return
		}
	}
	// It was the last one behind the first.
	if head, _ := getSlot(tx, dir, first); head.Ino != 0 {
		head.chained = false
		putSlot(tx, dir, &head)
		return
	}
	tx.Delete(appendDirentKey(nil, dir, first))
}

// ascendDirents calls fn for each name in dir with a cookie above after, in
// cookie order, until it returns false.
func ascendDirents(r fsm.Reader, dir cluster.Ino, after uint64, fn func(e *Dirent) bool) (done bool) {
	if after >= 1<<63 {
		return true
	}
	var lower, upper [1 + 8 + 8]byte
	done = true
	var e Dirent
	r.Ascend(appendDirentBound(lower[:0], dir, after+1), appendDirentBound(upper[:0], dir, 1<<63), func(key, val []byte) bool {
		_, cookie, ok := parseDirentKey(key)
		if !ok {
			panic(fmt.Sprintf("volume: directory %d has a damaged key %x: restore this replica from another", dir, key))
		}
		h := mustSlot(dir, cookie, val)
		if h.ino == 0 {
			return true
		}
		e = Dirent{Cookie: cookie, Ino: h.ino, Gen: h.gen, Type: h.typ, Name: string(h.name)}
		done = fn(&e)
		return done
	})
	return done
}
