package memfs

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

// Prefetch implements vfs.FS: all is in memory.
func (fs *FS) Prefetch(_ *vfs.Request, f vfs.File, _, _ uint64) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if _, _, errno := fs.regular(f); errno != cluster.OK {
		return errno
	}
	return nil
}
