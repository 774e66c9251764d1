package member

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
)

// MaxConns is the most client ends that are remembered of an identity; of more,
// those that come first.
const MaxConns = 16384

// Timing of telling client ends.
const (
	connsEvery   = 250 * time.Millisecond // at most so often
	connsAgain   = 10 * time.Second       // also if nothing changed: a node may have restarted
	connsTimeout = time.Second
)

// connTable has the client ends of the connections of identities: what is known
// here, and what each other node was told. It is soft state: whoever takes an
// identity over wakes its clients with it, and without it they take longer.
type connTable struct {
	mu    sync.Mutex
	lists map[cluster.IdentityID]connList
	wake  chan struct{}
	told  map[toldConns]toldAt
}

type connList struct {
	epoch   uint32
	version uint64 // within the epoch
	packed  []byte
	own     bool // set here
}

type toldConns struct {
	node     cluster.NodeID
	identity cluster.IdentityID
}

type toldAt struct {
	epoch   uint32
	version uint64
	at      time.Time
}

// connsRequest tells a node the client ends of an identity.
type connsRequest struct {
	ID      cluster.IdentityID `json:"id"`
	Epoch   uint32             `json:"epoch"`
	Version uint64             `json:"version"`
	Packed  []byte             `json:"conns"`
}

// hear takes what another node tells, unless something newer is known.
func (c *connTable) hear(q connsRequest) {
	if _, err := unpackConns(q.Packed); err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.lists[q.ID]
	if q.Epoch < old.epoch || q.Epoch == old.epoch && (old.own || q.Version < old.version) {
		return
	}
	c.set(q.ID, connList{epoch: q.Epoch, version: q.Version, packed: q.Packed})
}

func (c *connTable) set(id cluster.IdentityID, l connList) {
	if c.lists == nil {
		c.lists = map[cluster.IdentityID]connList{}
	}
	c.lists[id] = l
}

// SetConns says which client ends the connections of an identity have that this
// node serves. The other nodes are told, so that whoever takes the identity
// over can wake its clients. Beyond MaxConns they are cut off.
func (n *Node) SetConns(id cluster.IdentityID, conns []netip.AddrPort) {
	r, err := n.Registry()
	if err != nil {
		return
	}
	i, ok := r.Identity(id)
	if !ok || i.Node != n.cfg.Self {
		return
	}
	packed := packConns(conns)
	c := &n.conns
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.lists[id]
	if old.own && old.epoch == i.Epoch && slices.Equal(old.packed, packed) {
		return
	}
	next := connList{epoch: i.Epoch, version: 1, packed: packed, own: true}
	if old.epoch == i.Epoch {
		next.version = old.version + 1
	}
	c.set(id, next)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Conns returns the client ends of an identity's connections, as this node has
// heard last from the node that serves it, or has set itself. It may be old, or empty.
func (n *Node) Conns(id cluster.IdentityID) []netip.AddrPort {
	n.conns.mu.Lock()
	defer n.conns.mu.Unlock()
	conns, _ := unpackConns(n.conns.lists[id].packed)
	return conns
}

// tellConns tells the other front-ends the client ends of what this node serves.
func (n *Node) tellConns() {
	for {
		n.tellConnsOnce()
		select {
		case <-n.conns.wake:
		case <-time.After(connsAgain / 2):
		case <-n.ctx.Done():
			return
		}
		if !sleep(n.ctx, connsEvery) {
			return
		}
	}
}

func (n *Node) tellConnsOnce() {
	r, err := n.Registry()
	if err != nil {
		return
	}
	n.conns.drop(r)
	var wg sync.WaitGroup
	room := make(chan struct{}, sideBySide)
	for _, node := range r.Nodes() {
		if node.ID == n.cfg.Self || node.State == registry.NodeRemoved || !node.Roles.Has(registry.RoleNFS) {
			continue
		}
		due := n.conns.due(time.Now(), node.ID)
		if len(due) == 0 {
			continue
		}
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			for _, q := range due {
				ctx, cancel := context.WithTimeout(n.ctx, connsTimeout)
				_, err := n.ask(ctx, node.PeerAddr, request{Conns: &q})
				cancel()
				if err != nil {
					return
				}
				n.conns.tell(time.Now(), node.ID, q)
			}
		})
	}
	wg.Wait()
}

// drop forgets identities that are gone.
func (c *connTable) drop(r registry.View) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.lists {
		if _, ok := r.Identity(id); !ok {
			delete(c.lists, id)
		}
	}
	for t := range c.told {
		if _, ok := c.lists[t.identity]; !ok {
			delete(c.told, t)
		}
	}
}

// due returns what a node has not been told, or not for long.
func (c *connTable) due(now time.Time, node cluster.NodeID) (due []connsRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, l := range c.lists {
		if !l.own {
			continue
		}
		t := c.told[toldConns{node, id}]
		if t.epoch != l.epoch || t.version != l.version || now.Sub(t.at) >= connsAgain {
			due = append(due, connsRequest{ID: id, Epoch: l.epoch, Version: l.version, Packed: l.packed})
		}
	}
	return due
}

func (c *connTable) tell(now time.Time, node cluster.NodeID, q connsRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told == nil {
		c.told = map[toldConns]toldAt{}
	}
	c.told[toldConns{node, q.ID}] = toldAt{epoch: q.Epoch, version: q.Version, at: now}
}

// packConns writes client ends: for each the length of its address, that, and
// its port.
func packConns(conns []netip.AddrPort) []byte {
	packed := make([]byte, 0, 8*len(conns))
	for _, c := range conns[:min(len(conns), MaxConns)] {
		a := c.Addr().Unmap().WithZone("")
		if !a.IsValid() {
			continue
		}
		b := a.AsSlice()
		packed = append(append(packed, byte(len(b))), b...)
		packed = binary.BigEndian.AppendUint16(packed, c.Port())
	}
	return packed
}

var errConns = errors.New("a malformed list of connections")

// unpackConns reads what packConns wrote.
func unpackConns(b []byte) ([]netip.AddrPort, error) {
	var conns []netip.AddrPort
	for len(b) > 0 {
		size := int(b[0])
		if len(b) < 1+size+2 || len(conns) == MaxConns {
			return nil, errConns
		}
		a, ok := netip.AddrFromSlice(b[1 : 1+size])
		if !ok {
			return nil, errConns
		}
		conns = append(conns, netip.AddrPortFrom(a, binary.BigEndian.Uint16(b[1+size:])))
		b = b[1+size+2:]
	}
	return conns, nil
}
