package group

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// A walMeta is the wal's table of segments, which mends what the library
// (v0.4.0) leaves undone when the end of the log is cut off, as another leader
// does: it calls the segment sealed and writes no index of its entries, so that
// after the next start none of them can be read. Here the index is written
// before the table says that the segment is sealed.
type walMeta struct {
	metadb.BoltMetaDB
	dir     string
	indexed map[uint64]uint64 // where the indexes written here begin, by segment
}

// Load implements types.MetaStore. Segments that were left without an index by
// a program that did not write it are given one.
func (m *walMeta) Load(dir string) (types.PersistentState, error) {
	m.dir, m.indexed = dir, map[uint64]uint64{}
	state, err := m.BoltMetaDB.Load(dir)
	if err != nil {
		return state, err
	}
	return m.index(state)
}

// CommitState implements types.MetaStore.
func (m *walMeta) CommitState(state types.PersistentState) error {
	state, err := m.index(state)
	if err != nil {
		return err
	}
	return m.BoltMetaDB.CommitState(state)
}

// index returns the state with an index for each sealed segment.
func (m *walMeta) index(state types.PersistentState) (types.PersistentState, error) {
	segments := make([]types.SegmentInfo, len(state.Segments))
	copy(segments, state.Segments)
	for i := range segments {
		s := &segments[i]
		if s.SealTime.IsZero() || s.IndexStart != 0 || s.MaxIndex < s.BaseIndex {
			continue
		}
		start, ok := m.indexed[s.ID]
		if !ok {
			var err error
			if start, err = writeIndex(filepath.Join(m.dir, segment.FileName(*s)), s.MaxIndex-s.BaseIndex+1); err != nil {
				return state, fmt.Errorf("the index of log segment %s: %w", segment.FileName(*s), err)
			}
			m.indexed[s.ID] = start
		}
		s.IndexStart = start
	}
	state.Segments = segments
	return state, nil
}

// The layout of a segment file (raft-wal's segment/format.go): a header, then
// frames of a header and a payload padded to 8 bytes.
const (
	walFileHeader  = 32
	walFrameHeader = 8
)

// writeIndex appends to a segment file the offsets of its first n entries, and
// returns where they begin.
func writeIndex(file string, n uint64) (start uint64, err error) {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	index, err := entryOffsets(f, n)
	if err != nil {
		return 0, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	// Behind a frame header of zeros, which ends the log for a recovery that
	// finds the segment not yet sealed.
	size = (size+walFrameHeader-1)&^(walFrameHeader-1) + walFrameHeader
	if _, err := f.WriteAt(index, size); err != nil {
		return 0, err
	}
	return uint64(size), f.Sync()
}

// entryOffsets returns the offsets of the first n entries' frames, as an index
// has them.
func entryOffsets(f io.ReaderAt, n uint64) ([]byte, error) {
	r := bufio.NewReaderSize(io.NewSectionReader(f, walFileHeader, 1<<62), 1<<20)
	var index []byte
	for at := int64(walFileHeader); uint64(len(index)) < 4*n; {
		var h [walFrameHeader]byte
		if _, err := io.ReadFull(r, h[:]); err != nil {
			return nil, fmt.Errorf("entry %d of %d is missing: %w", len(index)/4, n, err)
		}
		payload := 0
		switch h[0] {
		case segment.FrameEntry:
			index = binary.LittleEndian.AppendUint32(index, uint32(at))
			fallthrough
		case segment.FrameIndex:
			payload = int(binary.LittleEndian.Uint32(h[4:]))
			payload = (payload + walFrameHeader - 1) &^ (walFrameHeader - 1)
		case segment.FrameCommit: // a checksum instead of a length
		default:
			return nil, fmt.Errorf("entry %d of %d is missing", len(index)/4, n)
		}
		if _, err := r.Discard(payload); err != nil {
			return nil, fmt.Errorf("entry %d of %d is cut off: %w", len(index)/4, n, err)
		}
		at += int64(walFrameHeader + payload)
	}
	return index, nil
}
