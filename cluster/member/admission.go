package member

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
	"github.com/hawserfs/hawser/cluster/peer"
)

// A request to another node's member service. One of its fields is set.
type request struct {
	Heartbeat *heartbeat `json:"heartbeat,omitempty"`
	Join      *heartbeat `json:"join,omitempty"` // a node says the same of itself when it joins
	// These are for any node, not only for the leader of group 0.
	Confirm *confirmRequest `json:"confirm,omitempty"`
	Release *releaseRequest `json:"release,omitempty"`
	Expire  *expireRequest  `json:"expire,omitempty"`
	Conns   *connsRequest   `json:"conns,omitempty"`
}

// A reply to a request.
type reply struct {
	Table *table `json:"table,omitempty"`
	Ack   *ack   `json:"ack,omitempty"`
	// Leader is where to ask instead, if this node does not lead group 0.
	Leader string `json:"leader,omitempty"`
	// Cluster and Peers answer a Join.
	Cluster string                    `json:"cluster,omitempty"`
	Name    string                    `json:"name,omitempty"`
	Peers   map[cluster.NodeID]string `json:"peers,omitempty"`

	Confirm *confirmReply `json:"confirm,omitempty"`
	Expired bool          `json:"expired,omitempty"`
}

// VolumeMain is the volume that Init makes.
const VolumeMain = "main"

// Init makes a new cluster with this node as its first, and the volume main of
// the given class. After a crash in the middle it may be called again.
func (n *Node) Init(ctx context.Context, name string, class cluster.Class) error {
	n.admission.Lock()
	defer n.admission.Unlock()
	n.mu.RLock()
	id := n.id
	n.mu.RUnlock()
	if id.Cluster != "" && !id.Founder {
		return errors.New("this node has joined a cluster already, or has begun to: `hawser status` shows it; to finish, run `hawser cluster join ADDRESS` again")
	}
	if name == "" {
		return fmt.Errorf("the cluster needs a name: %w", cluster.EINVAL)
	}
	if id.Cluster == "" {
		id.Cluster, id.Founder = newUUID(), true
		if err := n.become(id); err != nil {
			return err
		}
	}
	if err := n.openZero(); err != nil {
		return err
	}
	r, err := n.RegistryAt(ctx)
	if err != nil {
		return err
	}
	if c, ok := r.Cluster(); ok {
		if _, done := r.VolumeByName(VolumeMain); done {
			return fmt.Errorf("this node is a member of cluster %q already", c.Name)
		}
	} else {
		var key [32]byte
		// crypto/rand.Read never fails.
		_, _ = rand.Read(key[:])
		uuid, err := parseUUID(id.Cluster)
		if err != nil {
			return err
		}
		if _, err := n.propose0(ctx, &registry.InitCluster{UUID: uuid, Name: name, Key: key}); err != nil {
			return err
		}
	}
	if err := n.admit(ctx, n.beat()); err != nil {
		return err
	}
	if _, err := n.CreateVolume(ctx, VolumeMain, class); err != nil {
		return err
	}
	return n.Ready(ctx)
}

// Join makes this node a member of the cluster that the node at addr belongs
// to. After a crash in the middle it may be called again.
func (n *Node) Join(ctx context.Context, addr string) error {
	n.admission.Lock()
	defer n.admission.Unlock()
	if n.Member() {
		if r, err := n.Registry(); err == nil {
			if c, ok := r.Cluster(); ok {
				return fmt.Errorf("this node is a member of cluster %q already", c.Name)
			}
		}
		n.mu.RLock()
		founder := n.id.Founder
		n.mu.RUnlock()
		if founder {
			return errors.New("this node has begun a cluster of its own: finish it with `hawser cluster init`, or stop the node and empty its data folder and disks first")
		}
		// An earlier Join got this far.
		if err := n.openZero(); err != nil {
			return err
		}
		return n.Ready(ctx)
	}
	if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
		return fmt.Errorf("%q is no address: write HOST:PORT, the listen.peer of a member: %w", addr, cluster.EINVAL)
	}
	if addr == n.cfg.PeerAddr {
		return fmt.Errorf("%s is this node itself: name a member of the cluster, or make a new one with `hawser cluster init`: %w", addr, cluster.EINVAL)
	}
	answer, err := n.applyFor(ctx, addr)
	if err != nil {
		return fmt.Errorf("joining through %s: %w", addr, err)
	}
	n.mu.RLock()
	id := n.id
	n.mu.RUnlock()
	id.Cluster, id.Peers = answer.Cluster, answer.Peers
	if err := n.become(id); err != nil {
		return err
	}
	if err := n.openZero(); err != nil {
		return err
	}
	return n.Ready(ctx)
}

