package node

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/cluster/member"
	"github.com/hawserfs/hawser/cluster/peer"
	"github.com/hawserfs/hawser/datastore/blob"
	"github.com/hawserfs/hawser/datastore/repair"
	"github.com/hawserfs/hawser/datastore/segment"
)

// repairs keep the replica sets of the volumes that this node leads, and tell of
// those that others lead.
type repairs struct {
	n       *Node
	mu      sync.Mutex
	runners map[cluster.VolumeID]*repair.Runner
}

// repairEvery is how often a leader looks what is to be done.
const repairEvery = 250 * time.Millisecond

func newRepairs(n *Node) *repairs {
	return &repairs{n: n, runners: map[cluster.VolumeID]*repair.Runner{}}
}

// start keeps a volume's sets while this node leads it. n.mu is held.
func (r *repairs) start(v *member.Volume) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runners[v.Info.ID] != nil {
		return
	}
	n := r.n
	x := repair.New(repair.Config{
		Volume: repaired{v}, Stores: pulled{n.data, v.Info.ID}, Look: r.look, Balance: r.balance,
		Parallel: n.conf.Repair.Parallel, Logger: n.log.With("volume", v.Info.Name),
	})
	r.runners[v.Info.ID] = x
	lead := func() bool { return v.Group.IsLeader() && v.View().Formatted() }
	n.wg.Go(func() { x.Run(n.ctx, lead, repairEvery) })
}

// look returns the stores as planning wants them.
func (r *repairs) look() (stores []repair.Store, ok bool) {
	views, ok := r.n.member.StoreViews(r.n.conf.Repair.After)
	for _, v := range views {
		stores = append(stores, repair.Store{
			ID: v.ID, Node: v.Node, Rack: v.Rack, Up: v.Up, Lost: v.Lost, Draining: v.Draining,
			// A store that is nearly full is for what its sets get anyway.
			Full: v.Full || v.Capacity > 0 && v.Used > v.Capacity/100*highWater, Capacity: v.Capacity,
		})
	}
	return stores, ok
}

// highWater is how full a store may be, in percent, to be given more sets.
const highWater = 92

// balance reports whether the stores are to be evened out now.
func (r *repairs) balance() bool {
	reg, err := r.n.member.Registry()
	return err == nil && now() < reg.RebalanceUntil()
}

// placeable waits until every volume has replica sets to write to.
func (n *Node) placeable(ctx context.Context) error {
	for {
		ready := true
		for _, v := range n.member.Volumes() {
			has := false
			for _, s := range v.View().ReplicaSets() {
				has = has || s.State == volume.Writable
			}
			ready = ready && has
		}
		if ready {
			return nil
		}
		if !pause(ctx, 10*time.Millisecond) {
			return fmt.Errorf("waiting for replica sets: a node with the role data must be up: %w", ctx.Err())
		}
	}
}

// repaired is a volume as repair sees it.
type repaired struct{ *member.Volume }

// Sets implements repair.Volume.
func (v repaired) Sets() (sets []repair.Set) {
	view := v.View()
	for _, s := range view.ReplicaSets() {
		sets = append(sets, repairSet(s, view.HasBlobs(s.ID)))
	}
	return sets
}

func repairSet(s volume.ReplicaSet, used bool) repair.Set {
	return repair.Set{
		ID: s.ID, Members: s.Members, Copies: s.Copies, Epoch: s.Epoch, State: repair.SetState(s.State), Used: used,
		Foreign: !s.Code.IsZero(),
	}
}

// Blobs implements repair.Volume.
func (v repaired) Blobs(set cluster.ReplicaSetID, after cluster.BlobID, n int) (blobs []repair.Blob) {
	view := v.View()
	view.SetBlobs(set, after, func(id cluster.BlobID) bool {
		if b, ok := view.StoredBlob(id); ok {
			blobs = append(blobs, repair.Blob{ID: id, Len: b.Len, CRC: b.CRC})
		}
		return len(blobs) < n
	})
	return blobs
}

// PutSet implements repair.Volume.
func (v repaired) PutSet(ctx context.Context, s repair.Set) (repair.Set, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	put, err := v.Volume.PutSet(ctx, volume.ReplicaSet{
		ID: s.ID, Members: s.Members, Copies: s.Copies, Epoch: s.Epoch, State: volume.SetState(s.State),
	})
	if err != nil {
		return s, err
	}
	return repairSet(put, s.Used), nil
}

