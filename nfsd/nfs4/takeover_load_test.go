package nfs4

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// Many requests are under way on many slots, again and again, when the front-end is
// taken over: each name is used once, so that what is executed twice, or not at all,
// shows.
func TestTakeoverUnderLoad(t *testing.T) {
	const workers, rounds, takeovers = 16, 25, 6
	w := newWorld(t)
	s := w.r.newSession("a")
	root := s.root()
	var conn atomic.Pointer[wire]
	conn.Store(s.wire)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	// send sends a request until it is answered, on whatever connection there is.
	send := func(slot, seq uint32, ops []op) (proto.Status, error) {
		ops = append([]op{s.sequence(slot, seq)}, ops...)
		for {
			rep, err := conn.Load().c.Call(ctx, &oncrpc.Request{
				Program: proto.Program, Version: 4, Procedure: proto.ProcCompound, Cred: s.cred,
				Encode: func(e *xdr.Encoder) {
					e.String("tag")
					e.Uint32(2)
					e.Uint32(uint32(len(ops)))
					for _, o := range ops {
						o(e)
					}
				},
			})
			if err == nil {
				st := proto.Status(rep.Results.Uint32())
				rep.Release()
				return st, nil
			}
			if ctx.Err() != nil {
				return 0, err
			}
			time.Sleep(time.Millisecond)
		}
	}
	var wg sync.WaitGroup
	var done atomic.Int32
	for i := range uint32(workers) {
		wg.Go(func() {
			slot, seq := i+1, uint32(0)
			step := func(ops ...op) bool {
				seq++
				st, err := send(slot, seq, ops)
				if st == proto.ErrDelay { // it had no effect
					seq++
					st, err = send(slot, seq, ops)
				}
				if err != nil || st != proto.OK {
					t.Errorf("worker %d, request %d: %v, %v", i, seq, st, err)
				}
				done.Add(1)
				return err == nil && st == proto.OK
			}
			for j := range rounds {
				a, b := fmt.Sprintf("a%d-%d", i, j), fmt.Sprintf("b%d-%d", i, j)
				if !step(putfh(root), mkdir(a)) ||
					!step(putfh(root), getattr(proto.AttrChange)) ||
					!step(putfh(root), simple(proto.OpSavefh), named(proto.OpRename, a, b)) ||
					!step(putfh(root), named(proto.OpRemove, b)) {
					return
				}
			}
		})
	}
	for i := range int32(takeovers) {
		for done.Load() < (i+1)*workers*rounds*4/(takeovers+1) && ctx.Err() == nil && !t.Failed() {
			time.Sleep(time.Millisecond)
		}
		old := conn.Load()
		w.takeover()
		conn.Store(w.r.dial())
		old.c.Close()
	}
	wg.Wait()
	if n := done.Load(); n != workers*rounds*4 {
		t.Fatalf("%d requests of %d", n, workers*rounds*4)
	}
}
