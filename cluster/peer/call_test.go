package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
)

// echo answers with the request's head and body.
func echo(_ context.Context, req *Request) (Reply, error) {
	return Reply{Head: req.Head, Body: [][]byte{req.Body}}, nil
}

func TestCallEchoesEverySize(t *testing.T) {
	a, b := listen(t, "a", nil), listen(t, "b", nil)
	for _, s := range []Service{ServicePropose, ServiceBlob} {
		b.Handle(s, func(ctx context.Context, req *Request) (Reply, error) {
			if req.From != "a" || req.Group != 7 {
				return Reply{}, fmt.Errorf("from %q, group %d", req.From, req.Group)
			}
			return echo(ctx, req)
		})
	}
	sizes := []int{0, 1, 31, 1000, copyBelow, copyBelow + 1, windowed, 1<<20 + 17, cluster.MaxBlob, MaxBody}
	for _, s := range []Service{ServicePropose, ServiceBlob} {
		for _, n := range sizes {
			for _, headLen := range []int{0, 5, MaxHead} {
				head, body := make([]byte, headLen), make([]byte, n)
				for i := range body {
					body[i] = byte(i * 7)
				}
				cut := n / 3
				r, err := a.Call(t.Context(), b.Addr().String(), s, 7, head, body[:cut], nil, body[cut:])
				if err != nil {
					t.Fatalf("service %d, %d + %d bytes: %v", s, headLen, n, err)
				}
				if !bytes.Equal(r.Head, head) || !bytes.Equal(r.Body, body) {
					t.Fatalf("service %d, %d + %d bytes: not echoed", s, headLen, n)
				}
				r.Release()
				r.Release()
			}
		}
	}
	if _, err := a.Call(t.Context(), b.Addr().String(), ServiceBlob, 7, nil, make([]byte, MaxBody+1)); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("too large a body: %v", err)
	}
}

func TestErrorsTravel(t *testing.T) {
	a, b := listen(t, "a", nil), listen(t, "b", nil)
	results := []struct {
		send  error
		errno cluster.Errno
		text  string
	}{
		{cluster.ENOSPC, cluster.ENOSPC, "no space left"},
		{fmt.Errorf("disk sda: %w", cluster.EDISK), cluster.EDISK, "disk sda: disk failed or full"},
		{errors.New("odd"), cluster.EINTERNAL, "odd"},
		{context.DeadlineExceeded, cluster.EAGAIN, "context deadline exceeded"},
	}
	for _, c := range results {
		b.Handle(ServiceAdmin, func(context.Context, *Request) (Reply, error) { return Reply{}, c.send })
		_, err := a.Call(t.Context(), b.Addr().String(), ServiceAdmin, 0, nil)
		if !errors.Is(err, c.errno) || err.Error() != c.text {
			t.Errorf("%v arrived as %v", c.send, err)
		}
	}
	b.Handle(ServiceAdmin, nil)
	if _, err := a.Call(t.Context(), b.Addr().String(), ServiceAdmin, 0, nil); err != cluster.EAGAIN {
		t.Errorf("a service without a handler: %v", err)
	}
	b.HandleGroup(ServiceAdmin, 3, echo)
	if _, err := a.Call(t.Context(), b.Addr().String(), ServiceAdmin, 4, nil); err != cluster.EAGAIN {
		t.Errorf("another group: %v", err)
	}
	if _, err := a.Call(t.Context(), b.Addr().String(), ServiceAdmin, 3, nil); err != nil {
		t.Errorf("the handler's group: %v", err)
	}
}

