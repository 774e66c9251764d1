package member

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
)

// TestClaim: a front-end that starts anew has its identities in new epochs, and
// its last one's writers are fenced before it opens one.
func TestClaim(t *testing.T) {
	n := startNode(t, "n1", t.TempDir(), "127.0.0.1:0")
	ctx := within(t, 60*time.Second)
	if err := n.Init(ctx, "c", cluster.Class{Copies: 1}); err != nil {
		t.Fatal(err)
	}
	f := attach(t, n)
	i, err := n.AddAddress(ctx, "10.0.0.50/24", "", "")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is served", func() bool { return n.identity(t, i.ID).Serving })
	i = n.identity(t, i.ID)
	v, err := n.Volume(1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := propose(ctx, v.Group, &fsm.OpenWriter{Node: "n1", Nonce: 7}); err != nil {
		t.Fatal(err)
	}
	f.detach()
	own, err := n.ClaimOwnIdentity(ctx)
	if err != nil || own.Epoch != 2 {
		t.Fatalf("got %+v, %v", own, err)
	}
	if w := v.Machine.Writers(); len(w) != 1 || !w[0].Fenced {
		t.Errorf("got %+v", w)
	}
	if now := n.identity(t, i.ID); now.Epoch != i.Epoch+1 || now.Serving || !slices.Equal(now.Fence, []cluster.NodeID{"n1"}) {
		t.Errorf("after %+v it is %+v", i, now)
	}
	// A writer of the new front-end is not what Takeover fences.
	if _, err := propose(ctx, v.Group, &fsm.OpenWriter{Node: "n1", Nonce: 8}); err != nil {
		t.Fatal(err)
	}
	if err := n.Takeover(ctx, n.identity(t, i.ID)); err != nil {
		t.Fatal(err)
	}
	if w, _ := v.Machine.Writer(2); w.Fenced {
		t.Error("a node's Takeover has fenced its own writer")
	}
	if now := n.identity(t, i.ID); !now.Serving || len(now.Fence) > 0 {
		t.Errorf("after Takeover it is %+v", now)
	}
	if err := n.Takeover(ctx, i); !errors.Is(err, cluster.EFENCED) {
		t.Errorf("taking over an old epoch: %v", err)
	}
}

// TestTakeoverFencesFirst: an identity is not served while a volume has a writer
// of the node that had it; a volume whose group can't say is waited for.
func TestTakeoverFencesFirst(t *testing.T) {
	n := startNode(t, "n1", t.TempDir(), "127.0.0.1:0")
	ctx := within(t, 60*time.Second)
	if err := n.Init(ctx, "c", cluster.Class{Copies: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.CreateVolume(ctx, "more", cluster.Class{Copies: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.propose0(ctx, &registry.PutNode{ID: "n9", Incarnation: registry.UUID{1}, PeerAddr: "127.0.0.1:1", Roles: registry.RoleNFS}); err != nil {
		t.Fatal(err)
	}
	attach(t, n)
	i, err := n.AddAddress(ctx, "10.0.0.50/24", "", "")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is served", func() bool { return n.identity(t, i.ID).Serving })
	for _, v := range n.Volumes() {
		if _, err := propose(ctx, v.Group, &fsm.OpenWriter{Node: "n9", Nonce: 7}); err != nil {
			t.Fatal(err)
		}
	}
	// The last volume is not open here: as if its group was not to be had.
	n.mu.Lock()
	hidden := n.volumes[2]
	delete(n.volumes, 2)
	n.mu.Unlock()
	if err := n.serveRelease(ctx, releaseRequest{ID: i.ID, To: "n9"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lost node's address is assigned", func() bool { return n.identity(t, i.ID).Node == "n1" })
	v, err := n.Volume(1)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "its writer is fenced in the first volume", func() bool { w, _ := v.Machine.Writer(1); return w.Fenced })
	sleep(ctx, 300*time.Millisecond)
	if now := n.identity(t, i.ID); now.Serving || !slices.Contains(now.Fence, "n9") {
		t.Errorf("it is served before all writers are fenced: %+v", now)
	}
	n.mu.Lock()
	n.volumes[2] = hidden
	n.mu.Unlock()
	eventually(t, "it is served", func() bool { return n.identity(t, i.ID).Serving })
	if w, _ := hidden.Machine.Writer(1); !w.Fenced {
		t.Error("and in the other volume the writer is not fenced")
	}
}

// held is a lock of a client, taken through a writer.
func lockFor(t *testing.T, ctx context.Context, v *Volume, node cluster.NodeID, name string, client uint64) cluster.Ino {
	t.Helper()
	body, err := propose(ctx, v.Group, &fsm.OpenWriter{Node: node, Nonce: client})
	if err != nil {
		t.Fatal(err)
	}
	w, err := fsm.DecodeOpenWriter(body)
	if err != nil {
		t.Fatal(err)
	}
	body, err = propose(ctx, v.Group, &volume.Create{Dir: cluster.RootIno, Name: name, Type: cluster.TypeRegular, Gen: 1})
	if err != nil {
		t.Fatal(err)
	}
	made, err := volume.DecodeCreateResult(body)
	if err != nil {
		t.Fatal(err)
	}
	env := fsm.Envelope{Kind: volume.KindLock, Writer: w, Lane: 1, Seq: 1, Time: cluster.Time(time.Now().UnixNano())}
	lock := &volume.Lock{Ino: made.Attr.Ino, Owner: volume.LockOwner{1}, End: 9, Exclusive: true, Client: client}
	_, result, err := v.Group.Propose(ctx, fsm.AppendCommand(nil, env, lock))
	if err == nil {
		_, err = fsm.SplitResult(result)
	}
	if err != nil {
		t.Fatal(err)
	}
	return made.Attr.Ino
}

func locked(v *Volume, ino cluster.Ino) (locked bool) {
	v.View().Locks(ino, func(*volume.LockInfo) bool { locked = true; return false })
	return locked
}

// TestLostNodesClients: when a node is lost for good, the clients of its own
// addresses lose what they have, and those of floating addresses keep it.
func TestLostNodesClients(t *testing.T) {
	n := startNode(t, "n1", t.TempDir(), "127.0.0.1:0")
	ctx := within(t, 60*time.Second)
	if err := n.Init(ctx, "c", cluster.Class{Copies: 1}); err != nil {
		t.Fatal(err)
	}
	v, err := n.Volume(1)
	if err != nil {
		t.Fatal(err)
	}
	// n9 says nothing, ever.
	if _, err := n.propose0(ctx, &registry.PutNode{ID: "n9", Incarnation: registry.UUID{1}, PeerAddr: "127.0.0.1:1", Roles: registry.RoleNFS}); err != nil {
		t.Fatal(err)
	}
	body, err := n.propose0(ctx, &registry.AssignIdentity{Node: "n9"})
	if err != nil {
		t.Fatal(err)
	}
	own, err := registry.DecodeIdentity(body)
	if err != nil {
		t.Fatal(err)
	}
	floating, err := n.AddAddress(ctx, "10.0.0.50/24", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.give(ctx, floating, "n9"); err != nil {
		t.Fatal(err)
	}
	ownClient, floatingClient := cluster.MakeClientID(own.ID, 1, 1), cluster.MakeClientID(floating.ID, 1, 1)
	for id, client := range map[cluster.IdentityID]uint64{own.ID: ownClient, floating.ID: floatingClient} {
		if err := n.ClientStore(id, 1).Put(ctx, client, []byte("r"), 0); err != nil {
			t.Fatal(err)
		}
	}
	first, second := lockFor(t, ctx, v, "n9", "a", ownClient), lockFor(t, ctx, v, "n9", "b", floatingClient)
	if !locked(v, first) || !locked(v, second) {
		t.Fatal("the locks are not there")
	}
	eventually(t, "the clients of the lost node's own addresses are released", func() bool {
		r, err := n.Registry()
		return err == nil && !locked(v, first) && !r.HasClients(own.ID)
	})
	if now := n.identity(t, own.ID); now.Node != "" || now.Epoch != 2 {
		t.Errorf("its own identity is %+v", now)
	}
	for _, w := range v.Machine.Writers() {
		if !w.Fenced {
			t.Errorf("writer %+v is not fenced", w)
		}
	}
	r, err := n.Registry()
	if err != nil || !locked(v, second) || r.ClientCount(floating.ID) != 1 {
		t.Errorf("the lock of the floating address's client is gone, or the client: %v", err)
	}
	if gone, err := n.ExpireClient(ctx, ownClient); gone || !errors.Is(err, cluster.EAGAIN) {
		t.Errorf("expiring a client of nobody's: %v, %v", gone, err)
	}
	// The address is removed: then it is released, too.
	attach(t, n)
	eventually(t, "the floating address is served", func() bool { return n.identity(t, floating.ID).Serving })
	expired := false
	defer n.OnExpire(func(_ context.Context, client uint64) bool { expired = client == floatingClient; return true })()
	eventually(t, "a client of a served identity can be asked for", func() bool {
		gone, err := n.ExpireClient(ctx, floatingClient)
		return err == nil && gone && expired
	})
	if err := n.RemoveAddress(ctx, "10.0.0.50"); err != nil {
		t.Fatal(err)
	}
	if locked(v, second) {
		t.Error("the address is gone, and the lock of its client is not")
	}
	if gone, err := n.ExpireClient(ctx, floatingClient); !gone || err != nil {
		t.Errorf("a client of an identity that is gone: %v, %v", gone, err)
	}
}

// TestVolumeKnowsIdentities: a node that opens a volume knows first of what was
// taken from it before the volume was made.
func TestVolumeKnowsIdentities(t *testing.T) {
	n := startNode(t, "n1", t.TempDir(), "127.0.0.1:0")
	ctx := within(t, 60*time.Second)
	if err := n.Init(ctx, "c", cluster.Class{Copies: 1}); err != nil {
		t.Fatal(err)
	}
	defer n.OnIdentity(func(registry.Identity) {})()
	n.hooks.tell.Lock() // telling takes long
	zero, err := n.group0()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []fsm.Body{
		&registry.AssignIdentity{Node: "n1"},
		&registry.CreateVolume{Name: "new", Class: cluster.Class{Copies: 1}, Voters: []cluster.NodeID{"n1"}},
	} {
		if _, err := propose(ctx, zero.group, b); err != nil {
			t.Fatal(err)
		}
	}
	sleep(ctx, 500*time.Millisecond)
	_, early := n.Volume(2)
	n.hooks.tell.Unlock()
	if early == nil {
		t.Error("the volume was opened before the node knew")
	}
	eventually(t, "it is opened", func() bool { _, err := n.Volume(2); return err == nil })
}
