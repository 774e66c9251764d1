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