// TestManyCallersBoundedCalls has more callers than a connection carries calls.
func TestManyCallersBoundedCalls(t *testing.T) {
	const limit = 8
	a := listen(t, "a", nil)
	b := listen(t, "b", func(c *Config) { c.MaxCalls = limit })
	var now, most atomic.Int32
	b.Handle(ServicePropose, func(ctx context.Context, req *Request) (Reply, error) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(50 * time.Microsecond)
		now.Add(-1)
		return echo(ctx, req)
	})
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			for range 50 {
				body := make([]byte, rnd.IntN(20<<10))
				for j := range body {
					body[j] = byte(i + j)
				}
				r, err := a.Call(t.Context(), b.Addr().String(), ServicePropose, 0, nil, body)
				if err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(r.Body, body) {
					t.Error("another call's answer")
				}
				r.Release()
			}
		})
	}
	wg.Wait()
	if most.Load() > limit {
		t.Errorf("%d calls at a time, more than %d", most.Load(), limit)
	}
}

func TestDeadlineAndCancelReachTheHandler(t *testing.T) {
	a, b := listen(t, "a", nil), listen(t, "b", nil)
	begun, ended := make(chan struct{}, 1), make(chan error, 1)
	b.Handle(ServiceMember, func(ctx context.Context, _ *Request) (Reply, error) {
		begun <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return Reply{}, ctx.Err()
	})
	addr := b.Addr().String()
	// once calls fn while the handler waits: a call that is given up earlier,
	// as it can be on a busy machine, may never get to the handler.
	once := func(fn func()) { go func() { <-begun; fn() }() }

	// It ends by its deadline; should a call not get there before it, by a later one's.
	for timeout, arrived := 20*time.Millisecond, false; !arrived; timeout *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		if _, err := a.Call(ctx, addr, ServiceMember, 0, nil); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, cluster.EAGAIN) {
			t.Fatal(err)
		}
		cancel()
		select {
		case <-begun:
			<-ended
			arrived = true
		case <-time.After(time.Second):
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	once(cancel)
	if _, err := a.Call(ctx, addr, ServiceMember, 0, nil); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}

	stop := make(chan struct{})
	once(func() { close(stop) })
	if _, err := a.CallUntil(t.Context(), stop, addr, ServiceMember, 0, nil); !errors.Is(err, ErrStopped) {
		t.Fatal(err)
	}
	<-ended
	// The slots of abandoned calls are free again.
	b.Handle(ServiceMember, echo)
	for range 600 {
		r, err := a.Call(t.Context(), addr, ServiceMember, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Release()
	}
}

func TestKeepOutlivesTheHandler(t *testing.T) {
	a, b := listen(t, "a", nil), listen(t, "b", nil)
	type kept struct {
		body []byte
		buf  *Buffer
	}
	keeps := make(chan kept, 1)
	b.Handle(ServiceBlob, func(_ context.Context, req *Request) (Reply, error) {
		keeps <- kept{req.Body, req.Keep()}
		return Reply{}, nil
	})
	body := bytes.Repeat([]byte("kept"), 5000)
	if _, err := a.Call(t.Context(), b.Addr().String(), ServiceBlob, 0, nil, body); err != nil {
		t.Fatal(err)
	}
	k := <-keeps
	b.Handle(ServiceBlob, echo)
	for range 20 {
		r, err := a.Call(t.Context(), b.Addr().String(), ServiceBlob, 0, nil, make([]byte, len(body)))
		if err != nil {
			t.Fatal(err)
		}
		r.Release()
	}
	if !bytes.Equal(k.body, body) {
		t.Fatal("a kept request was overwritten")
	}
	k.buf.Release()
}

func TestReplyDoneIsCalledOnce(t *testing.T) {
	a, b := listen(t, "a", nil), listen(t, "b", nil)
	var done atomic.Int32
	for _, n := range []int{0, 100, 1 << 20} {
		done.Store(0)
		b.Handle(ServiceBlob, func(context.Context, *Request) (Reply, error) {
			return Reply{Body: [][]byte{make([]byte, n)}, Done: func() { done.Add(1) }}, nil
		})
		r, err := a.Call(t.Context(), b.Addr().String(), ServiceBlob, 0, nil)
		if err != nil || len(r.Body) != n {
			t.Fatal(err)
		}
		r.Release()
		for end := time.Now().Add(2 * time.Second); done.Load() == 0 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if done.Load() != 1 {
			t.Fatalf("%d bytes: Done was called %d times", n, done.Load())
		}
	}
}
