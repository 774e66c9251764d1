package volume

import (
	"bytes"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// decodeAs returns a function that decodes a C from an encoding, whole.
func decodeAs[C any, P decoder[C]]() func([]byte) (any, error) {
	return func(b []byte) (any, error) {
		var c C
		d := codec.NewDec(b)
		P(&c).decode(&d)
		return c, d.Done()
	}
}

// resultAs makes a function of a result's decoder that returns any.
func resultAs[R any](decode func([]byte) (R, error)) func([]byte) (any, error) {
	return func(b []byte) (any, error) { return decode(b) }
}

type appender interface{ AppendTo(dst []byte) []byte }

var (
	someCred = cluster.Cred{UID: 1, GID: 2, GIDs: []uint32{3, 1 << 31}}
	someSet  = cluster.SetAttr{
		Mask: cluster.SetMode | cluster.SetUID | cluster.SetGID | cluster.SetSize | cluster.SetAtime | cluster.SetMtime,
		Mode: 0o7777, UID: 1, GID: 2, Size: 1 << 62, Atime: -1, Mtime: 1 << 60,
	}
	someClass = cluster.Class{Consistency: cluster.Relaxed, Copies: 2}
	someAttr  = cluster.Attr{
		Ino: 1, Gen: 2, Type: 3, Mode: 4, Nlink: 5, UID: 6, GID: 7, Size: 8, Used: 9, Major: 10, Minor: 11,
		Atime: -12, Mtime: 13, Ctime: 14, Btime: 15, Change: 16, Parent: 17, Class: someClass,
	}
	someChange = cluster.ChangeInfo{Before: 1, After: 1 << 40}
	someSetRep = ReplicaSet{ID: 1, Members: []cluster.StoreID{2, 3}, Copies: 3, Epoch: 4, State: ReadOnly}
	someOwner  = LockOwner{1, 15: 16}
	ecClass    = cluster.Class{Consistency: cluster.Relaxed, Copies: 2, Code: cluster.Code{K: 4, M: 2}}
	ecSet      = ReplicaSet{ID: 1, Members: []cluster.StoreID{2, 3, 4}, Copies: 1, Epoch: 4, State: ReadOnly, Code: cluster.Code{K: 2, M: 1}}
)

var (
	someOpen      = State{Other: StateID{1, 11: 2}, Client: 3, Access: 3, Deny: 1, Owner: []byte("o")}
	someLockState = State{Other: StateID{2}, Kind: StateLock, Client: 4, Owner: []byte("lo"), Digest: someOwner}
)

// examples has each command and result with every member set.
var examples = []struct {
	value  appender
	decode func([]byte) (any, error)
}{
	{Format{HashKey: [16]byte{1, 15: 9}, Class: someClass, Mode: 0o755}, decodeAs[Format]()},
	{Create{Cred: someCred, Dir: 3, Name: "n", Type: cluster.TypeRegular, How: Exclusive, Verifier: 1 << 63, Attr: someSet, Gen: 7}, decodeAs[Create]()},
	{Create{Cred: someCred, Dir: 3, Name: "n", Type: cluster.TypeSymlink, How: Guarded, Attr: cluster.SetAttr{Mask: cluster.SetAtimeNow}, Gen: 7, Target: "t"}, decodeAs[Create]()},
	{Create{Dir: 3, Name: "n", Type: cluster.TypeChar, Gen: 7, Major: 8, Minor: 9}, decodeAs[Create]()},
	{Link{Cred: someCred, Ino: 1, Dir: 2, Name: "n"}, decodeAs[Link]()},
	{Remove{Cred: someCred, Dir: 2, Name: "n"}, decodeAs[Remove]()},
	{Rename{Cred: someCred, FromDir: 1, FromName: "a", ToDir: 2, ToName: "b"}, decodeAs[Rename]()},
	{SetAttr{Cred: someCred, Ino: 1, Attr: someSet, Open: true}, decodeAs[SetAttr]()},
	{SetClass{Cred: someCred, Ino: 1, Class: someClass}, decodeAs[SetClass]()},
	{Relocate{
		Blobs: []NewBlob{{ID: 1 << 33, Set: 1, Epoch: 2, Len: 3, CRC: 4}},
		Moves: []Move{
			{Ino: 1, Off: 2, Len: 3, Blob: 4, BlobOff: 5, NewBlob: 1 << 33, NewOff: 6},
			{Ino: 1 << 40, Off: 1 << 50, Len: 3, CRC: 1 << 31, NewBlob: 1 << 33, NewOff: 7},
		},
		Done: []Mark{{Ino: 1, Index: 1 << 40}},
	}, decodeAs[Relocate]()},
	{SetClass{Cred: someCred, Ino: 1, Class: ecClass}, decodeAs[SetClass]()},
	{PutReplicaSet{Set: ecSet}, decodeAs[PutReplicaSet]()},
	{Recode{Blob: 1 << 40, From: 1 << 41, To: NewBlob{ID: 1 << 42, Set: 1, Epoch: 2, Len: 3, CRC: 4}}, decodeAs[Recode]()},
	{CommitExtents{
		Ino: 1, Mtime: 2, KillPriv: true,
		Blobs: []NewBlob{{ID: 1 << 33, Set: 1, Epoch: 2, Len: 3, CRC: 4}},
		Extents: []NewExtent{
			{Off: 5, Len: 6, Blob: 1 << 33, BlobOff: 7},
			{Off: 8, Len: 3, Bytes: []byte("abc")},
		},
	}, decodeAs[CommitExtents]()},
	{Punch{Ino: 1, Off: 2, Len: 3, Extend: true, KillPriv: true}, decodeAs[Punch]()},
	{Clone{Src: 1, Dst: 2, SrcOff: 3, DstOff: 4, Len: 5, KillPriv: true}, decodeAs[Clone]()},
	{Lock{Ino: 1, Owner: someOwner, Client: 2, Wire: []byte("w"), Start: 3, End: 1<<64 - 1, Exclusive: true}, decodeAs[Lock]()},
	{Lock{Ino: 1, Owner: someOwner, Client: 2, Wire: []byte("w"), Start: 3, End: 4, State: &someLockState}, decodeAs[Lock]()},
	{Create{Dir: 3, Name: "n", Type: cluster.TypeRegular, How: Exclusive, Verifier: 6, Gen: 7, Open: &someOpen}, decodeAs[Create]()},
	{Clone{Src: 1, Dst: 2, SrcOff: 3, DstOff: 4, Len: 5, Base: 1 << 40}, decodeAs[Clone]()},
	{PutState{Ino: 1, State: someLockState}, decodeAs[PutState]()},
	{PutStates{Files: []FileStates{{Ino: 1, States: []State{someOpen, someLockState}}, {Ino: 2, States: []State{}}}}, decodeAs[PutStates]()},
	{DropStates{Refs: []StateRef{{Ino: 1 << 40, Other: StateID{1}}, {Ino: 2}}}, decodeAs[DropStates]()},
	{Unlock{Ino: 1, Owner: someOwner, Start: 3, End: 1<<64 - 1}, decodeAs[Unlock]()},
	{ReleaseClient{Client: 1, Ino: 2}, decodeAs[ReleaseClient]()},
	{ReleaseUnlinked{Inos: []cluster.Ino{1, 1 << 40}}, decodeAs[ReleaseUnlinked]()},
	{Reap{Max: 1}, decodeAs[Reap]()},
	{PutReplicaSet{Set: someSetRep}, decodeAs[PutReplicaSet]()},
	{Collected{Set: 1, Blobs: []cluster.BlobID{1 << 33, 2}}, decodeAs[Collected]()},
	{Touch{Inos: []cluster.Ino{1, 2}, Atime: 3}, decodeAs[Touch]()},
	{SetXattr{Cred: someCred, Ino: 1, Name: "n", Value: []byte("v"), How: Exclusive}, decodeAs[SetXattr]()},
	{RemoveXattr{Cred: someCred, Ino: 1, Name: "n"}, decodeAs[RemoveXattr]()},

	{CreateResult{Attr: someAttr, Dir: someChange, Created: true, Set: 0xff}, resultAs(DecodeCreateResult)},
	{LinkResult{Attr: someAttr, Dir: someChange}, resultAs(DecodeLinkResult)},
	{RemoveResult{Attr: someAttr, Dir: someChange}, resultAs(DecodeRemoveResult)},
	{RenameResult{From: someChange, To: cluster.ChangeInfo{Before: 8, After: 9}, Attr: someAttr, Replaced: 4}, resultAs(DecodeRenameResult)},
	{AttrResult{Attr: someAttr, More: true, Done: 5}, resultAs(DecodeAttrResult)},
	{LockResult{Conflict: LockInfo{Ino: 1, Owner: someOwner, Writer: 2, Client: 3, Wire: []byte("w"), Start: 4, End: 5, Exclusive: true}}, resultAs(DecodeLockResult)},
	{ReleaseClientResult{More: true}, resultAs(DecodeReleaseClientResult)},
	{RelocateResult{Moved: []byte{5, 1}}, resultAs(DecodeRelocateResult)},
	{ReapResult{Freed: 1, More: true}, resultAs(DecodeReapResult)},
	{PutReplicaSetResult{Set: someSetRep}, resultAs(DecodePutReplicaSetResult)},
	{XattrResult{Change: someChange}, resultAs(DecodeXattrResult)},
}

func TestEncode(t *testing.T) {
	kinds := map[fsm.Kind]bool{}
	for _, x := range examples {
		enc := x.value.AppendTo([]byte("head"))[len("head"):]
		got, err := x.decode(enc)
		if err != nil || !reflect.DeepEqual(got, x.value) {
			t.Errorf("%T:\n have %+v, %v\n want %+v", x.value, got, err, x.value)
		}
		for cut := range enc {
			if _, err := x.decode(enc[:cut]); err == nil {
				t.Errorf("%T: no error for the first %d of %d bytes", x.value, cut, len(enc))
			}
		}
		if _, err := x.decode(append(bytes.Clone(enc), 0)); err == nil {
			t.Errorf("%T: no error for a byte too many", x.value)
		}
		if b, ok := x.value.(fsm.Body); ok {
			kinds[b.Kind()] = true
		}
	}
	for kind := KindFormat; kind <= KindRecode; kind++ {
		if kind == KindReleaseClient+1 { // was ReleaseNode
			continue
		}
		if !kinds[kind] {
			t.Errorf("no example of kind %d", kind)
		}
		if handlers[kind] == nil {
			t.Errorf("kind %d has no handler", kind)
		}
	}
}

// again checks that what is encoded, decoded and encoded again stays the same.
func again[C appender](t *testing.T, decode func([]byte) (any, error)) {
	gen := rapid.Make[C]()
	rapid.Check(t, func(t *rapid.T) {
		enc := gen.Draw(t, "value").AppendTo(nil)
		got, err := decode(enc)
		if err != nil {
			t.Fatal(err)
		}
		if re := got.(appender).AppendTo(nil); !bytes.Equal(enc, re) {
			t.Fatalf("encoded again: %x, was %x", re, enc)
		}
	})
}

func TestEncodeAnything(t *testing.T) {
	again[Create](t, decodeAs[Create]())
	again[Rename](t, decodeAs[Rename]())
	again[SetAttr](t, decodeAs[SetAttr]())
	again[CommitExtents](t, decodeAs[CommitExtents]())
	again[Lock](t, decodeAs[Lock]())
	again[PutReplicaSet](t, decodeAs[PutReplicaSet]())
	again[CreateResult](t, resultAs(DecodeCreateResult))
	again[RenameResult](t, resultAs(DecodeRenameResult))
}

// FuzzApply gives the core any body of any kind: it is refused, or does
// something that leaves the volume whole, but is never a bug's failure.
func FuzzApply(f *testing.F) {
	for _, x := range examples {
		if b, ok := x.value.(fsm.Body); ok {
			f.Add(uint8(b.Kind()), b.AppendTo(nil))
		}
	}
	f.Add(uint8(200), []byte{})
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		if fsm.Kind(kind) < fsm.FirstCoreKind {
			return
		}
		e, done := openTree(t)
		defer done()
		_, err := e.apply(Create{Dir: 1, Name: "n", Type: cluster.TypeRegular, Gen: 1, How: Exclusive, Verifier: 1})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = e.apply(anyBody{fsm.Kind(kind), body})
		Check(e.view, func(p Problem) { t.Errorf("check: %v", p) })
	})
}

type anyBody struct {
	kind fsm.Kind
	body []byte
}

func (b anyBody) Kind() fsm.Kind             { return b.kind }
func (b anyBody) AppendTo(dst []byte) []byte { return append(dst, b.body...) }
