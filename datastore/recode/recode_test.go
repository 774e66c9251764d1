package recode

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/blob"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/placement"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	bg     = context.Background()
	code21 = cluster.Code{K: 2, M: 1}
)

// A fake is a volume, its writer and its stores, by the rules of the state machine.
type fake struct {
	forms  map[cluster.BlobID]Form // by what extents call them
	listed map[cluster.BlobID]Listed
	bytes  map[cluster.BlobID][]byte // by what stores call them
	next   uint32
	open   map[cluster.BlobID]bool // allocated, not final
	sets   map[cluster.BlobID]cluster.Code

	putErr    []error // of the next puts
	recodeErr []error // of the next commands
	lost      bool    // the outcome of commands is not known
	before    func()  // called before the next command
	reads     int
}

func newFake() *fake {
	return &fake{
		forms: map[cluster.BlobID]Form{}, listed: map[cluster.BlobID]Listed{}, bytes: map[cluster.BlobID][]byte{},
		open: map[cluster.BlobID]bool{}, sets: map[cluster.BlobID]cluster.Code{}, next: 1000,
	}
}

// add makes a blob of copies, in the list since a time.
func (f *fake) add(n uint32, since cluster.Time) cluster.BlobID {
	id := cluster.MakeBlobID(1, n)
	p := bytes.Repeat([]byte{byte(n), 1, 2}, 30_000)
	f.bytes[id] = p
	f.forms[id] = Form{Stored: id, Len: uint32(len(p)), CRC: checksum.Sum(p), Members: []cluster.StoreID{1}}
	f.listed[id] = Listed{Blob: id, Since: since, Code: code21}
	return id
}

func (f *fake) ToCode(after cluster.BlobID, n int) (list []Listed) {
	for id, x := range f.listed {
		if id > after {
			list = append(list, x)
		}
	}
	slices.SortFunc(list, func(a, b Listed) int { return int(int64(a.Blob) - int64(b.Blob)) })
	return list[:min(n, len(list))]
}

func (f *fake) Form(b cluster.BlobID) (Form, bool) {
	x, ok := f.forms[b]
	return x, ok
}

func (f *fake) Writer(context.Context) (Writer, error) { return f, nil }

func (f *fake) Alloc() (cluster.BlobID, error) {
	f.next++
	id := cluster.MakeBlobID(1, f.next)
	f.open[id] = true
	return id, nil
}

func (f *fake) Finish(ids ...cluster.BlobID) {
	for _, id := range ids {
		delete(f.open, id)
	}
}

func (f *fake) Recode(_ context.Context, b, from cluster.BlobID, to placement.Placed) (bool, error) {
	if fn := f.before; fn != nil {
		f.before = nil
		fn()
	}
	if len(f.recodeErr) > 0 {
		err := f.recodeErr[0]
		if f.recodeErr = f.recodeErr[1:]; err != nil {
			return true, err
		}
	}
	old, ok := f.forms[b]
	switch {
	case !ok:
		return true, cluster.ENOENT
	case old.Stored != from:
		return true, cluster.ECONFLICT
	}
	delete(f.listed, b)
	if to.Blob != 0 {
		if !f.open[to.Blob] || to.Len != old.Len || to.CRC != old.CRC {
			return true, cluster.EINVAL
		}
		f.forms[b] = Form{Stored: to.Blob, Len: to.Len, CRC: to.CRC, Code: f.sets[to.Blob], Members: make([]cluster.StoreID, max(1, f.sets[to.Blob].Shards()))}
		delete(f.bytes, old.Stored)
	}
	if f.lost {
		return false, cluster.EAGAIN
	}
	return true, nil
}

func (f *fake) read(id cluster.BlobID, off, n uint32) ([]byte, error) {
	f.reads++
	p, ok := f.bytes[id]
	if !ok {
		return nil, cluster.ENOBLOB
	}
	return p[off:][:n], nil
}

func (f *fake) Get(_ context.Context, _ cluster.GroupID, id cluster.BlobID, _ []cluster.StoreID, off, n uint32) (*blob.Buf, error) {
	p, err := f.read(id, off, n)
	return &blob.Buf{Bytes: p}, err
}

func (f *fake) GetCoded(_ context.Context, _ cluster.GroupID, c placement.Coded, off uint32, dst []byte) error {
	p, err := f.read(c.Blob, off, uint32(len(dst)))
	copy(dst, p)
	return err
}

