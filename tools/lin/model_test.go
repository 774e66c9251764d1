package lin

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const end = 1 << 62

func op(call, ret int64, input, output any) porcupine.Operation {
	return porcupine.Operation{Input: input, Output: output, Call: call, Return: ret}
}

func write(t Token) Block { return Block{Write: true, Token: t} }

func TestModels(t *testing.T) {
	read := Block{}
	create := Name{Op: Create, New: 7}
	yes, no := Found{OK: true}, Found{}
	for _, x := range []struct {
		name  string
		model porcupine.Model
		ops   []porcupine.Operation
		want  bool
	}{
		{"a write is read", Blocks, []porcupine.Operation{op(0, 1, write(1), nil), op(2, 3, read, Token(1))}, true},
		{"a stale read", Blocks, []porcupine.Operation{op(0, 1, write(1), nil), op(2, 3, read, Token(0))}, false},
		{"an early read", Blocks, []porcupine.Operation{op(2, 3, write(1), nil), op(0, 1, read, Token(1))}, false},
		{"reads go back", Blocks, []porcupine.Operation{op(0, 9, write(1), nil), op(1, 2, read, Token(1)), op(3, 4, read, Token(0))}, false},
		{"a lost write", Blocks, []porcupine.Operation{op(0, 1, write(1), nil), op(2, 3, write(2), nil), op(4, 5, read, Token(1))}, false},
		{"a write done twice", Blocks, []porcupine.Operation{op(0, 1, write(1), nil), op(2, 3, write(2), nil), op(4, 5, read, Token(2)), op(6, 7, read, Token(1))}, false},
		{"an unknown write shows late", Blocks, []porcupine.Operation{op(0, end, write(1), Unknown{}), op(2, 3, read, Token(0)), op(4, 5, read, Token(1))}, true},
		{"an unknown write never shows", Blocks, []porcupine.Operation{op(0, end, write(1), Unknown{}), op(2, 3, read, Token(0))}, true},
		{"an unknown write shows and goes", Blocks, []porcupine.Operation{op(0, end, write(1), Unknown{}), op(2, 3, read, Token(1)), op(4, 5, read, Token(0))}, false},
		{"another block", Blocks, []porcupine.Operation{op(0, 1, write(1), nil), op(2, 3, Block{Block: 1}, Token(0))}, true},

		{"two guarded creates succeed", Directories, []porcupine.Operation{op(0, 5, create, yes), op(1, 6, Name{Op: Create, New: 8}, yes)}, false},
		{"one of two succeeds", Directories, []porcupine.Operation{op(0, 5, create, yes), op(1, 6, Name{Op: Create, New: 8}, no)}, true},
		{"a name that was removed is found", Directories, []porcupine.Operation{op(0, 1, create, yes), op(2, 3, Name{Op: Remove}, yes), op(4, 5, Name{Op: Lookup}, Found{true, 7})}, false},
		{"removed twice", Directories, []porcupine.Operation{op(0, 1, create, yes), op(2, 9, Name{Op: Remove}, yes), op(2, 9, Name{Op: Remove}, yes)}, false},
		{"both names of a rename", Directories, []porcupine.Operation{
			op(0, 1, create, yes), op(2, 9, Name{Op: Rename, To: 1}, yes),
			op(3, 4, Name{Op: Lookup, Name: 1}, Found{true, 7}), op(5, 6, Name{Op: Lookup}, Found{true, 7}),
		}, false},
		{"neither name of a rename", Directories, []porcupine.Operation{
			op(0, 1, create, yes), op(2, 9, Name{Op: Rename, To: 1}, yes),
			op(3, 4, Name{Op: Lookup}, no), op(5, 6, Name{Op: Lookup, Name: 1}, no),
		}, false},
		{"an unknown rename", Directories, []porcupine.Operation{
			op(0, 1, create, yes), op(2, end, Name{Op: Rename, To: 1}, Unknown{}),
			op(3, 4, Name{Op: Lookup}, Found{true, 7}), op(5, 6, Name{Op: Lookup}, no), op(7, 8, Name{Op: Lookup, Name: 1}, Found{true, 7}),
		}, true},
		{"an unknown create once", Directories, []porcupine.Operation{
			op(0, end, create, Unknown{}), op(1, 2, Name{Op: Remove}, yes), op(3, 4, Name{Op: Lookup}, Found{true, 7}),
		}, false},
	} {
		if got := porcupine.CheckOperations(x.model, x.ops); got != x.want {
			t.Errorf("%s: %v, want %v", x.name, got, x.want)
		}
	}
}

