package node

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/address"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
	"github.com/hawserfs/hawser/cluster/member"
	"github.com/hawserfs/hawser/nfsd"
	"github.com/hawserfs/hawser/nfsd/ids"
	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// A frontEnd is one incarnation of this node's NFS server: a file system with
// writers of its own, the identities that it serves, and the listeners.
type frontEnd struct {
	n       *Node
	cluster registry.Cluster
	fs      *vfs.System
	server  *nfsd.Server
	holder  *address.Holder // nil: there is none because of noHolder
	// noHolder says why this process can't have floating addresses.
	noHolder error
	ctx      context.Context
	cancel   context.CancelFunc
	unhook   []func() // in the order in which they were hooked
	wg       sync.WaitGroup

	own atomic.Pointer[served] // the identity of the node's own addresses

	mu       sync.Mutex
	closing  bool
	floaters map[cluster.IdentityID]*floater

	once sync.Once
	why  string
	over chan struct{} // closed when it must go, for why
}

// restart says that the front-end must be replaced by a new one. It does not
// wait for that.
func (f *frontEnd) restart(why string) {
	f.once.Do(func() {
		f.why = why
		close(f.over)
	})
}

// closeTimeout bounds how long a front-end that stops commits what it holds.
const closeTimeout = 10 * time.Second

func (n *Node) startFrontEnd() (_ *frontEnd, err error) {
	r, err := n.member.RegistryAt(n.ctx)
	if err != nil {
		return nil, err
	}
	c, ok := r.Cluster()
	if !ok {
		return nil, errors.New("the cluster's record is missing")
	}
	f := &frontEnd{n: n, cluster: c, over: make(chan struct{}), floaters: map[cluster.IdentityID]*floater{}}
	f.ctx, f.cancel = context.WithCancel(n.ctx)
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	// What an earlier front-end of this node has begun must have ended before
	// this one begins anything.
	own, err := n.member.ClaimOwnIdentity(f.ctx)
	if err != nil {
		return nil, err
	}
	if err := f.openFS(); err != nil {
		return nil, err
	}
	if err := f.listen(own); err != nil {
		return nil, err
	}
	f.follow()
	return f, nil
}

func (f *frontEnd) openFS() (err error) {
	n := f.n
	f.fs, err = vfs.New(vfs.Config{
		Key: vfs.HandleKey(f.cluster.Key), Node: cluster.NodeID(n.conf.Node.Name),
		Placer: n.data.placement, Blobs: n.data.placement,
		Now: now, Nonce: nonce, Space: n.data.space,
		Fenced: func(vfs.VolumeID) { f.restart("it was fenced while it was away") },
		Logger: n.log, CacheBytes: int64(n.conf.Cache.Data), HeldTotal: int64(n.conf.Cache.Dirty),
	})
	if err != nil {
		return err
	}
	f.hook(n.member.OnVolume(func(v *member.Volume) {
		f.fs.Mount(vfs.Mount{
			Volume:    vfs.Volume{ID: v.Info.ID, Name: v.Info.Name, FSID: vfs.FSID(v.Info.FSID)},
			Group:     v.Group,
			View:      v.View(),
			Subscribe: v.Machine.Subscribe,
			Snapshot:  v.Machine.Snapshot,
		})
	}))
	return nil
}

// listen takes the node's own identity over and serves it.
func (f *frontEnd) listen(id registry.Identity) error {
	nc := f.n.conf.NFS
	own, err := f.open(f.ctx, id)
	if err != nil {
		return err
	}
	f.own.Store(own)
	var groups *ids.Groups
	if nc.GroupLookup {
		groups = ids.New(ids.Config{})
	}
	f.server, err = nfsd.Listen(nfsd.Config{
		Listen: f.n.conf.Listen.NFS, Groups: groups,
		Programs: []oncrpc.Program{{Number: proto.Program, MinVersion: proto.Version, MaxVersion: proto.Version, Handler: own.program}},
		MaxConns: nc.MaxConnections, MaxInFlight: nc.MaxRequests, RequestMemory: int(nc.MaxRequestMem), Logger: f.n.log,
	})
	return err
}

// partAddresses names floating addresses as a whole among a node's faults.
const partAddresses = "this node can't have floating addresses"

// follow serves clients, and floating addresses as the cluster assigns them.
func (f *frontEnd) follow() {
	m := f.n.member
	var addrs []netip.Prefix
	if r, err := m.Registry(); err == nil {
		for _, i := range r.Identities() {
			if i.Floating() {
				// Nobody may find our own state behind one of them.
				f.server.RefuseAddress(i.Addr.Addr())
				addrs = append(addrs, i.Addr)
			}
		}
	}
	f.holder, f.noHolder = address.New(address.Config{
		Interface: f.n.conf.Addresses.Interface, Valid: f.mayHold, Lapsed: f.hasLapsed, Logger: f.n.log,
	})
	f.addressFault(len(addrs) > 0)
	f.hook(m.OnExpire(f.expire))
	if f.holder != nil {
		if err := f.holder.Clean(addrs); err != nil {
			f.n.log.Warn("addresses of an earlier process are still there; the kernel drops them", "err", err)
		}
		f.hook(m.OnRelease(f.release))
	}
	f.hook(m.OnIdentity(f.told))
	f.wg.Go(func() { _ = f.server.Serve() }) // it logs an error of a listener
}

// addressFault says that this node can't have floating addresses, if there are some.
func (f *frontEnd) addressFault(some bool) {
	what := ""
	if f.noHolder != nil && some {
		what = f.noHolder.Error()
	}
	if f.n.faults.set(partAddresses, what) && what != "" {
		f.n.log.Error(partAddresses, "err", f.noHolder)
	}
}

func (f *frontEnd) hook(cancel func()) { f.unhook = append(f.unhook, cancel) }

// close stops serving, commits what is held, and ends the incarnation. One that
// has to go because it was replaced answers nothing any more.
func (f *frontEnd) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	f.mu.Lock()
	f.closing = true
	f.mu.Unlock()
	var faults []error
	own := f.own.Load()
	select {
	case <-f.over:
		if own != nil {
			own.abandon()
		}
		if f.server != nil {
			f.server.Close()
		}
	default:
		if f.server != nil {
			faults = append(faults, f.server.Shutdown(ctx))
		}
	}
	f.cancel()
	for i := len(f.unhook) - 1; i >= 0; i-- {
		f.unhook[i]()
	}
	f.wg.Wait()
	if own != nil {
		own.abandon()
	}
	if f.holder != nil {
		faults = append(faults, f.holder.Close())
	}
	if f.fs != nil {
		faults = append(faults, f.fs.Shutdown(ctx))
	}
	return errors.Join(faults...)
}

// addrs returns where clients are served.
func (f *frontEnd) addrs() (out []string) {
	for _, a := range f.server.Addrs() {
		out = append(out, a.String())
	}
	for _, x := range f.floating() {
		out = append(out, netip.AddrPortFrom(x.prefix.Addr(), f.server.Port()).String())
	}
	return out
}

// stateKey is the key of the MACs in stateids, which every front-end of the
// cluster checks.
func stateKey(clusterKey [32]byte) [32]byte {
	return sha256.Sum256(append([]byte("hawser stateid\x00"), clusterKey[:]...))
}

func now() cluster.Time { return cluster.Time(time.Now().UnixNano()) }

func nonce() uint64 {
	var b [8]byte
	// crypto/rand.Read never fails.
	_, _ = rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:])
}