func (f *fake) Put(_ context.Context, _ cluster.GroupID, _ uint8, alloc func() (cluster.BlobID, error), data [][]byte) (placement.Placed, []cluster.BlobID, error) {
	id, err := alloc()
	if err != nil {
		return placement.Placed{}, nil, err
	}
	if len(f.putErr) > 0 {
		err := f.putErr[0]
		if f.putErr = f.putErr[1:]; err != nil {
			return placement.Placed{}, []cluster.BlobID{id}, err
		}
	}
	p := bytes.Join(data, nil)
	f.bytes[id] = p
	return placement.Placed{Blob: id, Len: uint32(len(p)), CRC: checksum.Sum(p)}, nil, nil
}

func (f *fake) PutCoded(ctx context.Context, g cluster.GroupID, code cluster.Code, alloc func() (cluster.BlobID, error), data [][]byte, release func()) (placement.Placed, []cluster.BlobID, error) {
	defer release()
	placed, abandoned, err := f.Put(ctx, g, 0, alloc, data)
	if err == nil {
		f.sets[placed.Blob] = code
	}
	return placed, abandoned, err
}

func (f *fake) recoder() *Recoder {
	return New(Config{Group: 1, Volume: f, Blobs: f, After: time.Hour, Batch: 3})
}

const hour = cluster.Time(time.Hour)

// TestStep: what is cold is coded, some at a time; what is not stays, and what
// can't be coded now does, too, and is tried again.
func TestStep(t *testing.T) {
	f := newFake()
	var ids []cluster.BlobID
	for n := range uint32(7) {
		ids = append(ids, f.add(n, cluster.Time(n%2)*hour))
	}
	f.putErr = []error{nil, cluster.ENOSPC}
	r := f.recoder()
	coded := func() (s string) {
		for _, id := range ids {
			s += map[bool]string{true: "c", false: "-"}[f.forms[id].Code == code21]
		}
		return s
	}
	for i, want := range []struct {
		now   cluster.Time
		coded string
		done  bool
		err   error
	}{
		{hour - 1, "-------", false, nil},
		{hour, "----c--", false, nil},
		{hour, "----c--", true, cluster.ENOSPC},
		{hour, "c-c-c--", false, nil},
		{hour, "c-c-c-c", false, nil},
		{2 * hour, "c-c-c-c", true, nil},
		{2 * hour, "ccccccc", false, nil},
		{2 * hour, "ccccccc", true, nil},
	} {
		n, done, err := r.Step(bg, want.now)
		if got := coded(); got != want.coded || done != want.done || !errors.Is(err, want.err) {
			t.Fatalf("step %d: %s, %d bytes, done %v, %v; want %+v", i, got, n, done, err, want)
		}
	}
	if len(f.listed) != 0 || len(f.open) != 0 {
		t.Errorf("listed %v, not final %v", f.listed, f.open)
	}
	if c := r.Counters(); c != (Counters{Blobs: 7, Bytes: 7 * 90_000, Errors: 1}) {
		t.Errorf("%+v", c)
	}
}

func TestRecode(t *testing.T) {
	for _, c := range []struct {
		name   string
		setup  func(f *fake, b cluster.BlobID)
		code   cluster.Code // that it has afterwards
		want   error
		listed bool
		open   int // ids that are not final
		gone   uint64
	}{
		{"all well", func(*fake, cluster.BlobID) {}, code21, nil, false, 0, 0},
		{"gone", func(f *fake, b cluster.BlobID) { delete(f.forms, b); delete(f.listed, b) }, cluster.Code{}, nil, false, 0, 1},
		{"gone meanwhile", func(f *fake, b cluster.BlobID) {
			f.before = func() { delete(f.forms, b); delete(f.listed, b) }
		}, cluster.Code{}, nil, false, 0, 1},
		{"coded by another meanwhile", func(f *fake, b cluster.BlobID) {
			f.before = func() {
				x := f.forms[b]
				x.Stored, x.Code = 7, code21
				f.forms[b] = x
			}
		}, code21, nil, true, 0, 1},
		{"coded already", func(f *fake, b cluster.BlobID) {
			x := f.forms[b]
			x.Code = code21
			f.forms[b] = x
		}, code21, nil, false, 0, 0},
		{"the set has changed", func(f *fake, _ cluster.BlobID) { f.recodeErr = []error{cluster.ERETRY, cluster.ERETRY} }, code21, nil, false, 0, 0},
		{"the sets change all the time", func(f *fake, _ cluster.BlobID) {
			f.recodeErr = []error{cluster.ERETRY, cluster.ERETRY, cluster.ERETRY}
		}, cluster.Code{}, cluster.EAGAIN, true, 0, 0},
		{"no space", func(f *fake, _ cluster.BlobID) { f.putErr = []error{cluster.ENOSPC} }, cluster.Code{}, cluster.ENOSPC, true, 0, 0},
		{"bytes are gone", func(f *fake, b cluster.BlobID) { delete(f.bytes, b) }, cluster.Code{}, cluster.EAGAIN, true, 0, 0},
		{"outcome not known", func(f *fake, _ cluster.BlobID) { f.lost = true }, code21, cluster.EAGAIN, false, 1, 0},
		{"other bytes", func(f *fake, b cluster.BlobID) { f.bytes[b][17] ^= 1 }, cluster.Code{}, cluster.EIO, true, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake()
			b := f.add(1, 0)
			c.setup(f, b)
			r := f.recoder()
			_, err := r.Recode(bg, b, code21, 0)
			if _, listed := f.listed[b]; !errors.Is(err, c.want) || f.forms[b].Code != c.code || listed != c.listed {
				t.Errorf("%v, code %v, listed %v", err, f.forms[b].Code, listed)
			}
			if got := r.Counters().Gone; len(f.open) != c.open || got != c.gone {
				t.Errorf("%d ids are not final, %d were gone", len(f.open), got)
			}
		})
	}
}

