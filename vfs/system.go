package vfs

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs/blobcache"
)

// System implements FS over the volumes' groups and the datastore.
//
// The change attribute that it shows is the inode's, which is the Raft index
// of the last command that touched it, times 2^16. The low bits count the
// writes to a relaxed file that this front-end holds and shows but has not
// committed: what readers see here never changes without the change attribute,
// and the commit, which has a higher index, makes it grow once more.
type System struct {
	cfg   Config
	cache *blobcache.Cache
	base  context.Context // ends with Shutdown
	stop  context.CancelFunc
	tasks sync.WaitGroup

	held  *semaphore.Weighted // bytes of unstable data
	kick  chan struct{}       // asks the flushers for room
	ahead *semaphore.Weighted // blobs being read ahead or streamed

	watchers watchList

	mu     sync.Mutex // of changes to mounts
	mounts atomic.Pointer[map[VolumeID]*mount]
}

var _ FS = (*System)(nil)

// New returns a System without volumes.
func New(cfg Config) (*System, error) {
	if cfg.Node == "" || cfg.Placer == nil || cfg.Blobs == nil || cfg.Now == nil || cfg.Nonce == nil || cfg.Key == (HandleKey{}) {
		return nil, fmt.Errorf("vfs: Node, Key, Placer, Blobs, Now and Nonce must be set: %w", cluster.EINVAL)
	}
	cfg = cfg.withDefaults()
	s := &System{
		cfg:   cfg,
		cache: blobcache.New(cfg.CacheBytes),
		held:  semaphore.NewWeighted(cfg.HeldTotal),
		kick:  make(chan struct{}, 1),
		ahead: semaphore.NewWeighted(maxBackground),
	}
	s.base, s.stop = context.WithCancel(context.Background())
	s.mounts.Store(&map[VolumeID]*mount{})
	return s, nil
}

// maxBackground bounds the blobs that are read ahead or streamed at a time.
const maxBackground = 32

// Mount serves a volume from now on. A volume that is mounted already stays as it is.
func (s *System) Mount(v Mount) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.mounts.Load()
	if old[v.ID] != nil || s.base.Err() != nil {
		return
	}
	m := newMount(s, v)
	mounts := maps.Clone(old)
	mounts[v.ID] = m
	s.mounts.Store(&mounts)
	m.start()
}

// Shutdown commits what is held, as far as it can within ctx, and stops. No
// other method may be called during or after it.
func (s *System) Shutdown(ctx context.Context) error {
	err := s.Flush(ctx)
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	for _, m := range s.list() {
		m.cancel()
	}
	s.tasks.Wait()
	return err
}

// list returns the mounted volumes by id.
func (s *System) list() []*mount {
	return slices.SortedFunc(maps.Values(*s.mounts.Load()), func(a, b *mount) int { return cmp.Compare(a.ID, b.ID) })
}

// mount returns the volume of f. This cluster made f's handle, so a volume
// that is not here is one that this node has yet to open.
func (s *System) mount(f File) (*mount, error) {
	if m := (*s.mounts.Load())[f.Volume]; m != nil {
		return m, nil
	}
	if f.Volume == cluster.ClusterGroup {
		return nil, cluster.ESTALE
	}
	return nil, fmt.Errorf("vfs: volume %d is not open on this node yet: %w", f.Volume, cluster.EAGAIN)
}

// every runs fn now and then until Shutdown. An early wake-up
// comes through wake, which may be nil.
func (s *System) every(d time.Duration, wake <-chan struct{}, fn func()) {
	s.tasks.Go(func() {
		t := time.NewTicker(d)
		defer t.Stop()
		for {
			select {
			case <-t.C:
			case <-wake:
			case <-s.base.Done():
				return
			}
			fn()
		}
	})
}

// AppendHandle implements FS.
func (s *System) AppendHandle(dst []byte, f File) []byte { return s.cfg.Key.Append(dst, f) }

// ParseHandle implements FS.
func (s *System) ParseHandle(handle []byte) (File, error) { return s.cfg.Key.Parse(handle) }

// CacheStats returns the blob cache's hits and misses (of 64 KiB each) and bytes.
func (s *System) CacheStats() (hits, misses uint64, bytes int64) { return s.cache.Stats() }
