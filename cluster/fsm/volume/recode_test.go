package volume

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hawserfs/hawser/cluster"
)

// codedSet makes a writable set of a code.
func (e *dataEnv) codedSet(code cluster.Code, members ...cluster.StoreID) ReplicaSet {
	e.t.Helper()
	r, err := DecodePutReplicaSetResult(e.must("", PutReplicaSet{Set: ReplicaSet{Members: members, Copies: 1, Code: code}}))
	if err != nil {
		e.t.Fatalf("set: %v", err)
	}
	return r.Set
}

var code21 = cluster.Code{K: 2, M: 1}

// TestRecode: a blob becomes shards, other shards, and copies again, and its
// file, and a clone of it, never notice; what it was is garbage each time.
func TestRecode(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	copies, coded := e.set(1, 2), e.codedSet(code21, 1, 2, 3)
	file, clone := e.create("file"), e.create("clone")
	b := e.blob("a", copies, 100)
	e.must("a", commitOf(file, b))
	e.must("a", Clone{Src: file, Dst: clone})
	before, _ := e.view.Inode(file)
	content := string(e.read(file))
	from := b.ID
	for i, set := range []ReplicaSet{coded, coded, copies, copies, coded} {
		old, _ := e.view.Blob(b.ID)
		to := e.blob("a", set, 100)
		e.must("a", Recode{Blob: b.ID, From: from, To: to})
		got, ok := e.view.Blob(b.ID)
		if !ok || got.Set != set.ID || got.Kind != set.blobKind() || got.Stored != to.ID || got.Refs != 2 || got.Len != 100 {
			t.Fatalf("step %d: %+v", i, got)
		}
		if in, ok := e.view.StoredBlob(to.ID); !ok || in != got {
			t.Fatalf("step %d: stored is %+v", i, in)
		}
		if _, ok := e.view.StoredBlob(from); ok {
			t.Fatalf("step %d: its old form is there still", i)
		}
		if in, ok := e.view.Blob(to.ID); !ok || in != got {
			t.Fatalf("step %d: by what stores call it, it is %+v", i, in)
		}
		if !e.inGarbage(old.Set, from) || e.inGarbage(set.ID, to.ID) {
			t.Fatalf("step %d: garbage is wrong", i)
		}
		e.writers["a"].low = to.ID.Counter() + 1
		e.must("a", Touch{})
		if !e.view.Deletable(from) || e.view.Deletable(to.ID) {
			t.Fatalf("step %d: deletable: old form %v, new form %v", i, e.view.Deletable(from), e.view.Deletable(to.ID))
		}
		from = to.ID
		e.check()
	}
	if after, _ := e.view.Inode(file); after != before {
		t.Errorf("the file was %+v, is %+v", before, after)
	}
	if string(e.read(clone)) != content {
		t.Error("the clone has other bytes")
	}
	// It goes with its last reference, in the form that it has.
	e.must("a", Punch{Ino: file, Len: 100})
	e.must("a", SetAttr{Ino: clone, Attr: cluster.SetAttr{Mask: cluster.SetSize}})
	if _, ok := e.view.Blob(b.ID); ok || !e.inGarbage(coded.ID, from) || !e.view.Deletable(from) || !e.view.Deletable(b.ID) {
		t.Error("it is there still, or not in the delete queue")
	}
	if err := errOf(e.apply("a", Recode{Blob: b.ID, From: from, To: e.blob("a", copies, 100)})); !errors.Is(err, cluster.ENOENT) {
		t.Errorf("recoding what is gone: %v", err)
	}
	e.check()
	e.replay()
}

// TestCommitCoded: a blob can be shards from the beginning.
func TestCommitCoded(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	set := e.codedSet(code21, 1, 2, 3)
	ino := e.create("f")
	b := e.blob("a", set, 100)
	e.must("a", commitOf(ino, b))
	if got, ok := e.view.Blob(b.ID); !ok || got.Kind != Coded || got.Stored != b.ID {
		t.Errorf("%+v", got)
	}
	e.check()
}

