package member

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
)

// hooks are what the front-end is called for.
type hooks struct {
	mu      sync.Mutex
	release []*func(context.Context, registry.Identity) (func(), error)
	expire  []*func(context.Context, uint64) bool
	handing map[cluster.IdentityID]bool // being released

	tell       sync.Mutex // of onIdentity and told: calls come one at a time
	onIdentity []*func(registry.Identity)
	told       map[cluster.IdentityID]registry.Identity
}

// frontEnd reports whether there is a front-end that serves identities.
func (h *hooks) frontEnd() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.release) > 0
}

// beginRelease reports whether an identity may be released: once at a time.
func (h *hooks) beginRelease(id cluster.IdentityID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.handing[id] {
		return false
	}
	if h.handing == nil {
		h.handing = map[cluster.IdentityID]bool{}
	}
	h.handing[id] = true
	return true
}

func (h *hooks) endRelease(id cluster.IdentityID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.handing, id)
}

// add appends a hook to a list, and returns what takes it out again.
func add[F any](mu *sync.Mutex, list *[]*F, fn F) (cancel func()) {
	hook := &fn
	mu.Lock()
	defer mu.Unlock()
	*list = append(slices.Clone(*list), hook)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		*list = slices.DeleteFunc(slices.Clone(*list), func(h *F) bool { return h == hook })
	}
}

// latest returns the hook that was added last, nil if there is none.
func latest[F any](mu *sync.Mutex, list *[]*F) *F {
	mu.Lock()
	defer mu.Unlock()
	if len(*list) == 0 {
		return nil
	}
	return (*list)[len(*list)-1]
}

// OnIdentity calls fn for each identity that there is, and for each that
// changes later, in order, until cancel is called. An identity that was removed
// is told once more, Retired and without a node. fn must not block, nor call
// OnIdentity or cancel. When it returns, the node must not begin anything more
// in the name of an epoch that has passed.
func (n *Node) OnIdentity(fn func(registry.Identity)) (cancel func()) {
	n.tellIdentities()
	h := &n.hooks
	h.tell.Lock()
	defer h.tell.Unlock()
	for _, id := range slices.Sorted(maps.Keys(h.told)) {
		fn(h.told[id])
	}
	hook := &fn
	h.onIdentity = append(slices.Clone(h.onIdentity), hook)
	return func() {
		h.tell.Lock()
		defer h.tell.Unlock()
		h.onIdentity = slices.DeleteFunc(slices.Clone(h.onIdentity), func(o *func(registry.Identity)) bool { return o == hook })
	}
}