// become makes this node a member: on disk first, so that a crash at any step
// leaves a node that goes on from there.
func (n *Node) become(id identity) error {
	if err := id.save(n.cfg.Dir); err != nil {
		return err
	}
	n.mu.Lock()
	n.id = id
	n.mu.Unlock()
	n.cfg.Peer.SetClusterID(id.Cluster)
	return nil
}

// askTimeout is how long a node may take to answer a node that joins.
const askTimeout = 15 * time.Second

// applyFor asks the node at addr, and then the leader that it names, to take
// this node in. If the leader is not there it asks addr again: there may be
// another one soon.
func (n *Node) applyFor(ctx context.Context, addr string) (reply, error) {
	b := n.beat()
	at := addr
	for {
		askCtx, cancel := context.WithTimeout(ctx, askTimeout)
		answer, err := n.ask(askCtx, at, request{Join: &b})
		cancel()
		var remote *peer.RemoteError
		switch {
		case err == nil && answer.Cluster != "":
			return answer, nil
		case ctx.Err() != nil:
			return reply{}, fmt.Errorf("the cluster has no leader that answers (%w): a majority of its nodes must be up and reach each other", ctx.Err())
		case err == nil && answer.Leader != "" && at == addr:
			at = answer.Leader
			continue
		case errors.As(err, &remote) && (at == addr || !errors.Is(err, cluster.EAGAIN)):
			return reply{}, err // it was heard and refused
		case err != nil && at == addr:
			return reply{}, fmt.Errorf("%w: ADDRESS must be the listen.peer of a running member", err)
		}
		at = addr
		sleep(ctx, 200*time.Millisecond)
	}
}

// Ready waits until this node has the cluster's records and runs its volumes.
func (n *Node) Ready(ctx context.Context) error {
	if !n.Member() {
		return ErrNotMember
	}
	err := n.until(ctx, "the cluster's records to arrive", func() bool {
		zero, err := n.group0()
		if err != nil {
			return false
		}
		r, err := n.Registry()
		if err != nil {
			return false
		}
		_, led := zero.group.Leader()
		_, known := r.Node(n.cfg.Self)
		return led && known && len(r.Volumes()) > 0
	})
	if err != nil {
		return err
	}
	r, err := n.RegistryAt(ctx)
	if err != nil {
		return err
	}
	for _, v := range r.Volumes() {
		if err := n.waitVolume(ctx, v.ID); err != nil {
			return err
		}
	}
	return nil
}