// TestBack: shards become copies again.
func TestBack(t *testing.T) {
	f := newFake()
	b := f.add(1, 0)
	r := f.recoder()
	content := bytes.Clone(f.bytes[b])
	for _, code := range []cluster.Code{code21, {K: 4, M: 2}, {}, code21} {
		if n, err := r.Recode(bg, b, code, 3); err != nil || n != 90_000 {
			t.Fatal(n, err)
		}
		if x := f.forms[b]; x.Code != code || !bytes.Equal(f.bytes[x.Stored], content) || len(f.bytes) != 1 {
			t.Fatalf("%+v", x)
		}
		if n, err := r.Recode(bg, b, code, 3); err != nil || n != 0 {
			t.Fatal("again:", n, err)
		}
	}
}

// TestRules: with a rule switched off, harm is done.
func TestRules(t *testing.T) {
	f := newFake()
	b := f.add(1, 0)
	f.lost = true
	rulesOff = ruleUnknown
	_, err := f.recoder().Recode(bg, b, code21, 0)
	rulesOff = 0
	if !errors.Is(err, cluster.EAGAIN) || len(f.open) != 0 {
		t.Error("an id that is in use was not given up, though the rule is off")
	}
	f = newFake()
	b = f.add(1, 0)
	f.bytes[b][17] ^= 1
	rulesOff = ruleVerify
	_, err = f.recoder().Recode(bg, b, code21, 0)
	rulesOff = 0
	if errors.Is(err, cluster.EIO) {
		t.Error("other bytes were refused, though the rule is off")
	}
}

// TestAnyOrder: whatever fails, a blob's bytes are what they were, and in the
// end all that are there are coded.
func TestAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFake()
		want := map[cluster.BlobID][]byte{}
		for n := range rapid.Uint32Range(1, 9).Draw(t, "blobs") {
			id := f.add(n, 0)
			want[id] = bytes.Clone(f.bytes[id])
		}
		fails := rapid.SliceOfN(rapid.SampledFrom([]error{nil, cluster.ENOSPC, cluster.EAGAIN}), 0, 12)
		f.putErr = fails.Draw(t, "puts")
		f.recodeErr = rapid.SliceOfN(rapid.SampledFrom([]error{nil, cluster.ERETRY, cluster.EFENCED}), 0, 12).Draw(t, "commands")
		r := f.recoder()
		for steps := 0; len(f.listed) > 0; steps++ {
			if steps > 100 {
				t.Fatal("it does not end")
			}
			if rapid.IntRange(0, 9).Draw(t, "leader") == 0 {
				r = f.recoder() // another one, which remembers nothing
			}
			_, _, _ = r.Step(bg, 2*hour)
			for id, p := range want {
				if x := f.forms[id]; !bytes.Equal(f.bytes[x.Stored], p) {
					t.Fatalf("blob %v has other bytes", id)
				}
			}
		}
		if len(f.open) != 0 {
			t.Fatalf("ids that are not final: %v", f.open)
		}
		for id := range want {
			if f.forms[id].Code != code21 {
				t.Fatalf("blob %v is %v", id, f.forms[id].Code)
			}
		}
	})
}
