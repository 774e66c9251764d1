package registry

import (
	"bytes"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// clientCount is how much the client records of an identity are.
type clientCount struct {
	records uint32
	bytes   uint64
}

// fits reports whether the records may become as many as n, of before: less is
// always possible.
func (n clientCount) fits(before clientCount) bool {
	return (n.records <= MaxClients || n.records <= before.records) && (n.bytes <= MaxClientBytes || n.bytes <= before.bytes)
}

func loadCount(r fsm.Reader, id cluster.IdentityID) clientCount {
	value, ok := r.Get(nil, countKey(nil, id))
	if !ok {
		return clientCount{}
	}
	n, _ := decodeCount(value)
	return n
}

// serves returns EFENCED unless the identity is in that epoch.
func serves(tx *fsm.Tx, id cluster.IdentityID, epoch uint32) cluster.Errno {
	i, ok := View{tx}.Identity(id)
	switch {
	case !ok:
		return cluster.ENOENT
	case i.Epoch != epoch:
		return cluster.EFENCED
	}
	return cluster.OK
}

func (c *PutClient) run(tx *fsm.Tx, _ *head) (cluster.Errno, []byte) {
	if c.ID == 0 || cluster.ClientIdentity(c.ID) != c.Identity || len(c.Record) == 0 {
		return cluster.EINVAL, nil
	}
	if e := serves(tx, c.Identity, c.Epoch); e != cluster.OK {
		return e, nil
	}
	n := loadCount(tx, c.Identity)
	before := n
	if c.Replaces != 0 && c.Replaces != c.ID {
		dropClient(tx, &n, c.Identity, c.Replaces)
	}
	key := clientKey(nil, c.Identity, c.ID)
	old, there := tx.Get(nil, key)
	if there {
		n.bytes -= uint64(len(old))
	} else {
		n.records++
	}
	n.bytes += uint64(len(c.Record)) + 1
	if !n.fits(before) {
		return cluster.ENOSPC, nil
	}
	value := append([]byte{recordFormat}, c.Record...)
	if !bytes.Equal(old, value) {
		tx.Set(key, value)
	}
	if n != before {
		tx.Set(countKey(nil, c.Identity), appendCount(nil, n))
	}
	return cluster.OK, nil
}

func (c *DeleteClient) run(tx *fsm.Tx, _ *head) (cluster.Errno, []byte) {
	if e := serves(tx, c.Identity, c.Epoch); e != cluster.OK {
		return e, nil
	}
	n := loadCount(tx, c.Identity)
	before := n
	dropClient(tx, &n, c.Identity, c.ID)
	if n != before {
		tx.Set(countKey(nil, c.Identity), appendCount(nil, n))
	}
	return cluster.OK, nil
}

func dropClient(tx *fsm.Tx, n *clientCount, identity cluster.IdentityID, id uint64) {
	key := clientKey(nil, identity, id)
	if old, ok := tx.Get(nil, key); ok {
		tx.Delete(key)
		n.records--
		n.bytes -= uint64(len(old))
	}
}

// dropClients forgets all clients of an identity.
func dropClients(tx *fsm.Tx, id cluster.IdentityID) {
	prefix := clientPrefix(nil, id)
	tx.DeleteRange(prefix, codec.AppendUpper(nil, prefix), MaxClients)
	tx.Delete(countKey(nil, id))
}