// until waits for cond to hold.
func (n *Node) until(ctx context.Context, what string, cond func() bool) error {
	for !cond() {
		n.mu.RLock()
		opened := n.opened
		n.mu.RUnlock()
		select {
		case <-opened:
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		case <-n.ctx.Done():
			return fmt.Errorf("waiting for %s: the node stops", what)
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// ask sends a request to the member service of the node at addr.
func (n *Node) ask(ctx context.Context, addr string, q request) (reply, error) {
	return n.askUntil(ctx, nil, addr, q)
}

// askUntil is ask, and gives up when until is closed.
func (n *Node) askUntil(ctx context.Context, until <-chan struct{}, addr string, q request) (reply, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return reply{}, err
	}
	response, err := n.cfg.Peer.CallUntil(ctx, until, addr, peer.ServiceMember, cluster.ClusterGroup, nil, body)
	if err != nil {
		return reply{}, err
	}
	defer response.Release()
	var a reply
	err = json.Unmarshal(response.Body, &a)
	return a, err
}

// serve answers another node's request.
func (n *Node) serve(ctx context.Context, req *peer.Request) (peer.Reply, error) {
	n.mu.Lock()
	if n.ctx.Err() != nil {
		n.mu.Unlock()
		return peer.Reply{}, fmt.Errorf("node %s is stopping: %w", n.cfg.Self, cluster.EAGAIN)
	}
	n.wg.Add(1) // the groups are closed after this
	n.mu.Unlock()
	defer n.wg.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.ctx, cancel)()
	var q request
	if err := json.Unmarshal(req.Body, &q); err != nil {
		return peer.Reply{}, fmt.Errorf("a malformed request of %s: %w", req.From, cluster.EINVAL)
	}
	var a reply
	zero, err := n.group0()
	switch {
	case err != nil:
		return peer.Reply{}, fmt.Errorf("node %s is not a member of a cluster itself: name one that is, or run `hawser cluster init` there: %w", n.cfg.Self, cluster.EAGAIN)
	case q.Confirm != nil:
		c := n.serveConfirm(zero, *q.Confirm)
		a.Confirm = &c
	case q.Release != nil:
		if err := n.serveRelease(ctx, *q.Release); err != nil {
			return peer.Reply{}, err
		}
	case q.Expire != nil:
		if a.Expired, err = n.serveExpire(ctx, *q.Expire); err != nil {
			return peer.Reply{}, err
		}
	case q.Conns != nil:
		n.conns.hear(*q.Conns)
	case !zero.group.IsLeader():
		if id, ok := zero.group.Leader(); ok {
			a.Leader, _ = n.resolve(id)
		}
	case q.Heartbeat != nil:
		if t, known := n.hear(*q.Heartbeat); known {
			a.Table, a.Ack = t, n.acknowledge(ctx, zero, q.Heartbeat)
		}
	case q.Join != nil:
		if err := n.admit(ctx, *q.Join); err != nil {
			return peer.Reply{}, err
		}
		r, err := n.Registry()
		if err != nil {
			return peer.Reply{}, err
		}
		c, _ := r.Cluster()
		a.Cluster, a.Name, a.Peers = c.ID(), c.Name, map[cluster.NodeID]string{}
		for _, node := range r.Nodes() {
			a.Peers[node.ID] = node.PeerAddr
		}
	}
	body, err := json.Marshal(a)
	return peer.Reply{Body: [][]byte{body}}, err
}

// admit records a node, and its stores. A node of that name with another
// incarnation is refused: it would vote with a log that it does not have.
func (n *Node) admit(ctx context.Context, b heartbeat) error {
	r, err := n.RegistryAt(ctx)
	if err != nil {
		return err
	}
	record, err := nodeRecord(b)
	if err != nil {
		return err
	}
	if known, ok := r.Node(b.Node); ok && known.Incarnation != record.Incarnation {
		return fmt.Errorf("the cluster has a node %q with another data folder: give the new node another name: %w", b.Node, cluster.EEXIST)
	}
	if _, err := n.propose0(ctx, record); err != nil {
		return err
	}
	for _, s := range b.Stores {
		if err := n.putStore(ctx, b.Node, s); err != nil {
			return err
		}
	}
	n.poke()
	return nil
}

// nodeRecord is a node's record as it says itself.
func nodeRecord(b heartbeat) (*registry.PutNode, error) {
	incarnation, err := parseUUID(b.Incarnation)
	return &registry.PutNode{
		ID: b.Node, Incarnation: incarnation, PeerAddr: b.PeerAddr, NFSAddr: b.NFSAddr, Roles: b.Roles, Rack: b.Rack,
	}, err
}

// putStore records a store of a node.
func (n *Node) putStore(ctx context.Context, node cluster.NodeID, s StoreReport) error {
	uuid, err := parseUUID(s.UUID)
	if err != nil {
		return err
	}
	state := registry.StoreUp
	if s.Failed {
		state = registry.StoreFailed
	}
	_, err = n.propose0(ctx, &registry.PutStore{UUID: uuid, Node: node, Capacity: s.Capacity, Used: s.Used, State: state})
	return err
}

// beat is what this node says of itself.
func (n *Node) beat() heartbeat {
	n.mu.RLock()
	incarnation := n.id.Incarnation
	n.mu.RUnlock()
	b := heartbeat{
		Node: n.cfg.Self, Incarnation: incarnation, PeerAddr: n.cfg.PeerAddr, NFSAddr: n.cfg.NFSAddr,
		Roles: n.cfg.Roles, Rack: n.cfg.Rack, Stores: n.cfg.Stores(), Applied: map[cluster.GroupID]uint64{},
		FrontEnd: n.hooks.frontEnd(),
	}
	if zero, err := n.group0(); err == nil {
		b.Applied[cluster.ClusterGroup] = zero.group.Applied()
	}
	for _, v := range n.Volumes() {
		b.Applied[v.Info.ID] = v.Group.Applied()
	}
	return b
}