// pulled is the stores as repair reaches them, for one volume.
type pulled struct {
	data  *dataPath
	group cluster.GroupID
}

// List implements repair.Stores.
func (p pulled) List(ctx context.Context, id cluster.StoreID, after cluster.BlobID, n int) ([]repair.Copy, error) {
	addr, _ := p.data.member.Addr(id)
	infos, err := p.data.client.List(ctx, addr, id, p.group, cluster.BlobKey{Group: p.group, Blob: after, Shard: ^uint8(0)}, n)
	copies := make([]repair.Copy, 0, len(infos))
	for _, x := range infos {
		if x.Key.Shard == 0 {
			copies = append(copies, repair.Copy{
				Blob: repair.Blob{ID: x.Key.Blob, Len: x.Len, CRC: x.CRC}, Set: x.Meta.Set, Epoch: x.Meta.Epoch,
			})
		}
	}
	return copies, err
}

// Pull implements repair.Stores. Stores that are down are not asked.
func (p pulled) Pull(ctx context.Context, to cluster.StoreID, b repair.Blob, set cluster.ReplicaSetID, epoch uint32, from []cluster.StoreID) (bool, error) {
	q := &blob.PullRequest{
		Key: cluster.BlobKey{Group: p.group, Blob: b.ID}, Meta: segment.Meta{Set: set, Epoch: epoch}, Len: b.Len, CRC: b.CRC, Renew: true,
	}
	for _, id := range from {
		if addr, up := p.data.member.Addr(id); up && len(q.Sources) < blob.MaxSources {
			q.Sources = append(q.Sources, blob.Source{Store: id, Addr: addr})
		}
	}
	if len(q.Sources) == 0 {
		return false, fmt.Errorf("no store that has blob %v can be reached: %w", b.ID, cluster.EAGAIN)
	}
	addr, _ := p.data.member.Addr(to)
	r, err := p.data.client.Pull(ctx, addr, to, q)
	return r.Copied, err
}

// What another node is asked about the volume whose group it leads.
const (
	askStatus  = 1
	askPreview = 2
)

// handle answers another node's question about a volume: the group's.
func (r *repairs) handle(ctx context.Context, req *peer.Request) (peer.Reply, error) {
	if len(req.Head) != 1 {
		return peer.Reply{}, cluster.EINVAL
	}
	a, err := r.answer(ctx, req.Group, req.Head[0])
	if err != nil {
		return peer.Reply{}, err
	}
	body, err := json.Marshal(a)
	return peer.Reply{Body: [][]byte{body}}, err
}

// A repairAnswer is what the leader says.
type repairAnswer struct {
	Status  repair.Status `json:"status"`
	Preview []repair.Move `json:"preview,omitempty"`
}

func (r *repairs) answer(ctx context.Context, id cluster.VolumeID, what byte) (a repairAnswer, err error) {
	r.mu.Lock()
	x := r.runners[id]
	r.mu.Unlock()
	if x == nil {
		return a, fmt.Errorf("volume %d is not open here: %w", id, cluster.EAGAIN)
	}
	if a.Status = x.Status(); what == askPreview {
		a.Preview = x.Preview(ctx)
	}
	return a, nil
}

// ask asks the leader of a volume's group.
func (r *repairs) ask(ctx context.Context, v *member.Volume, what byte) (a repairAnswer, err error) {
	if v.Group.IsLeader() {
		return r.answer(ctx, v.Info.ID, what)
	}
	id, ok := v.Group.Leader()
	reg, err := r.n.member.Registry()
	if err != nil || !ok {
		return a, fmt.Errorf("volume %s has no leader: a majority of its voters must be up: %w", v.Info.Name, cluster.EAGAIN)
	}
	node, _ := reg.Node(id)
	resp, err := r.n.peer.Call(ctx, node.PeerAddr, peer.ServiceRepair, v.Info.ID, []byte{what})
	if err != nil {
		return a, fmt.Errorf("asking node %s, which leads volume %s: %w", id, v.Info.Name, err)
	}
	defer resp.Release()
	return a, json.Unmarshal(resp.Body, &a)
}
