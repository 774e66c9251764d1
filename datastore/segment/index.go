package segment

import (
	"encoding/binary"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
)

// The index's keys, big-endian:
//
//	b group blob shard   a blob: where it is and what it is
//	h segment place      a blob record that is dead: its length in Align, to be punched
//	t segment place      a tombstone whose holes are not punched yet: its length in Align
//	s segment            a segment that is full: where its records end, in Align
//	p                    the place in the log that the index goes up to
const (
	keyBlob     = 'b'
	keyHole     = 'h'
	keyTomb     = 't'
	keySealed   = 's'
	keyPosition = 'p'
)

// A position is a place in the log: everything before it is in the index.
type position struct {
	seg uint32
	off int64
	seq uint64 // that the next record has at least
}

// A location is where a blob's record is.
type location struct {
	seg uint32
	off int64
	seq uint64
}

type index struct {
	db    *pebble.DB
	cache *pebble.Cache
}

// openIndex opens the index, or starts a new one where it cannot be read.
func openIndex(fs vfs.FS, dir string, cacheBytes int64, log *slog.Logger, background func(error)) (*index, error) {
	cache := pebble.NewCache(cacheBytes)
	open := func() (*pebble.DB, error) {
		o := &pebble.Options{
			FS:                          fs,
			Cache:                       cache,
			DisableWAL:                  true,
			FormatMajorVersion:          pebble.FormatNewest,
			MemTableSize:                16 << 20,
			MemTableStopWritesThreshold: 4,
			MaxOpenFiles:                256,
			Logger:                      pebbleLog{log},
			EventListener: &pebble.EventListener{
				BackgroundError: background,
			},
		}
		for i := range o.Levels {
			// Each put asks for a blob that is not there.
			o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		}
		return pebble.Open(dir, o)
	}
	db, err := open()
	if err != nil {
		log.Warn("the index cannot be read and is made anew from the segments", "dir", dir, "err", err)
		if err = fs.RemoveAll(dir); err == nil {
			// An index that comes back after a crash would be of another time.
			err = syncDir(fs, fs.PathDir(dir))
		}
		if err == nil {
			db, err = open()
		}
	}
	if err != nil {
		cache.Unref()
		return nil, fmt.Errorf("segment: opening the index %s: %w", dir, err)
	}
	return &index{db, cache}, nil
}

func (x *index) close() error {
	err := x.db.Close()
	x.cache.Unref()
	return err
}

// pebbleLog passes on what matters. A Fatalf of Pebble means that it cannot go
// on; it must not return.
type pebbleLog struct{ log *slog.Logger }

func (l pebbleLog) Infof(string, ...any) {}
func (l pebbleLog) Errorf(f string, args ...any) {
	l.log.Error("index", "err", fmt.Sprintf(f, args...))
}

func (l pebbleLog) Fatalf(f string, args ...any) {
	l.log.Error("index", "err", fmt.Sprintf(f, args...))
	panic(fmt.Sprintf("segment: index: "+f, args...))
}

func blobKey(k cluster.BlobKey) (b [14]byte) {
	b[0] = keyBlob
	binary.BigEndian.PutUint32(b[1:], uint32(k.Group))
	binary.BigEndian.PutUint64(b[5:], uint64(k.Blob))
	b[13] = k.Shard
	return b
}

func parseBlobKey(b []byte) cluster.BlobKey {
	return cluster.BlobKey{
		Group: cluster.GroupID(binary.BigEndian.Uint32(b[1:])),
		Blob:  cluster.BlobID(binary.BigEndian.Uint64(b[5:])),
		Shard: b[13],
	}
}

const blobValueLen = 32

func blobValue(r *record) (b [blobValueLen]byte) {
	be := binary.BigEndian
	be.PutUint32(b[0:], r.seg)
	be.PutUint32(b[4:], uint32(r.off/Align))
	be.PutUint64(b[8:], r.seq)
	be.PutUint32(b[16:], r.info.Len)
	be.PutUint32(b[20:], r.info.CRC)
	be.PutUint32(b[24:], uint32(r.info.Meta.Set))
	be.PutUint32(b[28:], r.info.Meta.Epoch)
	return b
}

func parseBlobValue(k cluster.BlobKey, b []byte) (Info, location, bool) {
	if len(b) != blobValueLen {
		return Info{}, location{}, false
	}
	be := binary.BigEndian
	return Info{
		Key:  k,
		Len:  be.Uint32(b[16:]),
		CRC:  be.Uint32(b[20:]),
		Meta: Meta{Set: cluster.ReplicaSetID(be.Uint32(b[24:])), Epoch: be.Uint32(b[28:])},
	}, location{seg: be.Uint32(b), off: int64(be.Uint32(b[4:])) * Align, seq: be.Uint64(b[8:])}, true
}

// lookup finds a blob.
func (x *index) lookup(k cluster.BlobKey) (Info, location, error) {
	key := blobKey(k)
	v, closer, err := x.db.Get(key[:])
	if err == pebble.ErrNotFound {
		return Info{}, location{}, cluster.ENOBLOB
	}
	if err != nil {
		return Info{}, location{}, fmt.Errorf("segment: index: %w: %w", err, cluster.EIO)
	}
	defer closer.Close()
	i, l, ok := parseBlobValue(k, v)
	if !ok {
		return i, l, fmt.Errorf("segment: index: damaged entry: %w", cluster.ECORRUPT)
	}
	return i, l, nil
}

func placeKey(kind byte, seg uint32, off int64) (b [9]byte) {
	b[0] = kind
	binary.BigEndian.PutUint32(b[1:], seg)
	binary.BigEndian.PutUint32(b[5:], uint32(off/Align))
	return b
}

func sealedKey(seg uint32) (b [5]byte) {
	b[0] = keySealed
	binary.BigEndian.PutUint32(b[1:], seg)
	return b
}

func lenValue(n int64) (b [4]byte) {
	binary.BigEndian.PutUint32(b[:], uint32(n/Align))
	return b
}

func parseLen(b []byte) int64 { return int64(binary.BigEndian.Uint32(b)) * Align }

func (p position) value() (b [16]byte) {
	binary.BigEndian.PutUint32(b[:], p.seg)
	binary.BigEndian.PutUint32(b[4:], uint32(p.off/Align))
	binary.BigEndian.PutUint64(b[8:], p.seq)
	return b
}

func (x *index) position() (position, error) {
	v, closer, err := x.db.Get([]byte{keyPosition})
	if err == pebble.ErrNotFound {
		return position{}, nil
	}
	if err != nil {
		return position{}, err
	}
	defer closer.Close()
	return position{binary.BigEndian.Uint32(v), int64(binary.BigEndian.Uint32(v[4:])) * Align, binary.BigEndian.Uint64(v[8:])}, nil
}

// A span is a run of bytes of a segment.
type span struct {
	seg    uint32
	off, n int64
}

// each calls fn for each entry whose key begins with prefix, of a reader.
func each(r pebble.Reader, prefix byte, fn func(key, value []byte) error) error {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: []byte{prefix}, UpperBound: []byte{prefix + 1}})
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		if err := fn(it.Key(), it.Value()); err != nil {
			it.Close()
			return err
		}
	}
	return it.Close()
}

func parseSpan(key, value []byte) span {
	return span{binary.BigEndian.Uint32(key[1:]), int64(binary.BigEndian.Uint32(key[5:])) * Align, parseLen(value)}
}
