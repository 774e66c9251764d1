package volume

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/hawserfs/hawser/cluster"
)

// byteLock is what the model has of one byte for one owner.
type byteLock struct {
	held, exclusive bool
	client          uint64
}

const (
	lockBytes  = 24
	lockOwners = 3
)

// TestLocksModel compares locks with a model that has a cell for each byte and
// owner. The last cell stands for all bytes up to the end.
func TestLocksModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := newData(t)
		defer e.close()
		e.open("a", "n1")
		e.open("b", "n2")
		names := []string{"a", "b"}
		ino := e.create("f")
		var cells [lockOwners][lockBytes]byteLock
		offset := func(i int) uint64 {
			if i == lockBytes-1 {
				return math.MaxUint64
			}
			return uint64(i)
		}
		for step := range rapid.IntRange(1, 40).Draw(t, "steps") {
			owner := rapid.IntRange(0, lockOwners-1).Draw(t, "owner")
			by := rapid.SampledFrom(names).Draw(t, "by")
			client := uint64(rapid.IntRange(1, 2).Draw(t, "client"))
			from := rapid.IntRange(0, lockBytes-1).Draw(t, "from")
			to := rapid.IntRange(from, lockBytes-1).Draw(t, "to")
			start, end := offset(from), offset(to)
			if from == lockBytes-1 {
				start = lockBytes - 1
			}
			switch rapid.IntRange(0, 11).Draw(t, "step") {
			default:
				l := Lock{
					Ino: ino, Owner: LockOwner{byte(owner)}, Client: client, Start: start, End: end,
					Exclusive: rapid.Bool().Draw(t, "exclusive"),
				}
				conflict := false
				for o := range cells {
					for i := from; i <= to; i++ {
						c := cells[o][i]
						conflict = conflict || o != owner && c.held && (c.exclusive || l.Exclusive)
					}
				}
				if _, has := e.view.Conflict(ino, l.Owner, start, end, l.Exclusive); has != conflict {
					t.Fatalf("Conflict says %v, want %v", has, conflict)
				}
				body, err := e.apply(by, l)
				if conflict {
					r, derr := DecodeLockResult(body)
					if !errors.Is(err, cluster.ELOCKED) || derr != nil || r.Conflict.Owner == l.Owner || !r.Conflict.overlaps(start, end) {
						t.Fatalf("lock: %v, %+v %v, want a conflict", err, r, derr)
					}
					break
				}
				if err != nil {
					t.Fatalf("lock: %v", err)
				}
				for i := from; i <= to; i++ {
					cells[owner][i] = byteLock{true, l.Exclusive, client}
				}
			case 0, 1, 2:
				e.must(by, Unlock{Ino: ino, Owner: LockOwner{byte(owner)}, Start: start, End: end})
				for i := from; i <= to; i++ {
					cells[owner][i] = byteLock{}
				}
			case 3:
				e.releaseClient(client, rapid.SampledFrom([]cluster.Ino{0, ino}).Draw(t, "ino"))
				each(&cells, func(c *byteLock) bool { return c.client == client })
			case 4:
				// The front-end restarts. Locks are their clients', and stay.
				next := by[:1] + string(rune('0'+step%10)) + string(rune('0'+step/10))
				e.open(next, map[string]string{"a": "n1", "b": "n2"}[by[:1]])
				for i := range names {
					if names[i] == by {
						names[i] = next
					}
				}
			}
			var got [lockOwners][lockBytes]byteLock
			e.view.Locks(ino, func(l *LockInfo) bool {
				for i := range lockBytes {
					if l.overlaps(uint64(i), uint64(i)) {
						got[l.Owner[0]][i] = byteLock{true, l.Exclusive, l.Client}
					}
				}
				return true
			})
			if got != cells {
				t.Fatalf("locks\n%v\nwant\n%v", got, cells)
			}
			e.check()
		}
	})
}

func each(cells *[lockOwners][lockBytes]byteLock, gone func(*byteLock) bool) {
	for o := range cells {
		for i := range cells[o] {
			if c := &cells[o][i]; c.held && gone(c) {
				*c = byteLock{}
			}
		}
	}
}

// TestLocksMerge: locks of one kind that touch are one, so that a file that is
// locked record by record has one lock in the end.
func TestLocksMerge(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	ino := e.create("f")
	count := func() (n int) {
		e.view.Locks(ino, func(*LockInfo) bool {
			n++
			return true
		})
		return n
	}
	for i := range uint64(10) {
		e.must("a", Lock{Ino: ino, Client: 1, Start: i * 10, End: i*10 + 9, Exclusive: true, Wire: []byte("w")})
	}
	if count() != 1 {
		t.Errorf("%d locks", count())
	}
	e.must("a", Unlock{Ino: ino, Start: 50, End: 50})
	if count() != 2 {
		t.Errorf("%d locks", count())
	}
	e.must("a", Lock{Ino: ino, Client: 1, Start: 60, End: math.MaxUint64, Exclusive: true, Wire: []byte("w")})
	e.must("a", Unlock{Ino: ino, Start: 0, End: math.MaxUint64})
	if count() != 0 {
		t.Errorf("%d locks", count())
	}
	e.check()
}

func TestLockRefusals(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	ino := e.create("f")
	for _, c := range []struct {
		name string
		by   string
		l    Lock
		want error
	}{
		{"ends before it starts", "a", Lock{Ino: ino, Start: 5, End: 4}, cluster.EINVAL},
		{"no inode", "a", Lock{Ino: 99, End: 4}, cluster.ESTALE},
		{"directory", "a", Lock{Ino: 1, End: 4}, cluster.EISDIR},
		{"long owner", "a", Lock{Ino: ino, Wire: make([]byte, maxWire+1)}, cluster.EINVAL},
	} {
		if _, err := e.apply(c.by, c.l); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	e.check()
}
