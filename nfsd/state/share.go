package state

import (
	"sync"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// sharing has the opens of a file, and counts them by what they access and deny.
type sharing struct {
	read, write, denyRead, denyWrite int32
	first                            *Open
}

// shares has the opens of all files by file, and their share reservations (RFC
// 8881 §9.7) among this front-end's opens: those for reading are known nowhere
// else. The file system decides between all that are recorded.
type shares struct {
	shards [tableShards]shareShard
}

type shareShard struct {
	mu sync.Mutex
	m  map[vfs.File]sharing
	_  [24]byte
}

func (s *shareShard) put(f vfs.File, c sharing) {
	if c == (sharing{}) {
		delete(s.m, f)
	} else {
		s.m[f] = c
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

// possible reports whether change would be.
func (s *shares) possible(f vfs.File, access, deny, newAccess, newDeny uint32) bool {
	sh := &s.shards[s.shard(f)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c := sh.m[f]
	c.add(access, deny, -1)
	return (newAccess|access) == access && (newDeny|deny) == deny || !c.conflicts(newAccess, newDeny)
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
	if sh.m == nil {
		sh.m = make(map[vfs.File]sharing)
	}
	sh.put(f, c)
	return true
}

// force is change of what was granted already, by another front-end.
func (s *shares) force(f vfs.File, access, deny, newAccess, newDeny uint32) {
	sh := &s.shards[s.shard(f)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c := sh.m[f]
	c.add(access, deny, -1)
	c.add(newAccess, newDeny, 1)
	if sh.m == nil {
		sh.m = make(map[vfs.File]sharing)
	}
	sh.put(f, c)
}

// link enters an open under its file; unlink takes it out.
func (s *shares) link(o *Open) {
	sh := &s.shards[s.shard(o.file)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c := sh.m[o.file]
	if o.next = c.first; o.next != nil {
		o.next.prev = o
	}
	c.first = o
	sh.put(o.file, c)
}

func (s *shares) unlink(o *Open) {
	sh := &s.shards[s.shard(o.file)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if o.next != nil {
		o.next.prev = o.prev
	}
	if o.prev != nil {
		o.prev.next = o.next
	} else {
		c := sh.m[o.file]
		c.first = o.next
		sh.put(o.file, c)
	}
	o.next, o.prev = nil, nil
}

// each calls fn for each open of f. It must not change any.
func (s *shares) each(f vfs.File, fn func(*Open)) {
	sh := &s.shards[s.shard(f)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for o := sh.m[f].first; o != nil; o = o.next {
		fn(o)
	}
}
