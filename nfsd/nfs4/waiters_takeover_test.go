package nfs4

import (
	"context"
	"testing"
	"time"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
)

// Who asks for a lock just after a take-over is listed, although the client's back
// channel is not there yet: the request is the first that it sends.
func TestWaiterJustAfterTakeover(t *testing.T) {
	w := newWorld(t)
	holder, waiter := w.r.newSession("holder"), w.r.newSession("waiter")
	root := holder.root()
	held := holder.mustOpen(root, openHow{create: true, name: "f"})
	if _, st := holder.lock(held.fh, lockArgs{kind: proto.WriteLt, len: 10, owner: "h", sid: held.sid}); st != proto.OK {
		t.Fatal(st)
	}
	wanted := waiter.mustOpen(root, openHow{name: "f"})
	w.takeover(holder, waiter)
	if _, st := waiter.lock(wanted.fh, lockArgs{kind: proto.WritewLt, len: 10, owner: "w", sid: wanted.sid}); st != proto.ErrDenied {
		t.Fatal(st)
	}
	if n := w.r.p.waiters.n.Load(); n != 1 {
		t.Fatalf("%d are listed", n)
	}
}

// Who waits for a lock asks again when the identity is handed over: nobody is listed
// at the next front-end but who has asked there.
func TestHandOverTellsWaiters(t *testing.T) {
	r := newRig(t, nil)
	r.run()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	holder, waiter := r.mounted(client.Options{}), r.mounted(client.Options{Callbacks: true})
	held, wanted := file(t, holder, "main", "f"), file(t, waiter, "main", "f")
	if err := held.Lock(ctx, "h", whole); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() { got <- wanted.LockWait(ctx, "w", whole) }()
	until(t, "the waiter is listed", func() bool { return r.p.waiters.n.Load() == 1 })
	if err := r.p.Quiesce(ctx); err != nil {
		t.Fatal(err)
	}
	until(t, "the waiter is told", func() bool { return waiter.Executed(proto.CBNotifyLock) == 1 })
	r.p.Resume()
	if err := held.Unlock(ctx, "h", whole); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}