// A lagging is a replicated register: writes go to the leader, reads to a
// follower that has applied what it has by now.
type lagging struct {
	mu              sync.Mutex
	log             []Token
	applied         int
	value           Token
	appliedSomewhat sync.Cond
}

func (l *lagging) write(t Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log = append(l.log, t)
}

// follow applies the log until stop is closed.
func (l *lagging) follow(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rand.Int64N(int64(300 * time.Microsecond)))):
		}
		l.mu.Lock()
		if l.applied < len(l.log) {
			l.value = l.log[l.applied]
			l.applied++
		}
		l.appliedSomewhat.Broadcast()
		l.mu.Unlock()
	}
}

// read reads the follower's state, at a read index if it asks for one.
func (l *lagging) read(readIndex bool) Token {
	l.mu.Lock()
	defer l.mu.Unlock()
	for index := len(l.log); readIndex && l.applied < index; {
		l.appliedSomewhat.Wait()
	}
	return l.value
}

// TestBrokenRule: a follower that skips the read index is found out, and one
// that does not is not.
func TestBrokenRule(t *testing.T) {
	for _, readIndex := range []bool{true, false} {
		l := &lagging{}
		l.appliedSomewhat.L = &l.mu
		stop := make(chan struct{})
		var follower, clients sync.WaitGroup
		follower.Go(func() { l.follow(stop) })
		r := NewRecorder()
		for c := range 4 {
			clients.Go(func() {
				for i := range 50 {
					call := r.Now()
					if c < 2 {
						token := Token(c*1000 + i + 1)
						l.write(token)
						r.Done(c, call, write(token), nil)
						time.Sleep(time.Millisecond)
						continue
					}
					r.Done(c, call, Block{}, l.read(readIndex))
				}
			})
		}
		clients.Wait()
		close(stop)
		follower.Wait()
		if got := porcupine.CheckOperations(Blocks, r.History()); got != readIndex {
			t.Errorf("read index %v: linearizable %v", readIndex, got)
		}
	}
}

