package volume

import (
	"math"
	"strings"
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

const kindRaw fsm.Kind = 255

// raw sets or deletes (nil) keys behind the state machine's back.
type raw map[string][]byte

func (raw) Kind() fsm.Kind             { return kindRaw }
func (raw) AppendTo(dst []byte) []byte { return dst }

// rawCore runs the raw commands of a test besides the volume's.
type rawCore struct {
	fsm.Core
	next raw
}

func (c *rawCore) Apply(tx *fsm.Tx, index uint64, env *fsm.Envelope, body []byte) []byte {
	if env.Kind == kindRaw {
		for k, v := range c.next {
			if v == nil {
				tx.Delete([]byte(k))
			} else {
				tx.Set([]byte(k), v)
			}
		}
		return tx.Result(cluster.OK)
	}
	return c.Core.Apply(tx, index, env, body)
}

// newRaw is newData with raw commands.
func newRaw(t fataler) (*dataEnv, func(raw)) {
	c := &rawCore{Core: New()}
	m := newMachine(t, c, 4<<20)
	e := &dataEnv{t: t, m: m, view: View{m.Reader()}, writers: make(map[string]*testWriter)}
	return e, func(r raw) {
		c.next = r
		e.must("", r)
	}
}

// TestCheckFinds damages a volume in many ways; Check must find each.
func TestCheckFinds(t *testing.T) {
	const (
		file   = cluster.Ino(2)
		other  = cluster.Ino(3)
		dir    = cluster.Ino(4)
		linked = cluster.Ino(5)
		gone   = cluster.Ino(6)
	)
	var blob cluster.BlobID
	var cookie uint64 // of "file"
	// edit returns the record of ino as fn changes it.
	edit := func(e *dataEnv, ino cluster.Ino, fn func(n *inode)) raw {
		n, ok := loadInode(e.view.Reader, ino)
		if !ok {
			t.Fatalf("no inode %d", ino)
		}
		fn(&n)
		return raw{string(appendInodeKey(nil, ino)): appendInode(nil, &n)}
	}
	record := func(e *dataEnv, fn func(b *Blob)) raw {
		b, _ := e.view.Blob(blob)
		fn(&b)
		return raw{string(appendBlobKey(nil, blob)): appendBlob(nil, &b)}
	}
	lock := func(owner byte, start, end uint64, exclusive, index bool) raw {
		l := LockInfo{Ino: file, Owner: LockOwner{owner}, Writer: 1, Client: 1, Start: start, End: end, Exclusive: exclusive}
		r := raw{string(appendLockKey(nil, file, start, &l.Owner)): appendLockValue(nil, &l)}
		if index {
			r[string(appendHolderKey(nil, &l))] = []byte{}
		}
		return r
	}
	key := func(k []byte) string { return string(k) }
	for _, c := range []struct {
		name string
		do   func(e *dataEnv) raw
		want string
	}{
		{"nothing", func(*dataEnv) raw { return nil }, ""},
		{"unknown key", func(*dataEnv) raw { return raw{"Zoo": {1}} }, "belong to nothing"},
		{"no volume record", func(*dataEnv) raw { return raw{"V": nil} }, "no volume record"},
		{"volume record", func(*dataEnv) raw { return raw{"V": {1}} }, "volume record is damaged"},
		{"ino counter", func(e *dataEnv) raw {
			v, _ := loadRecord(e.view.Reader)
			v.NextIno = 3
			return raw{"V": appendRecord(nil, &v)}
		}, "not below the next one"},
		{"inode record", func(*dataEnv) raw { return raw{key(appendInodeKey(nil, file)): {1, 2}} }, "record is damaged"},
		{"inode gone", func(*dataEnv) raw { return raw{key(appendInodeKey(nil, other)): nil} }, "is not there, but has the name"},
		{"name gone", func(*dataEnv) raw { return raw{key(appendDirentKey(nil, 1, cookie)): nil} }, "1 links, but 0 names"},
		{"entry count", func(e *dataEnv) raw { return edit(e, 1, func(n *inode) { n.Entries++ }) }, "entries"},
		{"entry count of an empty directory", func(e *dataEnv) raw { return edit(e, dir, func(n *inode) { n.Entries++ }) }, "it has none"},
		{"link count", func(e *dataEnv) raw { return edit(e, linked, func(n *inode) { n.Nlink = 3 }) }, "3 links, but 2 names"},
		{"link count of a directory", func(e *dataEnv) raw { return edit(e, 1, func(n *inode) { n.Nlink = 2 }) }, "directories in it"},
		{"parent", func(e *dataEnv) raw { return edit(e, dir, func(n *inode) { n.Parent = file }) }, "do not lead to the root"},
		{"circle", func(e *dataEnv) raw { return edit(e, dir, func(n *inode) { n.Parent = dir }) }, "do not lead to the root"},
		{"generation", func(e *dataEnv) raw { return edit(e, dir, func(n *inode) { n.Gen = 99 }) }, "is of generation 99"},
		{"type", func(e *dataEnv) raw { return edit(e, dir, func(n *inode) { n.Type = 77 }) }, "unknown type"},
		{"wrong cookie", func(e *dataEnv) raw {
			val, _ := e.view.Get(nil, appendDirentKey(nil, 1, cookie))
			return raw{key(appendDirentKey(nil, 1, cookie)): nil, key(appendDirentKey(nil, 1, cookie+8)): val}
		}, "belongs to"},
		{"cookie without its first", func(e *dataEnv) raw {
			val, _ := e.view.Get(nil, appendDirentKey(nil, 1, cookie))
			return raw{key(appendDirentKey(nil, 1, cookie)): nil, key(appendDirentKey(nil, 1, cookie+1)): val}
		}, "has no first one"},
		{"entry record", func(*dataEnv) raw { return raw{key(appendDirentKey(nil, 1, cookie)): {0}} }, "is damaged"},
		{"entry of an empty directory", func(*dataEnv) raw { return raw{key(appendDirentKey(nil, dir, 8)): {0}} }, "is damaged"},
		{"usage record", func(*dataEnv) raw { return raw{key(appendUsageKey(nil, usageVolume, 0)): {1}} }, "or damaged"},
		{"xattr", func(*dataEnv) raw { return raw{key(appendXattrKey(nil, other, "a")): {1}} }, "extended attributes"},
		{"xattr of nothing", func(*dataEnv) raw { return raw{key(appendXattrKey(nil, 88, "a")): {1}} }, "is not there, but has extended"},
		{"usage", func(*dataEnv) raw { return raw{key(appendUsageKey(nil, usageVolume, 0)): {1, 1}} }, "usage says"},

		{"size", func(e *dataEnv) raw { return edit(e, file, func(n *inode) { n.Size = 50 }) }, "behind its end"},
		{"used", func(e *dataEnv) raw { return edit(e, file, func(n *inode) { n.Used++ }) }, "its extents have"},
		{"used without extents", func(e *dataEnv) raw { return edit(e, linked, func(n *inode) { n.Used++ }) }, "has no extent"},
		{"extent gone", func(*dataEnv) raw { return raw{key(appendExtentKey(nil, file, 100)): nil} }, "says it has 2 references, it has 1"},
		{"extents overlap", func(*dataEnv) raw {
			return raw{key(appendExtentKey(nil, file, 99)): appendExtent(nil, &Extent{Len: 9, Bytes: []byte("overlaps!")})}
		}, "overlaps"},
		{"extent of nothing", func(*dataEnv) raw {
			return raw{key(appendExtentKey(nil, 88, 5)): appendExtent(nil, &Extent{Len: 1, Bytes: []byte("x")})}
		}, "has extents, but is no file"},
		{"extent record", func(*dataEnv) raw { return raw{key(appendExtentKey(nil, file, 100)): {9}} }, "is damaged"},
		{"extent beyond its blob", func(*dataEnv) raw {
			return raw{key(appendExtentKey(nil, file, 100)): appendExtent(nil, &Extent{Len: 100, Blob: blob, BlobOff: 1})}
		}, "an extent reaches to 101"},
		{"references", func(e *dataEnv) raw { return record(e, func(b *Blob) { b.Refs++ }) }, "says it has 3 references"},
		{"no references", func(e *dataEnv) raw { return record(e, func(b *Blob) { b.Refs = 0 }) }, "has no references"},
		{"blob gone", func(*dataEnv) raw { return raw{key(appendBlobKey(nil, blob)): nil} }, "2 extents refer to it"},
		{"blob's set", func(e *dataEnv) raw { return record(e, func(b *Blob) { b.Set = 9 }) }, "set 9 is not there"},
		{"blob not in its set", func(*dataEnv) raw { return raw{key(appendSetBlobKey(nil, prefixSetBlob, 1, blob)): nil} }, "not among the blobs"},
		{"set's blob of nothing", func(*dataEnv) raw { return raw{key(appendSetBlobKey(nil, prefixSetBlob, 1, 7)): {}} }, "is not on it"},
		{"blob in use is garbage", func(*dataEnv) raw {
			return raw{key(appendSetBlobKey(nil, prefixGarbage, 1, blob)): appendGarbage(nil, garbage{1, 1})}
		}, "in use and in the delete queue"},
		{"garbage of no set", func(*dataEnv) raw {
			return raw{key(appendSetBlobKey(nil, prefixGarbage, 9, 7)): appendGarbage(nil, garbage{1, 1})}
		}, "a set that is not there"},
		{"retired set", func(e *dataEnv) raw {
			s, _ := e.view.ReplicaSet(1)
			s.State = Retired
			return raw{key(appendSetKey(nil, 1)): appendSet(nil, &s)}
		}, "is retired"},
		{"set without members", func(e *dataEnv) raw {
			s, _ := e.view.ReplicaSet(1)
			s.Members = nil
			return raw{key(appendSetKey(nil, 1)): appendSet(nil, &s)}
		}, "has members []"},
		{"bytes referred to", func(e *dataEnv) raw { return record(e, func(b *Blob) { b.Bytes++ }) }, "bytes of files are in it, there are 200"},
		{"owner not known", func(e *dataEnv) raw { return record(e, func(b *Blob) { b.Ino = 77 }) }, "is not known to refer to it"},
		{"owner record gone", func(*dataEnv) raw { return raw{key(appendOwnerKey(nil, blob, other)): nil} }, "counts owner records, and has none"},
		{"owner record too many", func(*dataEnv) raw { return raw{key(appendOwnerKey(nil, blob, 9)): {}} }, "has 2 owner records, and counts 1"},
		{"owner record of nothing", func(*dataEnv) raw { return raw{key(appendOwnerKey(nil, 7, 9)): {}} }, "has 1 owner records, and counts -1"},
		{"owner record", func(*dataEnv) raw { return raw{key(appendOwnerKey(nil, blob, other)): {0}} }, "owner record is damaged"},
		{"thin but not listed", func(e *dataEnv) raw { return record(e, func(b *Blob) { b.Bytes = 1 }) }, "but it is not listed"},
		{"listed but not thin", func(*dataEnv) raw { return raw{key(appendThinKey(nil, blob)): {}} }, "listed as thin, but is not"},
		{"mark", func(*dataEnv) raw { return raw{key(appendMarkKey(nil, file)): {}} }, "mark is damaged"},
		{"inline bytes without a mark", func(e *dataEnv) raw {
			e.must("a", CommitExtents{Ino: other, Extents: []NewExtent{inline(0, page(1, InlineLimit+1))}})
			return raw{key(appendMarkKey(nil, other)): nil}
		}, "it is not marked"},
		{"own locks overlap", func(*dataEnv) raw { return lock(1, 5, 6, false, true) }, "overlap"},
		{"locks conflict", func(*dataEnv) raw { return lock(2, 5, math.MaxUint64, false, true) }, "overlap"},
		{"lock not in the index", func(*dataEnv) raw { return lock(2, 50, 51, true, false) }, "not in the index"},
		{"lock in the index only", func(*dataEnv) raw {
			return raw{key(appendLockKey(nil, file, 0, &LockOwner{1})): nil}
		}, "that is not there"},
		{"unlinked list", func(*dataEnv) raw { return raw{key(appendUnlinkedKey(nil, unlinkedHeld, gone)): nil} }, "among the unlinked: false"},
		{"named file unlinked", func(*dataEnv) raw { return raw{key(appendUnlinkedKey(nil, unlinkedReady, file)): {}} }, "among the unlinked: true"},
		{"unlinked twice", func(*dataEnv) raw { return raw{key(appendUnlinkedKey(nil, unlinkedReady, gone)): {}} }, "held and ready"},
		{"held by none", func(*dataEnv) raw { return raw{key(appendUnlinkedKey(nil, unlinkedHeld, gone)): {}} }, "or by none"},
	} {
		e, do := newRaw(t)
		e.must("", Format{HashKey: [16]byte{1, 2, 3}, Mode: 0o777, Class: cluster.Class{Copies: 2}})
		e.open("a", "n1")
		set := e.set(1, 2)
		for i, name := range []string{"file", "other"} {
			if ino := e.create(name); ino != file+cluster.Ino(i) {
				t.Fatalf("inode %d", ino)
			}
		}
		e.must("", Create{Dir: 1, Name: "dir", Type: cluster.TypeDirectory, Gen: 1})
		e.create("linked")
		e.must("", Link{Ino: linked, Dir: 1, Name: "link"})
		e.create("gone")
		e.remove("a", "gone")
		b := e.blob("a", set, 100)
		blob = b.ID
		d, _ := e.view.Lookup(1, "file")
		cookie = d.Cookie
		e.must("a", commitOf(file, b))
		e.must("a", Clone{Src: file, Dst: other})
		e.must("a", Lock{Ino: file, Owner: LockOwner{1}, Client: 1, End: 9, Exclusive: true})
		do(c.do(e))
		got := strings.Join(e.problems(), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: want %q, got\n%s", c.name, c.want, got)
		}
		// In many passes the result is the same.
		countMax = 1
		if again := strings.Join(e.problems(), "\n"); len(again) != len(got) {
			t.Errorf("%s: in passes of one:\n%s\nat once:\n%s", c.name, again, got)
		}
		countMax = 4 << 20
		e.close()
	}
}
