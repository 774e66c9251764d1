package node

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
	"github.com/hawserfs/hawser/conf"
	"github.com/hawserfs/hawser/nfsd/ids"
	"github.com/hawserfs/hawser/nfsd/nfs4"
	"github.com/hawserfs/hawser/vfs"
)

// A served is an identity that this front-end serves in one epoch: its program,
// with its clients' state.
type served struct {
	id      registry.Identity
	program *nfs4.Program
	// current ends with the epoch: from then on nothing is answered.
	current atomic.Bool
	// released: this node has agreed to hand it over.
	released atomic.Bool
	stop     context.CancelFunc
	wg       sync.WaitGroup
}

// open takes an identity over, with what its clients had at whoever served it
// before.
func (f *frontEnd) open(ctx context.Context, id registry.Identity) (_ *served, err error) {
	if err := f.n.member.Takeover(ctx, id); err != nil {
		return nil, err
	}
	s := &served{id: id}
	s.current.Store(true)
	nc, c := f.n.conf.NFS, f.cluster
	var names func(context.Context, string, bool) (uint32, bool)
	if nc.Domain != "" {
		names = ids.NewNames(ids.NamesConfig{Domain: nc.Domain, Logger: f.n.log}).ID
	}
	s.program, err = nfs4.New(nfs4.Config{
		FS: f.fs, Identity: id.ID, Epoch: id.Epoch, StateKey: stateKey(c.Key), Clients: f.n.member.ClientStore(id.ID, id.Epoch),
		ServerOwner: fmt.Sprintf("%s/%d", c.ID(), id.ID), Scope: c.ID(),
		Valid:    func() bool { return s.current.Load() && f.n.member.Valid() },
		Conflict: f.conflict,
		Lost: func() {
			// A floating address follows what the cluster says of it.
			if !id.Floating() {
				f.restart("its own identity is served elsewhere")
			}
		},
		Names: names, Delegate: delegate(&nc),
		Lease: nc.Lease, MaxSlots: nc.MaxSlots, MaxClients: nc.MaxClients, Logger: f.n.log,
	})
	if err != nil {
		return nil, err
	}
	if err := s.program.Start(ctx); err != nil {
		s.program.Abandon()
		return nil, fmt.Errorf("reading the state of its clients: %w", err)
	}
	run, stop := context.WithCancel(f.ctx)
	s.stop = stop
	s.wg.Go(func() { s.program.Run(run) })
	return s, nil
}

// delegate returns what says of which volumes files may be delegated; nil: of none.
func delegate(c *conf.NFS) func(vfs.Volume) bool {
	if c.Delegations != "read" {
		return nil
	}
	return func(v vfs.Volume) bool {
		return len(c.DelegationVols) == 0 || slices.Contains(c.DelegationVols, v.Name)
	}
}

// abandon ends it: nothing of it is answered or executed any more.
func (s *served) abandon() {
	s.current.Store(false)
	s.program.Abandon()
	s.stop()
	s.wg.Wait()
}

// conflict has a client of any identity expired whose lease has lapsed.
func (f *frontEnd) conflict(ctx context.Context, client uint64) bool {
	gone, err := f.n.member.ExpireClient(ctx, client)
	if err != nil {
		f.n.log.Debug("a client that is in the way of another could not be asked for", "client", client, "err", err)
	}
	return gone
}

// release makes an identity fit to be handed over to another node.
func (f *frontEnd) release(ctx context.Context, id registry.Identity) (resume func(), err error) {
	s := f.serving(id.ID)
	if s == nil || s.id.Epoch != id.Epoch {
		return func() {}, nil
	}
	if err := s.program.Quiesce(ctx); err != nil {
		s.program.Resume()
		return nil, err
	}
	// What is held would otherwise be committed behind the back of the next one.
	if err := f.fs.Flush(ctx); err != nil {
		s.program.Resume()
		return nil, err
	}
	s.released.Store(true)
	return func() {
		s.released.Store(false)
		s.program.Resume()
	}, nil
}

// expire expires a client that is served here and whose lease has lapsed.
func (f *frontEnd) expire(ctx context.Context, client uint64) bool {
	s := f.serving(cluster.ClientIdentity(client))
	return s != nil && s.program.ExpireClient(ctx, client)
}
