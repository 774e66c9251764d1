package node

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/cluster/member"
	"github.com/hawserfs/hawser/cluster/peer"
	"github.com/hawserfs/hawser/datastore/blob"
	"github.com/hawserfs/hawser/datastore/collect"
	"github.com/hawserfs/hawser/datastore/placement"
	"github.com/hawserfs/hawser/datastore/segment"
)

// A dataPath is how this node reaches the blobs of the cluster: it shows the
// datastore what the state machines say of replica sets and stores.
type dataPath struct {
	member    *member.Node
	client    *blob.Client
	placement *placement.Placement
	log       *slog.Logger

	sets  sync.Map // cluster.GroupID -> *setCache
	addrs addrCache

	spaceMu     sync.Mutex
	spaceAt     time.Time // of the numbers; zero: there are none
	total, free uint64
}

func newDataPath(m *member.Node, d *disks, ep *peer.Endpoint, report func(placement.Problem), log *slog.Logger) *dataPath {
	p := &dataPath{member: m, client: blob.NewClient(blob.OverPeer(ep), d.server), log: log}
	p.addrs.ask = m.Addr
	p.placement = placement.New(placement.Config{
		Map: p, Client: p.client, Logger: log,
		Report: report,
	})
	// For as long as the volumes are open.
	m.OnVolume(func(v *member.Volume) {
		c := &setCache{view: v.View}
		if _, loaded := p.sets.LoadOrStore(v.Info.ID, c); !loaded {
			v.Machine.Subscribe(c.event)
		}
	})
	return p
}

// Sets implements placement.Map.
func (p *dataPath) Sets(g cluster.GroupID, copies uint8) []placement.SetInfo {
	if c, ok := p.sets.Load(g); ok {
		return c.(*setCache).writable(copies)
	}
	return nil // not open here yet
}

// CodedSets implements placement.Map.
func (p *dataPath) CodedSets(g cluster.GroupID, code cluster.Code) []placement.SetInfo {
	if c, ok := p.sets.Load(g); ok {
		return c.(*setCache).coded(code)
	}
	return nil // not open here yet
}

// Addr implements placement.Map.
func (p *dataPath) Addr(id cluster.StoreID) (addr string, up bool) { return p.addrs.get(id) }

// spaceAge is how old the numbers are at most that space returns.
const spaceAge = time.Second

// space returns the bytes on all disks of the cluster, as of a second ago:
// clients ask often, and the answer is a sum over all that the cluster has.
func (p *dataPath) space(cluster.VolumeID) (total, free uint64) {
	p.spaceMu.Lock()
	defer p.spaceMu.Unlock()
	if now := time.Now(); p.spaceAt.IsZero() || now.Sub(p.spaceAt) > spaceAge {
		p.total, p.free = p.sumSpace()
		p.spaceAt = now
	}
	return p.total, p.free
}

func (p *dataPath) sumSpace() (total, free uint64) {
	for _, s := range p.member.Status().Stores {
		total += s.Capacity
		if s.State == "up" && s.Used < s.Capacity {
			free += s.Capacity - s.Used
		}
	}
	return total, free
}

// collect frees what a volume does not refer to any more, while this node
// leads the volume's group.
func (p *dataPath) collect(ctx context.Context, v *member.Volume, delay time.Duration) {
	c := collect.New(collect.Config{
		Group: v.Info.ID, Volume: collected{v}, Stores: p, Delay: max(delay, time.Nanosecond), Logger: p.log,
	})
	c.Run(ctx, v.Group.IsLeader, collect.Pace{})
}

// All implements collect.Stores.
func (p *dataPath) All() []cluster.StoreID {
	r, err := p.member.Registry()
	if err != nil {
		return nil
	}
	var ids []cluster.StoreID
	for _, s := range r.Stores() {
		ids = append(ids, s.ID)
	}
	return ids
}

// Up implements collect.Stores.
func (p *dataPath) Up(id cluster.StoreID) bool {
	_, up := p.member.Addr(id)
	return up
}

// List implements collect.Stores.
func (p *dataPath) List(ctx context.Context, id cluster.StoreID, g cluster.GroupID, after cluster.BlobKey, n int) ([]collect.Copy, error) {
	addr, _ := p.member.Addr(id)
	infos, err := p.client.List(ctx, addr, id, g, after, n)
	copies := make([]collect.Copy, len(infos))
	for i, x := range infos {
		copies[i] = collect.Copy{Key: x.Key, Set: x.Meta.Set, Epoch: x.Meta.Epoch, Len: x.Len, CRC: x.CRC}
	}
	return copies, err
}

// Has implements collect.Stores.
func (p *dataPath) Has(ctx context.Context, id cluster.StoreID, key cluster.BlobKey, length, crc uint32) bool {
	addr, _ := p.member.Addr(id)
	info, err := p.client.Stat(ctx, addr, id, key)
	return err == nil && info.Len == length && info.CRC == crc
}

// DeleteMoved implements collect.Stores.
func (p *dataPath) DeleteMoved(ctx context.Context, id cluster.StoreID, g cluster.GroupID, copies []collect.Copy) error {
	addr, _ := p.member.Addr(id)
	infos := make([]segment.Info, len(copies))
	for i, x := range copies {
		infos[i] = segment.Info{Key: x.Key, Meta: segment.Meta{Set: x.Set, Epoch: x.Epoch}, Len: x.Len, CRC: x.CRC}
	}
	_, err := p.client.DeleteMoved(ctx, addr, id, g, infos)
	return err
}

// Delete implements collect.Stores.
func (p *dataPath) Delete(ctx context.Context, id cluster.StoreID, g cluster.GroupID, keys []cluster.BlobKey) error {
	addr, _ := p.member.Addr(id)
	return p.client.Delete(ctx, addr, id, g, keys)
}

// collected is a volume as the collector sees it.
type collected struct{ *member.Volume }

func (v collected) Applied() uint64 { return v.Group.Applied() }

func (v collected) Sets() (sets []collect.Set) {
	for _, s := range v.View().ReplicaSets() {
		sets = append(sets, collect.Set{ID: s.ID, Members: s.Members, Code: s.Code})
	}
	return sets
}

func (v collected) Garbage(set cluster.ReplicaSetID, from cluster.BlobID, n int) (freed []collect.Freed) {
	v.View().Garbage(set, from, func(g volume.Garbage) bool {
		freed = append(freed, collect.Freed{Blob: g.Blob, Index: g.Index})
		return len(freed) < n
	})
	return freed
}

func (v collected) Deletable(b cluster.BlobID) bool { return v.View().Deletable(b) }

func (v collected) Home(b cluster.BlobID) (h collect.Home, ok bool) {
	view := v.View()
	blob, ok := view.StoredBlob(b)
	if !ok || blob.Kind != volume.Copies {
		return h, false
	}
	set, ok := view.ReplicaSet(blob.Set)
	return collect.Home{Members: set.Members, Len: blob.Len, CRC: blob.CRC, Settled: set.State == volume.Writable}, ok
}
