package nfs4

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
)

// Limits of copies that go on after their answer. What is beyond is copied before it.
const (
	maxJobs       = 256 // of all clients
	maxClientJobs = 16  // of one
	copyWorkers   = 4   // under way
)

// kindCopy is the kind of the stateids of copies (RFC 7862 §4.8).
const kindCopy state.Kind = 4

// A copyJob is a COPY that goes on after its answer.
type copyJob struct {
	id       vfs.StateID // of its stateid
	client   uint64
	src, dst vfs.File
	srcOff   uint64
	dstOff   uint64
	n        uint64
	uid, gid uint32 // who copies

	done   atomic.Uint64 // bytes
	cancel context.CancelFunc
	ctx    context.Context
	idle   chan struct{} // closed when nothing is done for it any more

	mu       sync.Mutex
	ended    bool // and recorded so
	status   proto.Status
	verifier vfs.Verifier
}

// jobFormat is the version of what is recorded of a job.
const jobFormat = 1

// record returns the job as it is recorded with its destination, so that whoever
// serves the client next goes on with it: a client that waits for CB_OFFLOAD waits
// for ever otherwise.
func (j *copyJob) record() vfs.State {
	var e xdr.Encoder
	e.Uint32(jobFormat)
	e.Uint32(uint32(j.src.Volume))
	e.Uint64(uint64(j.src.Ino))
	e.Uint32(j.src.Gen)
	e.Uint64(j.srcOff)
	e.Uint64(j.dstOff)
	e.Uint64(j.n)
	e.Uint32(j.uid)
	e.Uint32(j.gid)
	e.Bool(j.ended)
	e.Uint32(uint32(j.status))
	e.Uint64(j.done.Load())
	e.Uint64(uint64(j.verifier))
	return vfs.State{Other: j.id, Kind: vfs.StateCopy, Client: j.client, Owner: e.Bytes()}
}

// recordedJob makes a job of its record, with the file that has it.
func recordedJob(dst vfs.File, s *vfs.State) (*copyJob, bool) {
	d := xdr.NewDecoder(s.Owner)
	if s.Kind != vfs.StateCopy || d.Uint32() != jobFormat {
		return nil, false
	}
	j := &copyJob{id: s.Other, client: s.Client, dst: dst}
	j.src = vfs.File{Volume: vfs.VolumeID(d.Uint32()), Ino: vfs.Ino(d.Uint64()), Gen: d.Uint32()}
	j.srcOff, j.dstOff, j.n = d.Uint64(), d.Uint64(), d.Uint64()
	j.uid, j.gid = d.Uint32(), d.Uint32()
	j.ended, j.status = d.Bool(), proto.Status(d.Uint32())
	if done := d.Uint64(); j.ended {
		j.done.Store(done) // one under way begins anew: how far it had come, nobody knows
	}
	j.verifier = vfs.Verifier(d.Uint64())
	return j, d.Err() == nil
}

// end says how the job has ended.
func (j *copyJob) end(st proto.Status, v vfs.Verifier) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ended, j.status, j.verifier = true, st, v
}

// result returns how the job has ended, if it has.
func (j *copyJob) result() (ended bool, st proto.Status, v vfs.Verifier) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ended, j.status, j.verifier
}

// copies are the copies that go on after their answer.
type copies struct {
	mu      sync.Mutex
	ctx     context.Context // of Run; nil: nothing goes on after its answer
	jobs    map[vfs.StateID]*copyJob
	clients map[uint64]int
	room    chan struct{} // has one for each that may be under way
	wg      sync.WaitGroup
}

func (l *copies) init() {
	l.jobs = make(map[vfs.StateID]*copyJob)
	l.clients = make(map[uint64]int)
	l.room = make(chan struct{}, copyWorkers)
}

// open has jobs accepted until ctx ends; close waits for what is under way.
func (l *copies) open(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ctx = ctx
}

func (l *copies) close() {
	l.mu.Lock()
	l.ctx = nil
	l.mu.Unlock()
	l.wg.Wait()
}

// reserve makes room for a job, which is started then, or removed. It reports false if
// there are too many, or if it is there already. recorded: it was taken on by another
// front-end, so that it is too late to refuse it.
func (l *copies) reserve(j *copyJob, recorded bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ctx == nil || l.ctx.Err() != nil || l.jobs[j.id] != nil:
		return false
	case !recorded && (len(l.jobs) >= maxJobs || l.clients[j.client] >= maxClientJobs):
		return false
	}
	j.ctx, j.cancel = context.WithCancel(l.ctx)
	j.idle = make(chan struct{})
	l.jobs[j.id] = j
	l.clients[j.client]++
	return true
}

// start has run called in a goroutine for a job that was reserved. It reports false if
// nothing is started any more.
func (l *copies) start(j *copyJob, run func(*copyJob)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		close(j.idle)
		return false
	}
	l.wg.Go(func() {
		defer close(j.idle)
		defer j.cancel()
		run(j)
	})
	return true
}

// remove forgets a job.
func (l *copies) remove(j *copyJob) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.jobs[j.id] != j {
		return
	}
	j.cancel()
	delete(l.jobs, j.id)
	if l.clients[j.client]--; l.clients[j.client] == 0 {
		delete(l.clients, j.client)
	}
}

// has reports whether a job is there.
func (l *copies) has(id vfs.StateID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.jobs[id] != nil
}

// find returns the job that a client's stateid names, with its destination. A seqid
// of 0 names none (RFC 7862 §4.8).
func (l *copies) find(client uint64, sid state.Stateid, dst vfs.File) *copyJob {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := l.jobs[sid.Other]
	if j == nil || sid.Seq != copySeq || j.client != client || j.dst != dst {
		return nil
	}
	return j
}

// copySeq is the seqid of the stateids of copies.
const copySeq = 1
