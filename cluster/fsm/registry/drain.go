package registry

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// DrainStore says whether a store is to be emptied: its data goes to others, and
// it gets no new data. ENOENT if there is no such store, EPERM if it was removed.
type DrainStore struct {
	ID    cluster.StoreID
	Drain bool
}

// Kind implements fsm.Body.
func (*DrainStore) Kind() fsm.Kind { return KindDrainStore }

// AppendTo implements fsm.Body.
func (c *DrainStore) AppendTo(dst []byte) []byte {
	return codec.AppendBool(codec.AppendUvarint(dst, uint64(c.ID)), c.Drain)
}

func (c *DrainStore) decode(d *codec.Dec) {
	c.ID = cluster.StoreID(d.Uvarint32())
	c.Drain = d.Bool()
}

func (c *DrainStore) run(tx *fsm.Tx, _ *head) (cluster.Errno, []byte) {
	s, ok := View{tx}.Store(c.ID)
	switch {
	case !ok:
		return cluster.ENOENT, nil
	case s.State == StoreRemoved:
		return cluster.EPERM, nil
	case s.Draining == c.Drain:
		return cluster.OK, nil
	}
	s.Draining = c.Drain
	tx.Set(storeKey(nil, s.ID), appendStore(nil, &s))
	tx.Emit(StoreChanged{s})
	return cluster.OK, nil
}

// Rebalance asks for the stores to be evened out until a time; 0 ends that.
type Rebalance struct {
	Until cluster.Time
}

// Kind implements fsm.Body.
func (*Rebalance) Kind() fsm.Kind { return KindRebalance }

// AppendTo implements fsm.Body.
func (c *Rebalance) AppendTo(dst []byte) []byte { return codec.AppendVarint(dst, int64(c.Until)) }

func (c *Rebalance) decode(d *codec.Dec) { c.Until = cluster.Time(d.Varint()) }

func (c *Rebalance) run(tx *fsm.Tx, _ *head) (cluster.Errno, []byte) {
	if c.Until < 0 {
		return cluster.EINVAL, nil
	}
	tx.Set(keyRebalance, codec.AppendVarint(nil, int64(c.Until)))
	return cluster.OK, nil
}

// RebalanceUntil returns until when the stores are to be evened out.
func (v View) RebalanceUntil() cluster.Time {
	value, ok := v.Get(nil, keyRebalance)
	if !ok {
		return 0
	}
	d := codec.NewDec(value)
	return cluster.Time(d.Varint())
}
