package node

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/member"
	"github.com/hawserfs/hawser/nfsd"
	"github.com/hawserfs/hawser/nfsd/ids"
	"github.com/hawserfs/hawser/nfsd/nfs4"
	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// A frontEnd is one incarnation of this node's NFS server: a file system with
// writers of its own, the clients' state, and the listeners.
type frontEnd struct {
	fs     *vfs.System
	server *nfsd.Server
	cancel context.CancelFunc
	unhook func()
	wg     sync.WaitGroup

	once   sync.Once
	fenced chan struct{} // closed when it was fenced and must go
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
	f := &frontEnd{fenced: make(chan struct{})}
	ctx, cancel := context.WithCancel(n.ctx)
	f.cancel = cancel
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	f.fs, err = vfs.New(vfs.Config{
		Key: vfs.HandleKey(c.Key), Node: cluster.NodeID(n.conf.Node.Name),
		Placer: n.data.placement, Blobs: n.data.placement,
		Now: now, Nonce: nonce, Space: n.data.space,
		Fenced: func(vfs.VolumeID) { f.once.Do(func() { close(f.fenced) }) },
		Logger: n.log, CacheBytes: int64(n.conf.Cache.Data), HeldTotal: int64(n.conf.Cache.Dirty),
	})
	if err != nil {
		return nil, err
	}
	f.unhook = n.member.OnVolume(func(v *member.Volume) {
		f.fs.Mount(vfs.Mount{
			Volume:    vfs.Volume{ID: v.Info.ID, Name: v.Info.Name, FSID: vfs.FSID(v.Info.FSID)},
			Group:     v.Group,
			View:      v.View(),
			Subscribe: v.Machine.Subscribe,
			Snapshot:  v.Machine.Snapshot,
		})
	})
	nc := n.conf.NFS
	program, err := nfs4.New(nfs4.Config{
		FS: f.fs, Clients: n.member, ServerOwner: c.ID() + "/" + n.conf.Node.Name, Scope: c.ID(),
		Lease: nc.Lease, MaxSlots: nc.MaxSlots, MaxClients: nc.MaxClients, Logger: n.log,
	})
	if err != nil {
		return nil, err
	}
	if err := program.Start(ctx); err != nil {
		return nil, fmt.Errorf("reading which clients there were: %w", err)
	}
	f.wg.Go(func() { program.Run(ctx) })
	var groups *ids.Groups
	if nc.GroupLookup {
		groups = ids.New(ids.Config{})
	}
	f.server, err = nfsd.Listen(nfsd.Config{
		Listen: n.conf.Listen.NFS, Groups: groups,
		Programs: []oncrpc.Program{{Number: proto.Program, MinVersion: proto.Version, MaxVersion: proto.Version, Handler: program}},
		MaxConns: nc.MaxConnections, MaxInFlight: nc.MaxRequests, RequestMemory: int(nc.MaxRequestMem), Logger: n.log,
	})
	if err != nil {
		return nil, err
	}
	f.wg.Go(func() { _ = f.server.Serve() }) // it logs an error of a listener
	return f, nil
}

// close stops serving, commits what is held, and ends the incarnation.
func (f *frontEnd) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var faults []error
	if f.server != nil {
		faults = append(faults, f.server.Shutdown(ctx))
	}
	f.cancel()
	if f.unhook != nil {
		f.unhook()
	}
	f.wg.Wait()
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
	return out
}

func now() cluster.Time { return cluster.Time(time.Now().UnixNano()) }

func nonce() uint64 {
	var b [8]byte
	// crypto/rand.Read never fails.
	_, _ = rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:])
}
