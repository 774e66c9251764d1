package group

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

var (
	errPower = errors.New("the power is off")
	errDisk  = errors.New("the disk fails")
)

// A lossyDisk is a disk with a Raft log, in memory. What is being written when
// the power fails is lost.
type lossyDisk struct {
	delay time.Duration // a write takes up to so long

	mu      sync.Mutex
	changed sync.Cond
	boots   int
	stalled bool // writes wait
	fails   bool // writes of entries return errors
	first   uint64
	logs    []*raft.Log
	stable  map[string][]byte
}

func newLossyDisk() *lossyDisk {
	d := &lossyDisk{stable: make(map[string][]byte)}
	d.changed.L = &d.mu
	return d
}

// set changes whether writes wait, or fail.
func (d *lossyDisk) set(stalled, fails bool) {
	d.mu.Lock()
	d.stalled, d.fails = stalled, fails
	d.changed.Broadcast()
	d.mu.Unlock()
}

// powerOff makes what was opened useless.
func (d *lossyDisk) powerOff() {
	d.mu.Lock()
	d.boots++
	d.changed.Broadcast()
	d.mu.Unlock()
}

// last returns the last index on the disk.
func (d *lossyDisk) last() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lastLocked()
}

func (d *lossyDisk) lastLocked() uint64 {
	if len(d.logs) == 0 {
		return 0
	}
	return d.first + uint64(len(d.logs)) - 1
}

// open opens the log.
func (d *lossyDisk) open() (diskLog, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &lossyLog{d, d.boots}, nil
}

// A lossyLog is a lossyDisk's log until the next power failure.
type lossyLog struct {
	*lossyDisk
	boot int
}

func (l *lossyLog) FirstIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.logs) == 0 {
		return 0, nil
	}
	return l.first, nil
}

func (l *lossyLog) LastIndex() (uint64, error) { return l.last(), nil }

func (l *lossyLog) GetLog(index uint64, log *raft.Log) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.logs) == 0 || index < l.first || index > l.lastLocked() {
		return raft.ErrLogNotFound
	}
	*log = *l.logs[index-l.first]
	return nil
}

func (l *lossyLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

func (l *lossyLog) StoreLogs(logs []*raft.Log) error {
	if l.delay > 0 {
		time.Sleep(rand.N(l.delay))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.stalled && l.boot == l.boots {
		l.changed.Wait()
	}
	switch {
	case l.boot != l.boots:
		return errPower
	case l.fails:
		return errDisk
	}
	for _, log := range logs {
		if len(l.logs) == 0 {
			l.first = log.Index
		}
		if want := l.first + uint64(len(l.logs)); log.Index != want {
			return errors.New("bug: entries with a gap")
		}
		c := *log
		l.logs = append(l.logs, &c)
	}
	return nil
}

func (l *lossyLog) DeleteRange(low, high uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.boot != l.boots {
		return errPower
	}
	for n := high - low + 1; n > 0 && len(l.logs) > 0; n-- {
		if low <= l.first {
			l.logs, l.first = l.logs[1:], l.first+1
		} else {
			l.logs = l.logs[:len(l.logs)-1]
		}
	}
	return nil
}

// Set stores a value, at once: Raft's library panics when it cannot.
func (l *lossyLog) Set(key, value []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.boot == l.boots {
		l.stable[string(key)] = append([]byte(nil), value...)
	}
	return nil
}

func (l *lossyLog) Get(key []byte) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, ok := l.stable[string(key)]
	if !ok {
		return nil, errors.New("not found")
	}
	return v, nil
}

func (l *lossyLog) SetUint64(key []byte, value uint64) error {
	return l.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

func (l *lossyLog) GetUint64(key []byte) (uint64, error) {
	v, err := l.Get(key)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(v), nil
}

func (l *lossyLog) Close() error { return nil }
