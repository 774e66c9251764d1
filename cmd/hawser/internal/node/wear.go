package node

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/conf"
	"github.com/hawserfs/hawser/datastore/scrub"
	"github.com/hawserfs/hawser/datastore/segment"
)

// A wear watches a disk for damaged copies: each is looked at by the scrub, and a
// disk with too many of them is taken out of service.
type wear struct {
	log   *slog.Logger
	store atomic.Pointer[segment.Store]
	scrub atomic.Pointer[scrub.Runner]

	mu    sync.Mutex
	tally scrub.Tally[cluster.BlobKey]
}

func newWear(c conf.Scrub, log *slog.Logger) *wear {
	return &wear{log: log, tally: scrub.Tally[cluster.BlobKey]{Max: c.MaxErrors, Window: c.ErrorWindow}}
}

// damaged is segment.Options.Damaged.
func (w *wear) damaged(key cluster.BlobKey, _ error) {
	if r := w.scrub.Load(); r != nil {
		r.Doubt(key)
	}
	w.mu.Lock()
	tooMany := w.tally.Note(key, time.Now())
	n, window := w.tally.Max, w.tally.Window
	w.mu.Unlock()
	if s := w.store.Load(); tooMany && s != nil && s.Failed() == nil {
		w.log.Error("a disk has too many damaged copies and is taken out of service; what is on it can still be read", "disk", s.Dir(), "copies", n, "within", window)
		s.Retire(fmt.Sprintf("%d damaged copies were found on it within %v", n, window))
	}
}
