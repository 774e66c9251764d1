package oncrpc

import (
	"context"
	"testing"
)

// waiting begins n calls that wait for the gate, over one connection, and
// returns what waits for their ends.
func waiting(t *testing.T, addr string, n int) (wait func()) {
	t.Helper()
	c := dial(t, addr, nil)
	done := make(chan error, n)
	for range n {
		go func() {
			r, err := c.Call(context.Background(), &Request{Program: testProg, Version: 1, Procedure: procWait})
			if err == nil {
				r.Release()
			}
			done <- err
		}()
	}
	return func() {
		t.Helper()
		for range n {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
}

// TestWorkersAreKept checks that calls are served by those who served the calls before.
func TestWorkersAreKept(t *testing.T) {
	srv, addr := serve(t, newService(), Config{})
	c := dial(t, addr, nil)
	for i := range uint32(500) {
		echo(t, c, i)
	}
	// A reply may be here before its worker is idle: one or two more than one.
	eventually(t, "no worker is idle", func() bool { return srv.Stats().IdleWorkers > 0 })
	if n := srv.Stats().IdleWorkers; n > 20 {
		t.Errorf("%d workers for 500 calls one after the other", n)
	}
}

// TestWorkersAreBounded checks that calls beyond the idle workers don't wait
// for them, and that no more are kept than may be, and none that has nothing to do.
func TestWorkersAreBounded(t *testing.T) {
	const calls = maxIdleWorkers + 30
	s := newService()
	srv, addr := serve(t, s, Config{})
	echo(t, dial(t, addr, nil), 1) // leaves an idle one
	wait := waiting(t, addr, calls)
	eventually(t, "not all calls run at once", func() bool { return len(s.started) == calls })
	close(s.gate)
	wait()
	eventually(t, "workers were not kept", func() bool { return srv.Stats().IdleWorkers >= maxIdleWorkers })
	if n := srv.Stats().IdleWorkers; n > maxIdleWorkers+1 {
		t.Errorf("%d workers are kept", n)
	}
	// The first trim finds that they were needed until now; some may become idle
	// only after it.
	eventually(t, "workers are kept with nothing to do", func() bool {
		srv.workers.trim()
		return srv.Stats().IdleWorkers == 0
	})
	echo(t, dial(t, addr, nil), 2)
}

// TestTrimSparesTheBusy checks that only those end that were not needed.
func TestTrimSparesTheBusy(t *testing.T) {
	var s workerShard
	all := make([]*worker, 5)
	for i := range all {
		all[i] = &worker{next: make(chan *exchange, 1)}
		s.keep(all[i])
	}
	s.end(false) // least was 0: all were busy at some time
	if len(s.idle) != 5 {
		t.Fatalf("%d of 5 are left", len(s.idle))
	}
	a, b := s.take(), s.take()
	if a != all[4] || b != all[3] {
		t.Error("not the last to become idle is the next")
	}
	s.keep(a)
	s.keep(b)
	s.end(false)
	if len(s.idle) != 2 {
		t.Errorf("%d are left, want the 2 that worked", len(s.idle))
	}
	for i, w := range all {
		if ended := len(w.next) == 1; ended != (i < 3) {
			t.Errorf("worker %d ended: %t", i, ended)
		}
	}
}
