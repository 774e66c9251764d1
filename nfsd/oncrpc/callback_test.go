package oncrpc

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hawserfs/hawser/nfsd/xdr"
)

// TestCallback checks calls in both directions of one connection at once.
func TestCallback(t *testing.T) {
	_, addr := serve(t, newService(), Config{})
	c := dial(t, addr, newService())
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				v := uint32(g*1000 + i)
				r, err := c.Call(context.Background(), &Request{
					Program: testProg, Version: 1, Procedure: procBack,
					Encode: func(e *xdr.Encoder) { e.Uint32(v) },
				})
				if err != nil {
					t.Error(err)
					return
				}
				if got := r.Results.Uint32(); got != v+1 {
					t.Errorf("got %d, want %d", got, v+1)
				}
				r.Release()
			}
		})
	}
	wg.Wait()
}

// TestCallbackPassesCalls checks that a reply from the peer is read although
// the connection may have no further call served: the call being served may be
// what waits for it.
func TestCallbackPassesCalls(t *testing.T) {
	_, addr := serve(t, newService(), Config{MaxInFlight: 1})
	c := dial(t, addr, newService())
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for i := range uint32(20) {
		r, err := c.Call(ctx, &Request{
			Program: testProg, Version: 1, Procedure: procBack,
			Encode: func(e *xdr.Encoder) { e.Uint32(i) },
		})
		if err != nil {
			t.Fatal(err)
		}
		r.Release()
	}
}

// TestCallGivenUp checks that a caller that stops waiting leaves nothing
// behind, and that the reply that comes later harms nobody.
func TestCallGivenUp(t *testing.T) {
	s := newService()
	_, addr := serve(t, s, Config{})
	c := dial(t, addr, nil)
	ctx, cancel := context.WithCancel(context.Background())
	p, err := c.Start(&Request{Program: testProg, Version: 1, Procedure: procWait})
	if err != nil {
		t.Fatal(err)
	}
	<-s.started
	cancel()
	if _, err := p.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %v", err)
	}
	if !c.isIdle() {
		t.Error("the call is still awaited")
	}
	close(s.gate)
	for i := range uint32(5) {
		echo(t, c, i)
	}
}

func TestTooManyCalls(t *testing.T) {
	s := newService()
	_, addr := serve(t, s, Config{})
	c := dial(t, addr, nil)
	var err error
	n := 0
	for ; err == nil; n++ {
		_, err = c.Start(&Request{Program: testProg, Version: 1, Procedure: procWait})
	}
	if err != ErrTooManyCalls || n != maxPending+1 {
		t.Errorf("call %d: %v", n, err)
	}
	close(s.gate)
	eventually(t, "calls are still awaited", c.isIdle)
	echo(t, c, 1)
}

// TestGivenXID checks that a call goes out under the number that its caller
// chose, and that no two wait under one.
func TestGivenXID(t *testing.T) {
	svc := newService()
	_, addr := serve(t, svc, Config{})
	c := dial(t, addr, newService())
	req := &Request{Program: testProg, Version: 1, Procedure: procWait, XID: 0xabcd0123}
	p, err := c.Start(req)
	if err != nil {
		t.Fatal(err)
	}
	if got := <-svc.started; got != 0xabcd0123 {
		t.Fatalf("the call has number %#x", got)
	}
	if _, err := c.Start(req); !errors.Is(err, errSameXID) {
		t.Fatalf("a second call under the number: %v", err)
	}
	close(svc.gate)
	r, err := p.Wait(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	r.Release()
}