// TestToCode: large blobs of copies that a file of a class with a code gets are
// in the list of those to be coded, until they are, or are gone.
func TestToCode(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	copies, coded := e.set(1, 2), e.codedSet(code21, 1, 2, 3)
	list := func() (s string) {
		e.view.ToCode(0, func(x ToCode) bool {
			s += fmt.Sprintf("%v %v at %d\n", x.Blob, x.Code, x.Since)
			return true
		})
		return s
	}
	plain := e.create("plain")
	big := e.blob("a", copies, cluster.MinCoded)
	e.must("a", commitOf(plain, big))
	class := cluster.Class{Copies: 2, Code: code21}
	e.must("", SetClass{Ino: cluster.RootIno, Class: class})
	if got := e.view.Codes(); len(got) != 1 || got[0] != code21 {
		t.Fatalf("codes %v", got)
	}
	f := e.create("f")
	small, whole, two := e.blob("a", copies, cluster.MinCoded-1), e.blob("a", coded, cluster.MinCoded), e.blob("a", copies, cluster.MinCoded)
	for i, b := range []NewBlob{small, whole} {
		e.must("a", CommitExtents{Ino: f, Blobs: []NewBlob{b}, Extents: []NewExtent{{Off: uint64(i) << 20, Len: b.Len, Blob: b.ID}}})
	}
	if got := list(); got != "" {
		t.Fatalf("small, coded, or of no such class, but to be coded:\n%s", got)
	}
	e.must("a", commitOf(f, two))
	want := fmt.Sprintf("%v 2+1 at %d\n", two.ID, e.index)
	if got := list(); got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	// A copy that a file gets by sharing counts, too.
	e.must("a", Clone{Src: plain, Dst: e.create("copy")})
	want = fmt.Sprintf("%v 2+1 at %d\n", big.ID, e.index) + want
	if got := list(); got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	e.must("a", Clone{Src: plain, Dst: e.create("again")})
	e.check()
	to := e.blob("a", coded, cluster.MinCoded)
	e.must("a", Recode{Blob: big.ID, From: big.ID, To: to})
	e.must("a", Recode{Blob: two.ID, From: two.ID})
	if got := list(); got != "" {
		t.Fatalf("still to be coded:\n%s", got)
	}
	e.check()
	// What is freed goes from the list.
	three := e.blob("a", copies, cluster.MinCoded)
	e.must("a", commitOf(f, three))
	e.must("a", Punch{Ino: f, Len: 1 << 30})
	if got := list(); got != "" {
		t.Fatalf("gone, and to be coded:\n%s", got)
	}
	e.check()
	e.replay()
}

// TestClassOfFile: a file's copies and code can be changed, not when it is
// committed, nor what clients see.
func TestClassOfFile(t *testing.T) {
	e := newData(t)
	defer e.close()
	f := e.create("f")
	before, _ := e.view.Inode(f)
	want := before
	want.Class.Copies, want.Class.Code = 3, code21
	got := e.attr("", SetClass{Ino: f, Class: cluster.Class{Consistency: cluster.Relaxed, Copies: 3, Code: code21}}).Attr
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, code := range []cluster.Code{{K: 1, M: 1}, {K: 17, M: 1}, {K: 4}, {K: 4, M: 5}} {
		if err := errOf(e.apply("", SetClass{Ino: cluster.RootIno, Class: cluster.Class{Copies: 3, Code: code}})); !errors.Is(err, cluster.EINVAL) {
			t.Errorf("code %v: %v", code, err)
		}
	}
	for k := range uint8(15) {
		_, _ = e.apply("", SetClass{Ino: cluster.RootIno, Class: cluster.Class{Copies: 3, Code: cluster.Code{K: k + 2, M: 3}}})
	}
	if err := errOf(e.apply("", SetClass{Ino: cluster.RootIno, Class: cluster.Class{Copies: 3, Code: cluster.Code{K: 3, M: 4}}})); !errors.Is(err, cluster.ENOSPC) {
		t.Errorf("one code too many: %v", err)
	}
	e.check()
}

