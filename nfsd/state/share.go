package state

import (
	"sync"
	"sync/atomic"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// sharing counts the opens of a file by what they access and deny.
type sharing struct {
	read, write, denyRead, denyWrite int32
}

// shares has the share reservations of all open files (RFC 8881 §9.7).
type shares struct {
	denies atomic.Int64 // files' opens that deny something: mostly none
	shards [tableShards]struct {
		mu sync.Mutex
		m  map[vfs.File]sharing
		_  [24]byte
	}
}

func (s *shares) shard(f vfs.File) int {
	h := uint64(f.Ino)*0x9e3779b97f4a7c15 + uint64(f.Volume)
	return int(h >> 58 % tableShards)
}

func one(set bool) int32 {
	if set {
		return 1
	}
	return 0
}

func (c *sharing) add(access, deny uint32, n int32) {
	c.read += n * one(access&proto.ShareAccessRead != 0)
	c.write += n * one(access&proto.ShareAccessWrite != 0)
	c.denyRead += n * one(deny&proto.ShareDenyRead != 0)
	c.denyWrite += n * one(deny&proto.ShareDenyWrite != 0)
}

func (c *sharing) conflicts(access, deny uint32) bool {
	return access&proto.ShareAccessRead != 0 && c.denyRead > 0 ||
		access&proto.ShareAccessWrite != 0 && c.denyWrite > 0 ||
		deny&proto.ShareDenyRead != 0 && c.read > 0 ||
		deny&proto.ShareDenyWrite != 0 && c.write > 0
}

// change replaces what one open of f has by what it shall have, if no other open
// conflicts with that. Having less never conflicts.
func (s *shares) change(f vfs.File, access, deny, newAccess, newDeny uint32) bool {
	sh := &s.shards[s.shard(f)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c := sh.m[f]
	c.add(access, deny, -1)
	if (newAccess|access) != access || (newDeny|deny) != deny {
		if c.conflicts(newAccess, newDeny) {
			return false
		}
	}
	c.add(newAccess, newDeny, 1)
	if c == (sharing{}) {
		delete(sh.m, f)
	} else {
		if sh.m == nil {
			sh.m = make(map[vfs.File]sharing)
		}
		sh.m[f] = c
	}
	if n := one(newDeny != 0) - one(deny != 0); n != 0 {
		s.denies.Add(int64(n))
	}
	return true
}

// Denied reports whether an open denies others the access (RFC 8881 §9.7), as a
// READ or WRITE without an open has to obey.
func (m *Manager) Denied(f vfs.File, access uint32) bool {
	if !m.AnyDenied() {
		return false
	}
	sh := &m.shares.shards[m.shares.shard(f)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c := sh.m[f]
	return c.conflicts(access, 0)
}

// AnyDenied reports whether any open denies anything: mostly none does.
func (m *Manager) AnyDenied() bool { return m.shares.denies.Load() != 0 }
