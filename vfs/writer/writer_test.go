package writer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestLowWater: the mark never passes a blob that is not final, and passes all
// that are.
func TestLowWater(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSession(&Config{Lanes: 1}, 3)
		final := map[cluster.BlobID]bool{}
		var ids []cluster.BlobID
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(ids) == 0 || rapid.Bool().Draw(t, "alloc") {
				id, err := s.Alloc()
				if err != nil || id.Writer() != 3 || final[id] {
					t.Fatalf("%v, %v", id, err)
				}
				ids = append(ids, id)
				final[id] = false
			} else {
				id := rapid.SampledFrom(ids).Draw(t, "finish")
				final[id] = true
				s.Finish(id, cluster.MakeBlobID(2, 1))
			}
			low := s.LowWater()
			for i, id := range ids {
				if !final[id] && id.Counter() < low {
					t.Fatalf("the mark %d passed %v", low, id)
				}
				if i == 0 && final[id] && low == id.Counter() {
					t.Fatalf("the mark stays at %v", id)
				}
			}
		}
	})
}

// log is a group that keeps what is proposed, and loses some of it.
type log struct {
	mu     sync.Mutex
	last   map[uint16]uint64
	cmds   map[string]int
	fenced bool
	n      int
}

func (l *log) Propose(_ context.Context, cmd []byte) (uint64, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	l.cmds[string(cmd)]++
	env, _, err := fsm.ParseCommand(cmd)
	if err != nil {
		return 0, nil, err
	}
	if env.Kind == fsm.KindOpenWriter {
		l.fenced = false
		return 1, codec.AppendUint32(fsm.Result(cluster.OK), uint32(l.n)), nil
	}
	if l.fenced {
		return 1, fsm.Result(cluster.EFENCED), nil
	}
	if env.Seq < l.last[env.Lane] {
		return 0, nil, errors.New("a lane went back")
	}
	l.last[env.Lane] = env.Seq
	if l.n%3 == 0 {
		return 0, nil, errors.New("lost")
	}
	return uint64(l.n), fsm.Result(cluster.OK), nil
}

type command struct{ codec int }

func (command) Kind() fsm.Kind               { return 99 }
func (c command) AppendTo(dst []byte) []byte { return codec.AppendUvarint(dst, uint64(c.codec)) }

func newWriter(l *log, lanes int) *Writer {
	nonce := uint64(0)
	return New(Config{
		Group: l, Node: "n", Nonce: func() uint64 { nonce++; return nonce }, Base: context.Background(), Lanes: lanes,
		Now: func() cluster.Time { return 1 }, Logger: slog.New(slog.DiscardHandler),
	})
}

// TestRepeats: a command whose outcome is unknown is repeated with the same
// bytes, and its lane has no other one meanwhile.
func TestRepeats(t *testing.T) {
	l := &log{last: map[uint16]uint64{}, cmds: map[string]int{}}
	w := newWriter(l, 4)
	s, err := w.Session(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	const n = 60
	for i := range n {
		wg.Go(func() {
			if _, _, err := s.Propose(context.Background(), command{i}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(l.cmds) != n+1 || len(l.last) > 4 {
		t.Errorf("%d different commands on %d lanes", len(l.cmds), len(l.last))
	}
}

func TestFenced(t *testing.T) {
	l := &log{last: map[uint16]uint64{}, cmds: map[string]int{}}
	w := newWriter(l, 4)
	s, err := w.Session(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	l.fenced = true
	if _, _, err := s.Propose(context.Background(), command{}); !errors.Is(err, cluster.EFENCED) || !s.Fenced() || w.Current() != nil {
		t.Fatalf("%v", err)
	}
	if _, err := s.Alloc(); !errors.Is(err, cluster.EFENCED) {
		t.Error("a fenced session makes blob ids")
	}
	n, err := w.Session(context.Background())
	if err != nil || n.ID() == s.ID() {
		t.Fatalf("%v, %v", n, err)
	}
	if _, _, err := n.Propose(context.Background(), command{}); err != nil {
		t.Error(err)
	}
}

// TestGivesUp: who waits for a lane gives up with its context.
func TestGivesUp(t *testing.T) {
	l := &log{last: map[uint16]uint64{}, cmds: map[string]int{}}
	s, err := newWriter(l, 1).Session(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	s.slots <- struct{}{}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, _, err := s.Propose(ctx, command{}); !errors.Is(err, cluster.EAGAIN) {
		t.Error(err)
	}
}
