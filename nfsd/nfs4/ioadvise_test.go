package nfs4

import (
	"sync"
	"testing"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
)

// A hintFS notes what is to be prefetched.
type hintFS struct {
	vfs.FS
	mu  sync.Mutex
	got [][2]uint64
}

func (f *hintFS) Prefetch(r *vfs.Request, file vfs.File, off, n uint64) error {
	f.mu.Lock()
	f.got = append(f.got, [2]uint64{off, n})
	f.mu.Unlock()
	return f.FS.Prefetch(r, file, off, n)
}

// take returns what was to be prefetched since it was asked last.
func (f *hintFS) take() [][2]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	got := f.got
	f.got = nil
	return got
}

// IO_ADVISE prefetches what is said to be needed, and answers with what it honours.
func TestIOAdvise(t *testing.T) {
	hint := &hintFS{}
	r := newRig(t, func(c *Config) { hint.FS, c.FS = c.FS, hint })
	s := r.newSession("a")
	root := s.root()
	f := s.mustOpen(root, openHow{create: true, name: "f"})
	advise := func(fh []byte, sid state.Stateid, hints bitmap) (bitmap, proto.Status) {
		st, d := s.one(fh, proto.OpIOAdvise, stateidOp(proto.OpIOAdvise, nil, sid, func(e *xdr.Encoder) {
			e.Uint64(4096)
			e.Uint64(8192)
			encodeBitmap(e, hints)
		}))
		if st != proto.OK {
			return bitmap{}, st
		}
		got, _ := decodeBitmap(d)
		return got, st
	}
	for _, c := range []struct {
		hints, want bitmap
		prefetched  int
	}{
		{attrSet(proto.IOAdviseWillneed), attrSet(proto.IOAdviseWillneed), 1},
		{attrSet(proto.IOAdviseSequential, proto.IOAdviseRead), attrSet(proto.IOAdviseSequential), 1},
		{attrSet(proto.IOAdviseSequential, proto.IOAdviseRandom), attrSet(proto.IOAdviseNormal), 0},
		{attrSet(proto.IOAdviseDontneed, 40), attrSet(proto.IOAdviseNormal), 0},
		{bitmap{}, attrSet(proto.IOAdviseNormal), 0},
	} {
		got, st := advise(f.fh, f.sid, c.hints)
		fetched := hint.take()
		if st != proto.OK || got != c.want || len(fetched) != c.prefetched {
			t.Errorf("%v: %v, %v, %d prefetched", c.hints, st, got, len(fetched))
		}
		if len(fetched) == 1 && fetched[0] != [2]uint64{4096, 8192} {
			t.Errorf("%v prefetched", fetched)
		}
	}
	if _, st := advise(root, state.Anonymous, attrSet(proto.IOAdviseWillneed)); st != proto.ErrIsdir {
		t.Error(st)
	}
	if _, st := advise(f.fh, state.Stateid{Seq: 1, Other: [12]byte{9}}, attrSet(proto.IOAdviseWillneed)); st != proto.ErrBadStateid {
		t.Error(st)
	}
}
