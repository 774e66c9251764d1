package scrub

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/checksum"
)

const (
	// MaxProblems bounds the problems that are remembered of a store. More are
	// counted, and found again by the next pass.
	MaxProblems = 1000
	fileName    = "scrub"
	fileVersion = 1
)

// A State is how far the scrub of a store is. It outlives the node's process.
type State struct {
	Began  time.Time       `json:"began"`           // of the pass; zero: there was none yet
	Ended  time.Time       `json:"ended,omitzero"`  // zero: the pass goes on
	After  cluster.BlobKey `json:"after"`           // everything up to here is verified
	Counts Counts          `json:"counts"`          // of the pass
	Last   time.Time       `json:"last,omitzero"`   // when the last whole pass ended
	Before Counts          `json:"before,omitzero"` // of the last whole pass
	// Problems are copies that could not be made whole, by key.
	Problems []Problem `json:"problems,omitempty"`
	// Lost is how many more there were than are remembered.
	Lost uint64 `json:"lost,omitempty"`
}

// due reports whether a pass is to begin now.
func (s *State) due(now time.Time, every time.Duration) bool {
	return s.Began.IsZero() || !s.Ended.IsZero() && now.Sub(s.Began) >= every || s.Began.After(now)
}

// running reports whether a pass is under way.
func (s *State) running() bool { return !s.Began.IsZero() && s.Ended.IsZero() }

func (s *State) begin(now time.Time) {
	s.Began, s.Ended, s.After, s.Counts, s.Lost = now, time.Time{}, cluster.BlobKey{}, Counts{}, 0
}

// step takes over what came of a step of the pass.
func (s *State) step(r *Result, now time.Time) {
	s.Counts.Add(r.Counts)
	s.note(r)
	s.After = r.After
	if r.Done {
		s.Ended, s.Last, s.Before, s.After = now, now, s.Counts, cluster.BlobKey{}
	}
}

// note remembers the problems of a result, and forgets those that are none now.
func (s *State) note(r *Result) (changed bool) {
	for _, k := range r.Well {
		if i, there := s.find(k); there {
			s.Problems = slices.Delete(s.Problems, i, i+1)
			changed = true
		}
	}
	for _, p := range r.Problems {
		i, there := s.find(p.Key)
		switch {
		case there:
			changed = changed || s.Problems[i] != p
			s.Problems[i] = p
		case len(s.Problems) < MaxProblems:
			s.Problems = slices.Insert(s.Problems, i, p)
			changed = true
		default:
			s.Lost++
			changed = true
		}
	}
	return changed
}

func (s *State) find(k cluster.BlobKey) (int, bool) {
	return slices.BinarySearchFunc(s.Problems, k, func(p Problem, k cluster.BlobKey) int { return Compare(p.Key, k) })
}

// file is what is in the file: the state with a checksum.
type file struct {
	Version int             `json:"version"`
	CRC     uint32          `json:"crc32c"` // of State
	State   json.RawMessage `json:"state"`
}

// load reads a store's state. One that is not there is that of a store which was
// never scrubbed.
func load(fs vfs.FS, dir string) (s State, err error) {
	f, err := fs.Open(fs.PathJoin(dir, fileName))
	if oserror.IsNotExist(err) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	b, err := io.ReadAll(io.LimitReader(f, 4<<20))
	if err = errors.Join(err, f.Close()); err != nil {
		return s, err
	}
	var in file
	if err := json.Unmarshal(b, &in); err != nil {
		return State{}, fmt.Errorf("the scrub's position is damaged: %w", err)
	}
	if in.Version != fileVersion {
		return State{}, fmt.Errorf("the scrub's position has format %d, this program knows %d", in.Version, fileVersion)
	}
	if checksum.Sum(in.State) != in.CRC {
		return State{}, errors.New("the scrub's position is damaged")
	}
	return s, json.Unmarshal(in.State, &s)
}

// save replaces a store's state, durably.
func save(fs vfs.FS, dir string, s *State) error {
	state, err := json.Marshal(s)
	if err != nil {
		return err
	}
	b, err := json.Marshal(file{fileVersion, checksum.Sum(state), state})
	if err != nil {
		return err
	}
	tmp := fs.PathJoin(dir, fileName+".new")
	f, err := fs.Create(tmp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fs.Rename(tmp, fs.PathJoin(dir, fileName)); err != nil {
		return err
	}
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
