package volume

import (
	"fmt"
	"sync"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// inodeFormat is the first byte of a stored inode.
const inodeFormat = 1

// An inode is what is stored of a file, directory or other object.
type inode struct {
	cluster.Attr
	Target     string // of a symbolic link
	Exclusive  bool   // made by an exclusive create, with Verifier
	Verifier   uint64
	Entries    uint64 // of a directory: names in it
	XattrNames uint32 // bytes in names of extended attributes, one more counted for each
	XattrBytes uint32 // bytes in their values
}

// scratch is memory to read a record with.
type scratch struct {
	key [64]byte
	val []byte
}

var scratches = sync.Pool{New: func() any { return &scratch{val: make([]byte, 0, 512)} }}

// appendInode appends the stored form of n.
func appendInode(dst []byte, n *inode) []byte {
	dst = append(dst, inodeFormat)
	dst = appendAttr(dst, &n.Attr)
	dst = codec.AppendString(dst, n.Target)
	dst = codec.AppendBool(dst, n.Exclusive)
	if n.Exclusive {
		dst = codec.AppendUint64(dst, n.Verifier)
	}
	dst = codec.AppendUvarint(dst, n.Entries)
	dst = codec.AppendUvarint(dst, uint64(n.XattrNames))
	return codec.AppendUvarint(dst, uint64(n.XattrBytes))
}

// decodeInode decodes what appendInode made.
func decodeInode(val []byte) (inode, error) {
	d := codec.NewDec(val)
	var n inode
	if f := d.Uint8(); f != inodeFormat && d.Err() == nil {
		return n, cluster.EVERSION
	}
	decodeAttr(&d, &n.Attr)
	n.Target = d.String(cluster.MaxSymlink)
	if n.Exclusive = d.Bool(); n.Exclusive {
		n.Verifier = d.Uint64()
	}
	n.Entries = d.Uvarint()
	n.XattrNames = d.Uvarint32()
	n.XattrBytes = d.Uvarint32()
	return n, d.Done()
}

// loadInode returns an inode, and whether there is one. A record that cannot
// be decoded stops the program: a replica that went on would diverge.
func loadInode(r fsm.Reader, ino cluster.Ino) (inode, bool) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	val, ok := r.Get(s.val[:0], appendInodeKey(s.key[:0], ino))
	if !ok {
		return inode{}, false
	}
	s.val = val[:0]
	n, err := decodeInode(val)
	if err != nil || n.Ino != ino {
		panic(fmt.Sprintf("volume: the record of inode %d is damaged (%v): restore this replica from another", ino, err))
	}
	return n, true
}

// storeInode stores n. It does not touch its times or change attribute.
func storeInode(tx *fsm.Tx, n *inode) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.val = appendInode(s.val[:0], n)
	tx.Set(appendInodeKey(s.key[:0], n.Ino), s.val)
}

// touch marks n changed by the command under way.
func (n *inode) touch(tx *fsm.Tx) {
	n.Ctime = tx.Time()
	n.Change = tx.Index()
	n.tellChanged(tx)
}

// modify marks n's content changed by the command under way.
func (n *inode) modify(tx *fsm.Tx) {
	n.Mtime = tx.Time()
	n.touch(tx)
}

// dropInode deletes an inode's record and extended attributes, and counts it
// out of the volume's inodes. Its extents must be gone already.
func dropInode(tx *fsm.Tx, ino cluster.Ino) {
	n, ok := loadInode(tx, ino)
	if !ok {
		return
	}
	if n.XattrNames > 0 {
		lower := appendXattrBound(nil, ino)
		// maxXattrNames bounds how many there are.
		tx.DeleteRange(lower, codec.AppendUpper(nil, lower), maxXattrNames)
	}
	tx.Delete(appendInodeKey(nil, ino))
	addUsage(tx, 0, -1)
}