func TestCodedSets(t *testing.T) {
	e := newData(t)
	defer e.close()
	for _, s := range []ReplicaSet{
		{Members: []cluster.StoreID{1, 2}, Copies: 1, Code: code21},
		{Members: []cluster.StoreID{1, 2, 3, 4}, Copies: 1, Code: code21},
		{Members: []cluster.StoreID{1, 2, 2}, Copies: 1, Code: code21},
		{Members: []cluster.StoreID{1, 2}, Copies: 1, Code: cluster.Code{K: 1, M: 1}},
	} {
		if err := errOf(e.apply("", PutReplicaSet{Set: s})); !errors.Is(err, cluster.EINVAL) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	var most []cluster.StoreID
	for i := range cluster.StoreID(20) {
		most = append(most, i+1)
	}
	s := e.codedSet(cluster.Code{K: 16, M: 4}, most...)
	if got, ok := e.view.ReplicaSet(s.ID); !ok || got.Code != s.Code || len(got.Members) != 20 || got.State != Writable {
		t.Errorf("%+v", got)
	}
	e.check()
}

// TestRecordsOfOld: what was stored before there were codes is read as it was.
func TestRecordsOfOld(t *testing.T) {
	b := Blob{ID: 5, Kind: Copies, Set: 2, Len: 3, CRC: 4, Refs: 1, Stored: 5}
	for val, want := range map[string]Blob{
		"\x01\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x04\x00\x00\x00\x01": b,
	} {
		if got, ok := decodeBlob(5, []byte(val)); !ok || got != want || string(appendBlob(nil, &got)) != val {
			t.Errorf("%+v", got)
		}
	}
	set := ReplicaSet{ID: 1, Members: []cluster.StoreID{2, 3}, Copies: 3, Epoch: 4, State: ReadOnly}
	if got := string(appendSet(nil, &set)); got != "\x01\x02\x02\x03\x03\x04\x01" {
		t.Errorf("a set is %x", got)
	}
	if got := string(appendClass(nil, someClass)); got != "\x01\x02" {
		t.Errorf("a class is %x", got)
	}
	if got := appendRecord(nil, &record{NextIno: 2, NextSet: 1}); got[0] != volumeFormat {
		t.Errorf("a volume record without codes has format %d", got[0])
	}
}

// TestCheckFindsRecoded damages what Recode keeps; Check must find each.
func TestCheckFindsRecoded(t *testing.T) {
	var b, to, queued NewBlob
	key := func(id cluster.BlobID) string { return string(appendBlobKey(nil, id)) }
	edit := func(e *dataEnv, id cluster.BlobID, fn func(b *Blob)) raw {
		b, _ := e.view.Blob(id)
		fn(&b)
		return raw{key(id): appendBlob(nil, &b)}
	}
	for _, c := range []struct {
		name string
		do   func(e *dataEnv) raw
		want string
	}{
		{"nothing", func(*dataEnv) raw { return raw{} }, ""},
		{"stand-in gone", func(*dataEnv) raw { return raw{key(to.ID): nil} }, "does not stand in for it"},
		{"blob of a stand-in gone", func(*dataEnv) raw { return raw{key(b.ID): nil} }, "which is not stored there"},
		{"stored elsewhere", func(e *dataEnv) raw { return edit(e, b.ID, func(b *Blob) { b.Stored = b.ID }) }, "which is not stored there"},
		{"kind is not its set's", func(e *dataEnv) raw { return edit(e, b.ID, func(b *Blob) { b.Kind = Copies }) }, "has code 2+1"},
		{"not in its set", func(*dataEnv) raw { return raw{string(appendSetBlobKey(nil, prefixSetBlob, 2, to.ID)): nil} }, "not among the blobs"},
		{"its form is garbage", func(*dataEnv) raw {
			return raw{string(appendSetBlobKey(nil, prefixGarbage, 2, to.ID)): appendGarbage(nil, garbage{1, 1})}
		}, "in use and in the delete queue"},
		{"not in the list", func(*dataEnv) raw { return raw{string(appendToCodeKey(nil, queued.ID)): nil} }, "list of those to be coded: true"},
		{"in the list", func(*dataEnv) raw { return raw{string(appendToCodeKey(nil, b.ID)): []byte("\x02\x02\x01")} }, "list of those to be coded: false"},
		{"list of nothing", func(*dataEnv) raw { return raw{string(appendToCodeKey(nil, 77)): []byte("\x02\x02\x01")} }, "but is not there"},
		{"list damaged", func(*dataEnv) raw { return raw{string(appendToCodeKey(nil, queued.ID)): []byte("\x02")} }, "among those to be coded is damaged"},
	} {
		e, do := newRaw(t)
		e.must("", Format{HashKey: [16]byte{1, 2, 3}, Mode: 0o777, Class: cluster.Class{Copies: 2, Code: code21}})
		e.open("a", "n1")
		copies, coded := e.set(1, 2), e.codedSet(code21, 1, 2, 3)
		b, to, queued = e.blob("a", copies, 100), e.blob("a", coded, 100), e.blob("a", copies, cluster.MinCoded)
		e.must("a", commitOf(e.create("f"), b))
		e.must("a", commitOf(e.create("g"), queued))
		e.must("a", Recode{Blob: b.ID, From: b.ID, To: to})
		do(c.do(e))
		if got := strings.Join(e.problems(), "\n"); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: want %q, got\n%s", c.name, c.want, got)
		}
		e.close()
	}
}

// recode gives a blob of a file of the model another form, or tries to.
func (f *fileModel) recode() {
	f.flush()
	var ids []cluster.BlobID
	f.e.view.Extents(f.inos[0], 0, maxOffset, func(x *Extent) bool {
		if x.Blob != 0 {
			ids = append(ids, x.Blob)
		}
		return true
	})
	if len(ids) == 0 {
		return
	}
	b, _ := f.e.view.Blob(rapid.SampledFrom(ids).Draw(f.t, "blob"))
	to := f.e.blob("a", rapid.SampledFrom(append(f.sets, f.coded)).Draw(f.t, "set"), b.Len)
	to.CRC = b.CRC
	f.entries = append(f.entries, f.e.entry("a", Recode{Blob: b.ID, From: b.Stored, To: to}))
	f.want = append(f.want, nil)
}
