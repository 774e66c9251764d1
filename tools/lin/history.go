package lin

import (
	"math"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// A Recorder records the operations of concurrent clients.
type Recorder struct {
	start time.Time

	mu  sync.Mutex
	ops []porcupine.Operation
}

// NewRecorder returns an empty Recorder.
func NewRecorder() *Recorder { return &Recorder{start: time.Now()} }

// Now returns the time for a call.
func (r *Recorder) Now() int64 { return int64(time.Since(r.start)) }

// Done records an operation that was called at call and has just returned output.
func (r *Recorder) Done(client int, call int64, input, output any) {
	r.add(porcupine.Operation{ClientId: client, Input: input, Output: output, Call: call, Return: r.Now()})
}

// Unknown records an operation that may take effect at any time from call on.
func (r *Recorder) Unknown(client int, call int64, input any) {
	r.add(porcupine.Operation{ClientId: client, Input: input, Output: Unknown{}, Call: call, Return: math.MaxInt64})
}

func (r *Recorder) add(op porcupine.Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, op)
}

// History returns what was recorded.
func (r *Recorder) History() []porcupine.Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]porcupine.Operation(nil), r.ops...)
}

// With returns a Recorder of what more makes of r's history.
func (r *Recorder) With(more func([]porcupine.Operation) []porcupine.Operation) *Recorder {
	return &Recorder{start: r.start, ops: more(r.History())}
}

// Unknown is the output of an operation that was not answered.
type Unknown struct{}
