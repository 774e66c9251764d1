package ids

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A directory is a Lookup for tests.
type directory struct {
	asked atomic.Int64
	gids  []uint32
	err   error
	gate  chan struct{}
}

func (d *directory) lookup(uint32) ([]uint32, error) {
	d.asked.Add(1)
	if d.gate != nil {
		<-d.gate
	}
	return d.gids, d.err
}

func TestRemembers(t *testing.T) {
	now := time.Unix(1000, 0)
	d := &directory{gids: []uint32{7, 8}}
	g := New(Config{Lookup: d.lookup, TTL: time.Minute})
	g.now = func() time.Time { return now }
	check := func(step string, asked int64, want []uint32, ok bool) {
		t.Helper()
		got, gotOK := g.Of(context.Background(), 5)
		if gotOK != ok || !slices.Equal(got, want) || d.asked.Load() != asked {
			t.Errorf("%s: %v %v, asked %d times; want %v %v, %d", step, got, gotOK, d.asked.Load(), want, ok, asked)
		}
	}
	check("first", 1, []uint32{7, 8}, true)
	check("again", 1, []uint32{7, 8}, true)
	now = now.Add(2 * time.Minute)
	d.gids, d.err = nil, errors.New("the directory is down")
	check("a failure keeps what was known", 2, []uint32{7, 8}, true)
	check("and is not repeated at once", 2, []uint32{7, 8}, true)
	now = now.Add(time.Minute)
	d.err = ErrUnknown
	check("unknown", 3, nil, false)
	check("unknown is remembered", 3, nil, false)
	now = now.Add(2 * time.Minute)
	d.err = nil
	check("known, in no group", 4, nil, true)
}

func TestBounds(t *testing.T) {
	d := &directory{gids: []uint32{1}}
	g := New(Config{Lookup: d.lookup, Max: 10})
	for uid := range uint32(1000) {
		g.Of(context.Background(), uid)
	}
	n := 0
	g.known.Range(func(any, any) bool { n++; return true })
	if n > 10 {
		t.Errorf("%d users remembered", n)
	}
}

// TestSlow checks that calls don't wait for ever for a directory that hangs,
// that they ask for a user once, and that no more than MaxBusy lookups hang.
func TestSlow(t *testing.T) {
	d := &directory{gids: []uint32{1}, gate: make(chan struct{})}
	g := New(Config{Lookup: d.lookup, Wait: 20 * time.Millisecond, MaxBusy: 3})
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if _, ok := g.Of(context.Background(), uint32(i%8)); ok {
				t.Error("an answer came out of nothing")
			}
		})
	}
	wg.Wait()
	if n := d.asked.Load(); n != 3 {
		t.Errorf("%d lookups, want 3", n)
	}
	close(d.gate)
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, ok := g.Of(context.Background(), 0); ok {
			return
		}
	}
	t.Error("the answer never came")
}

func TestHandler(t *testing.T) {
	all := make([]uint32, 40)
	for i := range all {
		all[i] = uint32(i)
	}
	d := &directory{gids: all}
	var got []uint32
	h := New(Config{Lookup: d.lookup}).Handler(oncrpc.HandlerFunc(func(c *oncrpc.Call, _ *xdr.Encoder) oncrpc.AcceptStat {
		if c.Cred.Sys != nil {
			got = c.Cred.Sys.GIDs
		}
		return oncrpc.Success
	}))
	sent := []uint32{99}
	for _, c := range []struct {
		uid  uint32
		want []uint32
	}{{5, all}, {0, sent}} {
		sys := &oncrpc.AuthSys{UID: c.uid, GIDs: sent}
		call := &oncrpc.Call{Cred: oncrpc.Cred{Flavor: oncrpc.AuthSysF, Sys: sys}}
		h.ServeRPC(call, xdr.NewEncoder(nil))
		if !slices.Equal(got, c.want) {
			t.Errorf("uid %d: groups %v", c.uid, got)
		}
	}
	if s := h.ServeRPC(&oncrpc.Call{}, xdr.NewEncoder(nil)); s != oncrpc.Success {
		t.Error(s)
	}
}

func TestSystem(t *testing.T) {
	if gids, err := System(0); err != nil || len(gids) == 0 {
		t.Errorf("root: %v, %v", gids, err)
	}
	if _, err := System(4000000000); !errors.Is(err, ErrUnknown) {
		t.Errorf("nobody: %v", err)
	}
}