// tellIdentities calls the hooks for what has changed since they were called
// last. When it returns they know all that this node's registry had when it
// was called.
func (n *Node) tellIdentities() {
	h := &n.hooks
	h.tell.Lock()
	defer h.tell.Unlock()
	r, err := n.Registry()
	if err != nil {
		return
	}
	now := map[cluster.IdentityID]registry.Identity{}
	changed := []registry.Identity{}
	for _, i := range r.Identities() {
		now[i.ID] = i
		if old, ok := h.told[i.ID]; !ok || !old.Equal(&i) {
			changed = append(changed, i)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(h.told)) {
		if _, ok := now[id]; !ok {
			gone := h.told[id]
			gone.Node, gone.Retired, gone.Serving = "", true, false
			changed = append(changed, gone)
		}
	}
	h.told = now
	for _, i := range changed {
		for _, fn := range h.onIdentity {
			(*fn)(i)
		}
	}
}

// identities tells the front-end of changes.
func (n *Node) identities() {
	changed := make(chan struct{}, 1)
	subscribed := false
	for {
		n.mu.RLock()
		zero, opened := n.zero, n.opened
		n.mu.RUnlock()
		if zero != nil && !subscribed {
			subscribed = true
			defer zero.machine.Subscribe(func(uint64, []any) {
				select {
				case changed <- struct{}{}:
				default:
				}
			})()
		}
		n.tellIdentities()
		select {
		case <-changed:
		case <-opened:
		case <-n.ctx.Done():
			return
		}
	}
}

// ClaimOwnIdentity makes this node, with a front-end that is about to start,
// the server of the identity of its own addresses, and again of the floating
// addresses that it has, all in new epochs: an earlier incarnation of it can do
// nothing in their names any more. It fences that one's writers in every
// volume, so the new incarnation must not have opened one before it returns.
// It goes on trying until ctx ends. What it returns, and what OnIdentity tells
// of the others, is then to be taken over.
func (n *Node) ClaimOwnIdentity(ctx context.Context) (registry.Identity, error) {
	own, err := n.claim(ctx)
	if err != nil {
		return own, fmt.Errorf("claiming the identity of node %s: %w", n.cfg.Self, err)
	}
	if err := n.again(ctx, "fencing the writers of this node's last front-end", func() error { return n.fenceNodes(ctx, n.cfg.Self) }); err != nil {
		return own, fmt.Errorf("fencing the writers of the last front-end of node %s: %w", n.cfg.Self, err)
	}
	return own, nil
}

// claim assigns to this node what is its own.
func (n *Node) claim(ctx context.Context) (own registry.Identity, err error) {
	// The first one is 0: made if it is missing.
	mine := []registry.Identity{{}}
	r, err := n.RegistryAt(ctx)
	if err != nil {
		return own, err
	}
	if i, ok := r.OwnIdentity(n.cfg.Self); ok {
		mine[0] = i
	}
	for _, i := range r.Identities() {
		if i.Floating() && i.Node == n.cfg.Self && !i.Retired {
			mine = append(mine, i)
		}
	}
	for k, i := range mine {
		for {
			body, err := n.propose0(ctx, &registry.AssignIdentity{ID: i.ID, Node: n.cfg.Self, Epoch: i.Epoch})
			now, malformed := registry.DecodeIdentity(body)
			if errors.Is(err, cluster.EFENCED) && malformed == nil && (k == 0 || now.Node == n.cfg.Self) {
				i = now // a repetition of ours, or a change just now: once more
				continue
			}
			switch {
			case k > 0 && errors.Is(err, cluster.EFENCED), k > 0 && errors.Is(err, cluster.ENOENT), k > 0 && errors.Is(err, cluster.ECONFLICT):
			case err != nil:
				return own, err
			case malformed != nil:
				return own, malformed
			case k == 0:
				own = now
			}
			break
		}
	}
	return own, nil
}

// Takeover makes this node, to which id was assigned, its server: it fences the
// writers that the nodes of id.Fence may still have in every volume, so that
// nothing that they have begun happens any more, and says so. It goes on trying
// until that is done or ctx ends; EFENCED when the identity was assigned anew
// meanwhile. If Fence has this node itself, for programs of earlier epochs,
// the caller has seen to it that those have ended.
func (n *Node) Takeover(ctx context.Context, id registry.Identity) error {
	if id.Node != n.cfg.Self {
		return fmt.Errorf("identity %d is assigned to %q and not to node %s: %w", id.ID, id.Node, n.cfg.Self, cluster.EFENCED)
	}
	fence := slices.DeleteFunc(slices.Clone(id.Fence), func(node cluster.NodeID) bool { return node == n.cfg.Self })
	return n.again(ctx, "taking over an identity", func() error {
		r, err := n.RegistryAt(ctx)
		if err != nil {
			return err
		}
		if now, ok := r.Identity(id.ID); !ok || now.Epoch != id.Epoch {
			return fmt.Errorf("identity %d was assigned to another node meanwhile: %w", id.ID, cluster.EFENCED)
		}
		if err := n.fenceNodes(ctx, fence...); err != nil {
			return err
		}
		_, err = n.propose0(ctx, &registry.ServeIdentity{ID: id.ID, Epoch: id.Epoch})
		return err
	})
}

// again does something until it succeeds, ctx ends, or it fails with EFENCED.
func (n *Node) again(ctx context.Context, what string, do func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.ctx, cancel)()
	for {
		err := do()
		if err == nil || errors.Is(err, cluster.EFENCED) {
			return err
		}
		if ctx.Err() == nil {
			n.log.Warn("it will be tried again", "what", what, "err", err)
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return err
		}
	}
}

// fenceNodes fences the writers that the nodes have in the volumes that there
// are, side by side.
func (n *Node) fenceNodes(ctx context.Context, nodes ...cluster.NodeID) error {
	if len(nodes) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	r, err := n.RegistryAt(ctx)
	if err != nil {
		return err
	}
	return n.eachVolume(ctx, r, func(ctx context.Context, v *Volume) error {
		if err := v.Sync(ctx); err != nil {
			return err
		}
		for _, w := range v.Machine.Writers() {
			if w.Fenced || !slices.Contains(nodes, w.Node) {
				continue
			}
			n.log.Warn("a front-end is fenced, for another takes its place", "of", w.Node, "volume", v.Info.Name)
			if _, err := propose(ctx, v.Group, &fsm.FenceWriter{Writer: w.ID}); err != nil {
				return err
			}
		}
		return nil
	})
}

// sideBySide is how many volumes are worked on at a time.
const sideBySide = 16

// eachVolume calls do for every volume that r has, some at a time; one that is
// not open here yet is waited for.
func (n *Node) eachVolume(ctx context.Context, r registry.View, do func(context.Context, *Volume) error) error {
	var wg sync.WaitGroup
	room := make(chan struct{}, sideBySide)
	infos := r.Volumes()
	faults := make([]error, len(infos))
	for k, info := range infos {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			err := n.until(ctx, fmt.Sprintf("volume %s to be open here", info.Name), func() bool {
				_, err := n.Volume(info.ID)
				return err == nil
			})
			if err == nil {
				var v *Volume
				if v, err = n.Volume(info.ID); err == nil {
					err = do(ctx, v)
				}
			}
			if err != nil {
				faults[k] = fmt.Errorf("volume %s: %w", info.Name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(faults...)
}
