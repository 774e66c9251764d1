package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/cluster/group"
)

// A Volume is a volume's group as it runs on this node.
type Volume struct {
	Info    registry.Volume
	Group   *group.Group
	Machine *fsm.Machine
}

// View returns the volume's state as this node has it.
func (v *Volume) View() volume.View { return volume.View{Reader: v.Machine.Reader()} }

// Class returns the class of the volume's root: the one that it was made with,
// unless that was changed.
func (v *Volume) Class() cluster.Class {
	if a, ok := v.View().Inode(cluster.RootIno); ok {
		return a.Class
	}
	return v.Info.Class // not formatted yet
}

// Volume returns a volume that is open here: ENOENT if there is none.
func (n *Node) Volume(id cluster.VolumeID) (*Volume, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if v := n.volumes[id]; v != nil {
		return v, nil
	}
	return nil, fmt.Errorf("volume %d: %w", id, cluster.ENOENT)
}

// Volumes returns the volumes that are open here, by id.
func (n *Node) Volumes() []*Volume {
	n.mu.RLock()
	defer n.mu.RUnlock()
	out := make([]*Volume, 0, len(n.volumes))
	for _, v := range n.volumes {
		out = append(out, v)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Info.ID < out[j].Info.ID })
	return out
}

// OnVolume calls fn for each volume that is open here, and for each that opens
// later, until cancel is called. fn must not block; it may be called twice for
// a volume that opens meanwhile.
func (n *Node) OnVolume(fn func(*Volume)) (cancel func()) {
	hook := &volumeHook{fn}
	n.mu.Lock()
	n.onVolume = append(slices.Clone(n.onVolume), hook)
	open := make([]*Volume, 0, len(n.volumes))
	for _, v := range n.volumes {
		open = append(open, v)
	}
	n.mu.Unlock()
	for _, v := range open {
		fn(v)
	}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.onVolume = slices.DeleteFunc(slices.Clone(n.onVolume), func(h *volumeHook) bool { return h == hook })
	}
}

// A volumeHook is what OnVolume was given.
type volumeHook struct{ fn func(*Volume) }

// openVolumes opens the groups of volumes that the registry has and this node
// doesn't run yet.
func (n *Node) openVolumes() {
	r, err := n.Registry()
	if err != nil {
		return
	}
	for _, info := range r.Volumes() {
		n.mu.RLock()
		open := n.volumes[info.ID] != nil
		n.mu.RUnlock()
		if open {
			continue
		}
		// Who was taken an identity from before the volume was made must know
		// before it opens a writer there: Takeover does not look for one.
		n.tellIdentities()
		if err := n.openVolume(info); err != nil {
			n.log.Error("a volume can't be opened here", "volume", info.Name, "err", err)
		}
	}
}

func (n *Node) openVolume(info registry.Volume) error {
	m, err := n.openGroup(info.ID, volume.New())
	if err != nil {
		return err
	}
	// Every first voter bootstraps with the same list, which Raft allows; the
	// others are added by the leader.
	first := false
	voters := make([]group.Member, len(info.Voters))
	for i, id := range info.Voters {
		voters[i] = group.Member{ID: id, Voter: true}
		first = first || id == n.cfg.Self
	}
	if first {
		if err := m.group.Bootstrap(voters); err != nil {
			return errors.Join(err, m.close())
		}
	}
	v := &Volume{Info: info, Group: m.group, Machine: m.machine}
	n.mu.Lock()
	n.volumes[info.ID] = v
	hooks := n.onVolume
	n.announceLocked()
	n.mu.Unlock()
	for _, h := range hooks {
		h.fn(v)
	}
	n.log.Info("volume opened", "volume", info.Name, "id", uint32(info.ID))
	return nil
}

// CreateVolume makes a volume and waits until it can be used here. EEXIST if
// there is one of that name.
func (n *Node) CreateVolume(ctx context.Context, name string, class cluster.Class) (registry.Volume, error) {
	zero, err := n.group0()
	if err != nil {
		return registry.Volume{}, err
	}
	members, err := zero.group.Members()
	if err != nil {
		return registry.Volume{}, err
	}
	var voters []cluster.NodeID
	for _, m := range members {
		if m.Voter {
			voters = append(voters, m.ID)
		}
	}
	now := cluster.Time(time.Now().UnixNano())
	body, err := proposeAt(ctx, now, zero.group, &registry.CreateVolume{Name: name, Class: class, Voters: voters})
	info, malformed := registry.DecodeVolume(body)
	// A command whose answer was lost is repeated, and then finds its own volume.
	if err != nil && !(errors.Is(err, cluster.EEXIST) && malformed == nil && info.Created == now) {
		return registry.Volume{}, fmt.Errorf("volume %q: %w", name, err)
	}
	if malformed != nil {
		return info, malformed
	}
	return info, n.waitVolume(ctx, info.ID)
}

// waitVolume waits until a volume is open here, formatted, and has a leader.
func (n *Node) waitVolume(ctx context.Context, id cluster.VolumeID) error {
	return n.until(ctx, fmt.Sprintf("volume %d to be ready", id), func() bool {
		v, err := n.Volume(id)
		if err != nil {
			return false
		}
		_, led := v.Group.Leader()
		return led && v.View().Formatted()
	})
}

// PutSet makes or changes a replica set, and returns it as it is then, applied
// here: ECONFLICT if it is not at its epoch any more.
func (v *Volume) PutSet(ctx context.Context, s volume.ReplicaSet) (volume.ReplicaSet, error) {
	body, err := propose(ctx, v.Group, &volume.PutReplicaSet{Set: s})
	if err != nil {
		return s, err
	}
	r, err := volume.DecodePutReplicaSetResult(body)
	return r.Set, err
}

// Collected takes blobs off a replica set's delete queue: its members have
// deleted them.
func (v *Volume) Collected(ctx context.Context, set cluster.ReplicaSetID, blobs []cluster.BlobID) error {
	_, err := propose(ctx, v.Group, &volume.Collected{Set: set, Blobs: blobs})
	return err
}

// SetClass changes a directory's class, as the administrator.
func (v *Volume) SetClass(ctx context.Context, ino cluster.Ino, class cluster.Class) error {
	_, err := propose(ctx, v.Group, &volume.SetClass{Ino: ino, Class: class})
	return err
}

// Sync waits until this node has applied all that was committed before the call.
func (v *Volume) Sync(ctx context.Context) error {
	index, err := v.Group.ReadIndex(ctx)
	if err != nil {
		return err
	}
	return v.Group.WaitApplied(ctx, index)
}

// releaseClients drops the locks and opens of clients, in steps.
func (v *Volume) releaseClients(ctx context.Context, ids []uint64) error {
	for _, id := range ids {
		for more := true; more; {
			body, err := propose(ctx, v.Group, &volume.ReleaseClient{Client: id})
			if err != nil {
				return err
			}
			result, err := volume.DecodeReleaseClientResult(body)
			if err != nil {
				return err
			}
			more = result.More
		}
	}
	return nil
}
