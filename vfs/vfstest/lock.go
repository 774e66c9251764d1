package vfstest

import (
	"context"
	"math"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

var lockTests = map[string]func(*T){
	"locks":      testLocks,
	"lock-types": testLockRefused,
}

func testLocks(t *T) {
	const eof = math.MaxUint64
	type step struct {
		op         string // lock, unlock, test, client
		owner      byte
		start, end uint64
		exclusive  bool
		blocker    byte // who has the lock that conflicts; 0: none
	}
	for name, script := range map[string][]step{
		"exclusive": {
			{"lock", 1, 0, 9, true, 0},
			{"lock", 2, 5, 20, true, 1},
			{"lock", 2, 10, 20, true, 0},
			{"test", 1, 15, 15, false, 2},
			{"test", 2, 15, 15, true, 0},
			{"unlock", 1, 0, 9, true, 0},
			{"lock", 2, 5, 20, true, 0},
		},
		"shared": {
			{"lock", 1, 0, eof, false, 0},
			{"lock", 2, 3, 4, false, 0},
			{"lock", 3, 4, 4, true, 1},
			{"lock", 1, 0, eof, true, 2},
			{"unlock", 2, 0, eof, true, 0},
			{"lock", 1, 0, eof, true, 0},
			{"test", 2, eof, eof, false, 1},
		},
		"split": {
			{"lock", 1, 0, 99, true, 0},
			{"unlock", 1, 40, 59, true, 0},
			{"lock", 2, 40, 59, true, 0},
			{"test", 2, 39, 39, true, 1},
			{"test", 2, 60, 60, true, 1},
			{"unlock", 1, 0, 1000, true, 0},
			{"lock", 2, 0, eof, true, 0},
		},
		"downgrade": {
			{"lock", 1, 0, 99, true, 0},
			{"lock", 1, 20, 29, false, 0},
			{"lock", 2, 20, 29, false, 0},
			{"lock", 2, 19, 19, false, 1},
			{"lock", 2, 30, 30, false, 1},
		},
		"client": {
			{"lock", 1, 0, 9, true, 0},
			{"lock", 1, 20, 29, true, 0},
			{"lock", 2, 10, 19, true, 0},
			{"client", 1, 0, 0, true, 0},
			{"lock", 3, 0, 9, true, 0},
			{"lock", 3, 10, 19, true, 2},
			{"lock", 3, 20, eof, true, 0},
		},
	} {
		f := t.file(name)
		for i, s := range script {
			l := vfs.Lock{Owner: vfs.LockOwner{s.owner}, Client: uint64(s.owner), Wire: []byte{'w', s.owner}, Start: s.start, End: s.end, Exclusive: s.exclusive}
			var c *vfs.Lock
			var err error
			switch s.op {
			case "lock":
				c, err = t.FS.Lock(req(Root), f, l)
				want := cluster.OK
				if s.blocker != 0 {
					want = cluster.ELOCKED
				}
				t.result(name, err, want)
			case "unlock":
				t.ok(t.FS.Unlock(req(Root), f, l))
			case "test":
				c, err = t.FS.TestLock(req(Root), f, l)
				t.ok(err)
			case "client":
				t.ok(t.FS.ReleaseClient(context.Background(), l.Client))
			}
			switch {
			case s.blocker == 0 && c != nil:
				t.Fatalf("%s %d: conflicts with %+v", name, i, c)
			case s.blocker != 0 && (c == nil || c.Owner[0] != s.blocker || string(c.Wire) != string([]byte{'w', s.blocker})):
				t.Fatalf("%s %d: conflicts with %+v, want owner %d", name, i, c, s.blocker)
			case c != nil && (c.Start > l.End || l.Start > c.End):
				t.Fatalf("%s %d: conflicts with %+v, which is elsewhere", name, i, c)
			}
		}
	}
	for c := range uint64(4) {
		t.ok(t.FS.ReleaseClient(context.Background(), c))
	}
}

func testLockRefused(t *T) {
	l := vfs.Lock{Start: 5, End: 4, Exclusive: true}
	f := t.file("f")
	_, err := t.FS.Lock(req(Root), f, l)
	t.fails(err, cluster.EINVAL)
	_, err = t.FS.TestLock(req(Root), f, l)
	t.fails(err, cluster.EINVAL)
	t.fails(t.FS.Unlock(req(Root), f, l), cluster.EINVAL)
	l.End = 10
	_, err = t.FS.Lock(req(Root), t.Dir, l)
	t.fails(err, cluster.EISDIR)
}
