package blob

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/segment"
)

// A Store is what the server serves; *segment.Store is one.
type Store interface {
	Put(ctx context.Context, key cluster.BlobKey, meta segment.Meta, sums checksum.Sums, data ...[]byte) error
	Read(ctx context.Context, key cluster.BlobKey, off, n uint32) (segment.Blocks, error)
	Delete(ctx context.Context, keys []cluster.BlobKey) error
	List(g cluster.GroupID, after cluster.BlobKey, n int) ([]segment.Info, error)
	Stat(key cluster.BlobKey) (segment.Info, error)
	Usage() segment.Usage
	Failed() error
}

// A Server serves a node's stores.
type Server struct {
	log    *slog.Logger
	mu     sync.Mutex // of changes to stores
	stores atomic.Pointer[map[cluster.StoreID]Store]
	pulls  atomic.Pointer[puller] // nil: none
	moved  sync.Mutex             // of looking at a copy and deleting or replacing it
}

// NewServer returns a server without stores.
func NewServer(log *slog.Logger) *Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Server{log: log}
	s.stores.Store(&map[cluster.StoreID]Store{})
	return s
}

// Add serves a store under the id that the cluster gave it.
func (s *Server) Add(id cluster.StoreID, st Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := maps.Clone(*s.stores.Load())
	m[id] = st
	s.stores.Store(&m)
}

// Remove stops serving a store. Requests under way go on.
func (s *Server) Remove(id cluster.StoreID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := maps.Clone(*s.stores.Load())
	delete(m, id)
	s.stores.Store(&m)
}

// Local returns the store with the id, if this node has it.
func (s *Server) Local(id cluster.StoreID) (Store, bool) {
	st, ok := (*s.stores.Load())[id]
	return st, ok
}

// Stores returns the ids that are served.
func (s *Server) Stores() []cluster.StoreID {
	m := *s.stores.Load()
	ids := make([]cluster.StoreID, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	return ids
}

// Serve answers one request. An error is a cluster.Errno: ENOBLOB, ECORRUPT,
// ECONFLICT, ENOSPC, EDISK (also for a store that is not here), EINVAL,
// EVERSION.
func (s *Server) Serve(ctx context.Context, req *Request) (Reply, error) {
	h, err := parseHead(req.Head)
	if err != nil {
		return Reply{}, err
	}
	st, ok := s.Local(h.store)
	if !ok {
		return Reply{}, cluster.EDISK
	}
	r, err := s.serve(ctx, st, &h, req)
	if err == nil {
		return r, nil
	}
	e := errnoOf(err)
	if e != cluster.ENOBLOB && e != cluster.ENOSPC {
		s.log.Warn("blob request failed", "op", h.op, "store", h.store, "group", req.Group, "blob", h.blob, "err", err)
	}
	return Reply{}, e
}

func (s *Server) serve(ctx context.Context, st Store, h *head, req *Request) (Reply, error) {
	key := cluster.BlobKey{Group: req.Group, Blob: h.blob, Shard: h.shard}
	switch h.op {
	case opPut:
		if h.n == 0 || h.n > segment.MaxPayload {
			return Reply{}, cluster.EINVAL
		}
		c := checksum.Size(int(h.n))
		if len(req.Body) != c+int(h.n) {
			return Reply{}, cluster.EINVAL
		}
		err := st.Put(ctx, key, segment.Meta{Set: h.set, Epoch: h.epoch}, checksum.Sums(req.Body[:c]), req.Body[c:])
		if err != nil {
			return Reply{}, err
		}
		return Reply{Head: appendUsage(nil, st.Usage())}, nil
	case opGet:
		b, err := st.Read(ctx, key, h.off, h.n)
		if err != nil {
			return Reply{}, err
		}
		hd := binary.BigEndian.AppendUint32(make([]byte, 0, 8), b.Off)
		hd = binary.BigEndian.AppendUint32(hd, b.Len)
		return Reply{Head: hd, Body: [][]byte{b.Sums, b.Data}, Done: b.Release}, nil
	case opDelete:
		if h.n > MaxDelete || len(req.Body) != int(h.n)*keyLen {
			return Reply{}, cluster.EINVAL
		}
		keys := make([]cluster.BlobKey, h.n)
		for i := range keys {
			keys[i] = parseKey(req.Body[i*keyLen:], req.Group)
		}
		return Reply{}, st.Delete(ctx, keys)
	case opList:
		if h.n > MaxList {
			return Reply{}, cluster.EINVAL
		}
		infos, err := st.List(req.Group, key, int(h.n))
		if err != nil {
			return Reply{}, err
		}
		body := make([]byte, 0, len(infos)*infoLen)
		for i := range infos {
			body = appendInfo(body, &infos[i])
		}
		return Reply{Body: [][]byte{body}}, nil
	case opStat:
		info, err := st.Stat(key)
		if err != nil {
			return Reply{}, err
		}
		return Reply{Head: appendInfo(nil, &info)}, nil
	case opUsage:
		if err := st.Failed(); err != nil {
			return Reply{}, cluster.EDISK
		}
		return Reply{Head: appendUsage(nil, st.Usage())}, nil
	case opDeleteMoved:
		if h.n > MaxDelete || len(req.Body) != int(h.n)*infoLen {
			return Reply{}, cluster.EINVAL
		}
		copies := make([]segment.Info, h.n)
		for i := range copies {
			copies[i] = parseInfo(req.Body[i*infoLen:], req.Group)
		}
		n, err := s.deleteMoved(ctx, st, copies)
		return Reply{Head: binary.BigEndian.AppendUint32(nil, uint32(n))}, err
	case opPull:
		q, err := parsePull(h, req.Group, req.Body)
		if err != nil {
			return Reply{}, err
		}
		r, err := s.pull(ctx, st, q)
		if err != nil {
			return Reply{}, err
		}
		copied := byte(0)
		if r.Copied {
			copied = 1
		}
		return Reply{Head: appendUsage([]byte{copied}, r.Usage)}, nil
	}
	return Reply{}, cluster.ENOTSUP
}

// errnoOf returns the Errno that err wraps; anything else is EINTERNAL, or
// EAGAIN where the request ran out of time.
func errnoOf(err error) cluster.Errno {
	if e, ok := errors.AsType[cluster.Errno](err); ok {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return cluster.EAGAIN
	}
	return cluster.EINTERNAL
}
