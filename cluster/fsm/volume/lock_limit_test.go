package volume

import (
	"errors"
	"math"
	"testing"

	"github.com/hawserfs/hawser/cluster"
)

// The locks of a file are bounded, since each is looked at for each new one; neither can
// unlocking make more of them, by leaving what is on both sides. At the bound, what is
// held can be given up, and then there is room.
func TestLocksOfAFileAreBounded(t *testing.T) {
	defer func(n int) { maxLocks = n }(maxLocks)
	maxLocks = 10
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	f, g := e.create("f"), e.create("g")
	lock := func(ino cluster.Ino, start, end uint64) error {
		_, err := e.apply("a", &Lock{Ino: ino, Owner: LockOwner{1}, Client: 1, Start: start, End: end})
		return err
	}
	unlock := func(ino cluster.Ino, start, end uint64) error {
		_, err := e.apply("a", &Unlock{Ino: ino, Owner: LockOwner{1}, Start: start, End: end})
		return err
	}
	count := func() (n int) {
		e.view.Locks(f, func(*LockInfo) bool { n++; return true })
		return n
	}
	if err := lock(f, 0, math.MaxUint64); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(20) {
		err := unlock(f, 2*i+1, 2*i+1)
		if i < 9 && err != nil || i >= 9 && !errors.Is(err, cluster.ENOSPC) {
			t.Fatalf("unlock %d, with %d locks: %v", i, count(), err)
		}
	}
	if n := count(); n != maxLocks {
		t.Fatalf("%d locks", n)
	}
	if err := lock(f, 1, 1); !errors.Is(err, cluster.ENOSPC) {
		t.Fatalf("one lock too many: %v", err)
	}
	if err := lock(g, 0, 0); err != nil {
		t.Fatalf("another file: %v", err)
	}
	for _, r := range [][2]uint64{{0, 0}, {50, math.MaxUint64}, {2, 5}} { // whole locks, and the end of one
		if err := unlock(f, r[0], r[1]); err != nil {
			t.Fatalf("unlock %d-%d: %v", r[0], r[1], err)
		}
	}
	if err := lock(f, 1000, 1000); err != nil {
		t.Fatalf("after some were given up: %v", err)
	}
	e.replay()
}