// TestModelsOfState tells apart what can and what can't be of trees, share
// reservations and locks: among the latter is what would come of each rule of
// exactly-once and of the taking over of state if it were broken.
func TestModelsOfState(t *testing.T) {
	create := func(call, ret int64, name int, f Token) porcupine.Operation {
		return op(call, ret, Step{Op: Create, At: Spot{0, name}}, Found{f != 0, f})
	}
	look := func(call, ret int64, dir, name int, f Token) porcupine.Operation {
		return op(call, ret, Step{Op: Lookup, At: Spot{dir, name}}, Found{f != 0, f})
	}
	move := func(call, ret int64, from, to Spot, ok bool) porcupine.Operation {
		return op(call, ret, Step{Op: Rename, At: from, To: to}, Found{OK: ok})
	}
	remove := func(call, ret int64, name int, ok bool) porcupine.Operation {
		return op(call, ret, Step{Op: Remove, At: Spot{0, name}}, Found{OK: ok})
	}
	link := func(call, ret int64, f Token, name int, output any) porcupine.Operation {
		return op(call, ret, Step{Op: Link, File: f, To: Spot{0, name}}, output)
	}
	yes, no := Found{OK: true}, Found{}
	share := func(call, ret int64, how string, owner int, access, deny uint8, ok bool) porcupine.Operation {
		return op(call, ret, Share{Op: how, Owner: owner, Access: access, Deny: deny}, ok)
	}
	lock := func(call, ret int64, how string, owner int, write bool, from, to int, ok bool) porcupine.Operation {
		return op(call, ret, Range{Op: how, Owner: owner, Write: write, From: from, To: to}, ok)
	}
	for _, x := range []struct {
		name  string
		model porcupine.Model
		ops   []porcupine.Operation
		want  bool
	}{
		{"a name is moved to another directory", Trees, []porcupine.Operation{create(0, 1, 0, 7), move(2, 3, Spot{0, 0}, Spot{1, 2}, true), look(4, 5, 1, 2, 7), look(6, 7, 0, 0, 0)}, true},
		{"a create that was executed again says that the name is there", Trees, []porcupine.Operation{create(0, 1, 0, 0), look(2, 3, 0, 0, 7)}, false},
		{"a remove that was executed again says that there is nothing", Trees, []porcupine.Operation{create(0, 1, 0, 7), remove(2, 3, 0, false), look(4, 5, 0, 0, 0)}, false},
		{"a rename that was executed again takes the next file away", Trees, []porcupine.Operation{
			create(0, 1, 0, 7), move(2, 9, Spot{0, 0}, Spot{0, 1}, true), look(3, 4, 0, 1, 7), create(5, 6, 0, 8), look(10, 11, 0, 0, 0), look(12, 13, 0, 1, 8),
		}, false},
		{"a create whose effect was lost", Trees, []porcupine.Operation{create(0, 1, 0, 7), look(2, 3, 0, 0, 0)}, false},
		{"two names of a file stay when one is moved to the other", Trees, []porcupine.Operation{create(0, 1, 0, 7), link(2, 3, 7, 1, yes), move(4, 5, Spot{0, 0}, Spot{0, 1}, true), look(6, 7, 0, 0, 7)}, true},
		{"and do not go", Trees, []porcupine.Operation{create(0, 1, 0, 7), link(2, 3, 7, 1, yes), move(4, 5, Spot{0, 0}, Spot{0, 1}, true), look(6, 7, 0, 0, 0)}, false},
		{"a file without a name gets none", Trees, []porcupine.Operation{create(0, 1, 0, 7), remove(2, 3, 0, true), link(4, 5, 7, 1, Gone{})}, true},
		{"but it must be without", Trees, []porcupine.Operation{create(0, 1, 0, 7), link(4, 5, 7, 1, Gone{})}, false},
		{"nor does one come back", Trees, []porcupine.Operation{create(0, 1, 0, 7), remove(2, 3, 0, true), link(4, 5, 7, 1, yes)}, false},
		{"a link that was executed again", Trees, []porcupine.Operation{create(0, 1, 0, 7), link(2, 3, 7, 1, no)}, false},
		{"a file is made twice", Trees, []porcupine.Operation{create(0, 1, 0, 7), create(2, 3, 1, 7)}, false},

		{"who denies writing keeps a writer out", Shares, []porcupine.Operation{share(0, 1, Open, 0, Read, Write, true), share(2, 3, Open, 1, Write, 0, false)}, true},
		{"a deny mode that was lost with its front-end", Shares, []porcupine.Operation{share(0, 1, Open, 0, Read, Write, true), share(2, 3, Open, 1, Write, 0, true)}, false},
		{"a deny mode that outlives its open", Shares, []porcupine.Operation{share(0, 1, Open, 0, Read, Write, true), share(2, 3, Close, 0, 0, 0, true), share(4, 5, Open, 1, Write, 0, false)}, false},
		{"a downgrade lets others in", Shares, []porcupine.Operation{
			share(0, 1, Open, 0, Write, 0, true), share(2, 3, Open, 0, Read, Read, true), share(4, 5, Peek, 1, Read, 0, false),
			share(6, 7, Downgrade, 0, Write, 0, true), share(8, 9, Peek, 1, Read, 0, true),
		}, true},
		{"an upgrade that was executed again meets itself", Shares, []porcupine.Operation{share(0, 1, Open, 0, Read, Read, false), share(2, 3, Peek, 1, Read, 0, false)}, false},
		{"an upgrade meets what its owner denies", Shares, []porcupine.Operation{share(0, 1, Open, 0, Write, Read, true), share(2, 3, Open, 0, Read, 0, false)}, true},

		{"but maybe not if it has all of it", Shares, []porcupine.Operation{share(0, 1, Open, 0, Read, Read, true), share(2, 3, Open, 0, Read, Read, true), share(4, 5, Open, 0, Read, Read, false)}, true},
		{"and not against others", Shares, []porcupine.Operation{share(0, 1, Open, 0, Read, Read, true), share(2, 3, Open, 1, Read, Read, true)}, false},
		{"nor for more", Shares, []porcupine.Operation{share(0, 1, Open, 0, Read, Read, true), share(2, 3, Open, 0, Read|Write, Read, true)}, false},

		{"an open that is refused has kept another out meanwhile", Shares, Excused([]porcupine.Operation{
			share(0, 9, Open, 0, Read, Write, false), share(1, 2, Open, 1, Write, 0, false), share(3, 4, Open, 2, Write, Read, true),
		}), true},
		{"but not before", Shares, Excused([]porcupine.Operation{
			share(3, 9, Open, 0, Read, Write, false), share(1, 2, Open, 1, Write, 0, false), share(3, 4, Open, 2, Write, Read, true),
		}), false},
		{"two at a time may keep each other out", Shares, Excused([]porcupine.Operation{share(0, 9, Open, 0, Read, Write, false), share(1, 2, Open, 1, Write, 0, false)}), true},
		{"a closed open lingers", Shares, []porcupine.Operation{share(0, 1, Open, 0, Write, 0, true), share(2, 3, Close, 0, 0, 0, true), share(4, 5, Open, 1, Read, Write, false)}, true},
		{"none is refused for itself", Shares, Excused([]porcupine.Operation{share(0, 9, Open, 0, Read|Write, 0, false), share(10, 11, Open, 1, Write, 0, true)}), false},

		{"two readers", Locks, []porcupine.Operation{lock(0, 1, Lock, 0, false, 0, 4, true), lock(2, 3, Lock, 1, false, 1, 2, true)}, true},
		{"a lock that two hold", Locks, []porcupine.Operation{lock(0, 1, Lock, 0, true, 0, 2, true), lock(2, 3, Lock, 1, true, 1, 3, true)}, false},
		{"side by side", Locks, []porcupine.Operation{lock(0, 1, Lock, 0, true, 0, 2, true), lock(2, 3, Lock, 1, true, 2, 3, true)}, true},
		{"an unlock splits", Locks, []porcupine.Operation{
			lock(0, 1, Lock, 0, true, 0, 4, true), lock(2, 3, Unlock, 0, false, 1, 2, true), lock(4, 5, Lock, 1, true, 1, 2, true), lock(6, 7, Test, 1, false, 2, 3, false),
		}, true},
		{"an unlock that was executed again takes the next lock away", Locks, []porcupine.Operation{
			lock(0, 1, Lock, 0, true, 0, 1, true), lock(2, 3, Unlock, 0, false, 0, 1, true), lock(4, 5, Lock, 0, true, 0, 1, true), lock(6, 7, Lock, 1, true, 0, 1, true),
		}, false},
		{"a reader's own lock becomes a writer's", Locks, []porcupine.Operation{lock(0, 1, Lock, 0, false, 0, 1, true), lock(2, 3, Lock, 0, true, 0, 1, true), lock(4, 5, Test, 1, false, 0, 1, false)}, true},
		{"a test that locks", Locks, []porcupine.Operation{lock(0, 1, Test, 0, true, 0, 1, true), lock(2, 3, Lock, 1, true, 0, 1, false)}, false},
		{"a lock that nobody released", Locks, []porcupine.Operation{lock(0, 1, Lock, 0, true, 0, 1, true), lock(2, 3, Test, 1, true, 0, 1, true)}, false},
	} {
		if got := porcupine.CheckOperations(x.model, x.ops); got != x.want {
			t.Errorf("%s: %v, want %v", x.name, got, x.want)
		}
	}
}
