package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// maxString bounds strings and byte strings in commands. What they may really
// have is for Apply to say, with an error that tells which limit it was.
const maxString = cluster.MaxCommand

// maxGroups bounds the supplementary groups of a credential.
const maxGroups = 1 << 16

func appendAttr(dst []byte, a *cluster.Attr) []byte {
	dst = codec.AppendUvarint(dst, uint64(a.Ino))
	dst = codec.AppendUint32(dst, a.Gen)
	dst = append(dst, byte(a.Type))
	dst = codec.AppendUvarint(dst, uint64(a.Mode))
	dst = codec.AppendUvarint(dst, uint64(a.Nlink))
	dst = codec.AppendUvarint(dst, uint64(a.UID))
	dst = codec.AppendUvarint(dst, uint64(a.GID))
	dst = codec.AppendUvarint(dst, a.Size)
	dst = codec.AppendUvarint(dst, a.Used)
	dst = codec.AppendUvarint(dst, uint64(a.Major))
	dst = codec.AppendUvarint(dst, uint64(a.Minor))
	dst = codec.AppendUint64(dst, uint64(a.Atime))
	dst = codec.AppendUint64(dst, uint64(a.Mtime))
	dst = codec.AppendUint64(dst, uint64(a.Ctime))
	dst = codec.AppendUint64(dst, uint64(a.Btime))
	dst = codec.AppendUvarint(dst, a.Change)
	dst = codec.AppendUvarint(dst, uint64(a.Parent))
	return appendClass(dst, a.Class)
}

func decodeAttr(d *codec.Dec, a *cluster.Attr) {
	a.Ino = cluster.Ino(d.Uvarint())
	a.Gen = d.Uint32()
	a.Type = cluster.FileType(d.Uint8())
	a.Mode = d.Uvarint32()
	a.Nlink = d.Uvarint32()
	a.UID = d.Uvarint32()
	a.GID = d.Uvarint32()
	a.Size = d.Uvarint()
	a.Used = d.Uvarint()
	a.Major = d.Uvarint32()
	a.Minor = d.Uvarint32()
	a.Atime = cluster.Time(d.Uint64())
	a.Mtime = cluster.Time(d.Uint64())
	a.Ctime = cluster.Time(d.Uint64())
	a.Btime = cluster.Time(d.Uint64())
	a.Change = d.Uvarint()
	a.Parent = cluster.Ino(d.Uvarint())
	a.Class = decodeClass(d)
}

func appendClass(dst []byte, c cluster.Class) []byte {
	if c.Code.IsZero() {
		return append(dst, byte(c.Consistency)&^hasCode, c.Copies)
	}
	return append(dst, byte(c.Consistency)|hasCode, c.Copies, c.Code.K, c.Code.M)
}

// hasCode says in a byte of which it is no part that a code follows.
const hasCode = 0x80

func decodeClass(d *codec.Dec) cluster.Class {
	flags := d.Uint8()
	c := cluster.Class{Consistency: cluster.Consistency(flags &^ hasCode), Copies: d.Uint8()}
	if flags&hasCode != 0 {
		c.Code = decodeCode(d)
	}
	return c
}

// decodeCode decodes a code. Whether it can be used is for Apply to say; where
// there is none, nothing says that it follows.
func decodeCode(d *codec.Dec) cluster.Code {
	c := cluster.Code{K: d.Uint8(), M: d.Uint8()}
	if c.IsZero() {
		d.Fail()
	}
	return c
}

func appendCred(dst []byte, c *cluster.Cred) []byte {
	dst = codec.AppendUvarint(dst, uint64(c.UID))
	dst = codec.AppendUvarint(dst, uint64(c.GID))
	dst = codec.AppendUvarint(dst, uint64(len(c.GIDs)))
	for _, g := range c.GIDs {
		dst = codec.AppendUvarint(dst, uint64(g))
	}
	return dst
}

func decodeCred(d *codec.Dec, c *cluster.Cred) {
	c.UID = d.Uvarint32()
	c.GID = d.Uvarint32()
	n := d.Count(1)
	if n > maxGroups {
		d.Fail()
		return
	}
	if n > 0 {
		c.GIDs = make([]uint32, n)
		for i := range c.GIDs {
			c.GIDs[i] = d.Uvarint32()
		}
	}
}

// appendSetAttr appends the members that the mask names.
func appendSetAttr(dst []byte, a *cluster.SetAttr) []byte {
	dst = codec.AppendUvarint(dst, uint64(a.Mask))
	if a.Mask&cluster.SetMode != 0 {
		dst = codec.AppendUvarint(dst, uint64(a.Mode))
	}
	if a.Mask&cluster.SetUID != 0 {
		dst = codec.AppendUvarint(dst, uint64(a.UID))
	}
	if a.Mask&cluster.SetGID != 0 {
		dst = codec.AppendUvarint(dst, uint64(a.GID))
	}
	if a.Mask&cluster.SetSize != 0 {
		dst = codec.AppendUvarint(dst, a.Size)
	}
	if a.Mask&cluster.SetAtime != 0 {
		dst = codec.AppendUint64(dst, uint64(a.Atime))
	}
	if a.Mask&cluster.SetMtime != 0 {
		dst = codec.AppendUint64(dst, uint64(a.Mtime))
	}
	return dst
}

func decodeSetAttr(d *codec.Dec, a *cluster.SetAttr) {
	a.Mask = cluster.SetMask(d.Uvarint16())
	if a.Mask&cluster.SetMode != 0 {
		a.Mode = d.Uvarint32()
	}
	if a.Mask&cluster.SetUID != 0 {
		a.UID = d.Uvarint32()
	}
	if a.Mask&cluster.SetGID != 0 {
		a.GID = d.Uvarint32()
	}
	if a.Mask&cluster.SetSize != 0 {
		a.Size = d.Uvarint()
	}
	if a.Mask&cluster.SetAtime != 0 {
		a.Atime = cluster.Time(d.Uint64())
	}
	if a.Mask&cluster.SetMtime != 0 {
		a.Mtime = cluster.Time(d.Uint64())
	}
}

func appendChange(dst []byte, c cluster.ChangeInfo) []byte {
	return codec.AppendUvarint(codec.AppendUvarint(dst, c.Before), c.After)
}

func decodeChange(d *codec.Dec) cluster.ChangeInfo {
	return cluster.ChangeInfo{Before: d.Uvarint(), After: d.Uvarint()}
}

func appendInos(dst []byte, inos []cluster.Ino) []byte {
	dst = codec.AppendUvarint(dst, uint64(len(inos)))
	for _, ino := range inos {
		dst = codec.AppendUvarint(dst, uint64(ino))
	}
	return dst
}

func decodeInos(d *codec.Dec) []cluster.Ino {
	n := d.Count(1)
	if n == 0 {
		return nil
	}
	inos := make([]cluster.Ino, n)
	for i := range inos {
		inos[i] = cluster.Ino(d.Uvarint())
	}
	return inos
}
