package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/cluster/member"
	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
	"github.com/hawserfs/hawser/datastore/pack"
	"github.com/hawserfs/hawser/datastore/placement"
	"github.com/hawserfs/hawser/vfs"
	"github.com/hawserfs/hawser/vfs/packing"
)

// packers are the packers of this node's volumes.
type packers struct {
	n  *Node
	mu sync.Mutex
	of map[cluster.VolumeID]*packer
}

// A packer packs one volume while it is this node's to do.
type packer struct {
	n *Node
	v *member.Volume
	*pack.Packer
}

// run packs a volume until the node stops.
func (ps *packers) run(v *member.Volume) {
	n := ps.n
	p := &packer{n: n, v: v}
	p.Packer = pack.New(pack.Config{
		Volume: packing.View{View: v.View()}, Mover: p, After: n.conf.Pack.After, Lead: p.leads,
		Wait: pack.Pace(int64(n.conf.Pack.Rate)), Logger: n.log.With("volume", v.Info.Name),
	})
	ps.mu.Lock()
	ps.of[v.Info.ID] = p
	ps.mu.Unlock()
	p.Run(n.ctx, n.conf.Pack.Every)
}

// status returns what the packers of this node have done.
func (ps *packers) status() (out []admin.Packing) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.of {
		if c := p.Counters(); p.leads() || c.Blobs > 0 {
			out = append(out, admin.Packing{Volume: p.v.Info.Name, Counters: c})
		}
	}
	slices.SortFunc(out, func(a, b admin.Packing) int { return cmp.Compare(a.Volume, b.Volume) })
	return out
}

// leads reports whether this node packs: the volume's leader does, or, where that
// is no front-end, the first front-end that is up, by name. Two at a time do no
// harm.
func (p *packer) leads() bool {
	if p.n.frontEnd() == nil {
		return false
	}
	leader, ok := p.v.Group.Leader()
	if !ok {
		return false
	}
	self := cluster.NodeID(p.n.conf.Node.Name)
	if leader == self {
		return true
	}
	r, err := p.n.member.Registry()
	if err != nil {
		return false
	}
	first := cluster.NodeID("")
	for _, x := range r.Nodes() {
		nfs := x.Roles.Has(registry.RoleNFS)
		if x.ID == leader && nfs {
			return false
		}
		if nfs && x.State == registry.NodeUp && (first == "" || x.ID < first) {
			first = x.ID
		}
	}
	return first == self
}

// Read implements pack.Mover.
func (p *packer) Read(ctx context.Context, id cluster.BlobID, off uint32, dst []byte) error {
	view := p.v.View()
	b, ok := view.Blob(id)
	if !ok {
		return cluster.ENOBLOB
	}
	set, ok := view.ReplicaSet(b.Set)
	if !ok {
		return cluster.ENOBLOB
	}
	if b.Kind != volume.Copies {
		return fmt.Errorf("blob %v is in shards: %w", id, cluster.EINVAL)
	}
	return placement.Fill(ctx, p.n.data.placement, p.v.Info.ID, placement.Coded{Blob: b.Stored, Len: b.Len, Members: set.Members}, off, dst)
}

// Put implements pack.Mover.
func (p *packer) Put(ctx context.Context, class pack.Class, data []byte) (pack.Placed, error) {
	job, err := p.job(ctx)
	if err != nil {
		return pack.Placed{}, err
	}
	b, err := job.Put(ctx, cluster.Class{Copies: class.Copies, Code: class.Code}, [][]byte{data})
	return packing.Placed(b), err
}

// Relocate implements pack.Mover. A blob of a front-end before this one is
// refused, as its writer is fenced.
func (p *packer) Relocate(ctx context.Context, blobs []pack.Placed, moves []pack.Move, done []pack.Mark) (int, error) {
	job, err := p.job(ctx)
	if err != nil {
		return 0, err
	}
	c := packing.Command(blobs, moves, done)
	body, err := job.Propose(ctx, c, c.Blobs)
	if err != nil {
		return 0, err
	}
	return packing.Did(body, len(moves))
}

// job returns a writer of the present front-end.
func (p *packer) job(ctx context.Context) (*vfs.Job, error) {
	front := p.n.frontEnd()
	if front == nil {
		return nil, fmt.Errorf("this node does not serve now: %w", cluster.EAGAIN)
	}
	return front.fs.Job(ctx, p.v.Info.ID)
}
