package bench

import (
	"context"
	"sync/atomic"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
)

// A workload is one kind of work. Its operations are numbered for each job, and
// the number alone decides what an operation does.
type workload struct {
	name string
	op   string // what one operation is, and so what a latency is of
	data bool   // it reads or writes large files: several operations are under way for each job
	read bool   // it finds what is in the server's caches, or not

	// prepare has the server be in the state that a run needs. It isn't measured.
	prepare func(ctx context.Context, t *target) error
	// amount is how many operations a job has; nil: as many as there is time for.
	amount func(cfg *Config) int
	// do does operation i of a job.
	do func(ctx context.Context, w *worker, i int) error
	// finish ends a job within what is measured; it may be nil.
	finish func(ctx context.Context, j *job) error
	// complete does what a run's time was too short for. It isn't measured, and may be nil.
	complete func(ctx context.Context, t *target, jobs []*job) error
}

// workloads are all workloads, in the order in which one finds what another made.
var workloads = []*workload{
	seqWrite, seqRead, randRead, randWrite,
	create, stat, getattr, readdir, unlink,
	smallWrite, smallRead, traverse,
}

// Workloads returns the names of all workloads, in the order in which they are measured.
func Workloads() []string {
	var names []string
	for _, w := range workloads {
		names = append(names, w.name)
	}
	return names
}

// A job is one of the workers of a run, as a thread of an application is.
type job struct {
	t    *target
	id   int
	next atomic.Int64 // number of the next operation
	file *client.File // its large file
	walk walk         // where it is in a directory

	// How the server acknowledged WRITEs.
	unstable, stable atomic.Int64
	verifier         atomic.Uint64 // of the first one
	changed          atomic.Bool   // another was seen: the server has restarted
}

// A worker is one of the operations that a job has under way.
type worker struct {
	*job
	verify  bool // compare what is read with what was written
	hist    Histogram
	bytes   int64
	entries int64
	buf     []byte
}

// count is an amount of files for each job.
func (j *job) count() int { return perJob(j.t.cfg) }

func perJob(cfg *Config) int { return cfg.Files / cfg.Jobs }

// wrote notes how a WRITE was acknowledged.
func (j *job) wrote(w client.Written) {
	if w.Committed == proto.Unstable {
		j.unstable.Add(1)
	} else {
		j.stable.Add(1)
	}
	if !j.verifier.CompareAndSwap(0, w.Verifier) && j.verifier.Load() != w.Verifier {
		j.changed.Store(true)
	}
}
