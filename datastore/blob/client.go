package blob

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/segment"
)

// A Client puts blobs to and gets them from stores, wherever they are.
// Its methods may be called concurrently.
type Client struct {
	transport Transport
	local     *Server
}

// NewClient returns a client that calls the stores of local directly (nil: it
// has none) and all others over transport.
func NewClient(transport Transport, local *Server) *Client {
	return &Client{transport: transport, local: local}
}

// Local reports whether the store is on this node.
func (c *Client) Local(id cluster.StoreID) bool {
	if c.local == nil {
		return false
	}
	_, ok := c.local.Local(id)
	return ok
}

func (c *Client) store(id cluster.StoreID) Store {
	if c.local == nil {
		return nil
	}
	st, _ := c.local.Local(id)
	return st
}

// Put stores a blob durably in a store of the node at addr and returns how full
// the store is then. sums are the checksums of data. The same blob again
// succeeds; another content under its key is ECONFLICT. Neither data nor sums
// are referred to any more after Put has returned.
func (c *Client) Put(ctx context.Context, addr string, id cluster.StoreID, key cluster.BlobKey, meta segment.Meta, sums checksum.Sums, data [][]byte) (segment.Usage, error) {
	if st := c.store(id); st != nil {
		if err := st.Put(ctx, key, meta, sums, data...); err != nil {
			return segment.Usage{}, err
		}
		return st.Usage(), nil
	}
	n := 0
	for _, p := range data {
		n += len(p)
	}
	h := head{op: opPut, store: id, blob: key.Blob, shard: key.Shard, set: meta.Set, epoch: meta.Epoch, n: uint32(n)}
	body := make([][]byte, 1, 1+len(data))
	body[0] = sums
	r, err := c.call(ctx, addr, key.Group, &h, append(body, data...)...)
	if err != nil {
		return segment.Usage{}, err
	}
	defer r.free()
	return parseUsage(r.Head)
}

// A Buf is the bytes that Get returns.
type Buf struct {
	Bytes  []byte
	blocks segment.Blocks
	free   func()
}

// Release gives the memory of Bytes back.
func (b *Buf) Release() {
	if b == nil {
		return
	}
	b.blocks.Release()
	if f := b.free; f != nil {
		b.free = nil
		f()
	}
	b.Bytes = nil
}

// Get reads n bytes from off on of a blob. Every byte was checked against its
// checksum on this node. A range that is not within the blob is EINVAL; ENOBLOB
// and ECORRUPT are the store's, or ECORRUPT says that the bytes were damaged on
// the way.
func (c *Client) Get(ctx context.Context, addr string, id cluster.StoreID, key cluster.BlobKey, off, n uint32) (*Buf, error) {
	if st := c.store(id); st != nil {
		b, err := st.Read(ctx, key, off, n)
		if err != nil {
			return nil, err
		}
		return &Buf{Bytes: b.Data[off-b.Off:][:n:n], blocks: b}, nil
	}
	h := head{op: opGet, store: id, blob: key.Blob, shard: key.Shard, off: off, n: n}
	r, err := c.call(ctx, addr, key.Group, &h)
	if err != nil {
		return nil, err
	}
	data, err := checkGet(&r, off, n)
	if err != nil {
		r.free()
		return nil, fmt.Errorf("blob %v of store %d at %s: %w", key.Blob, id, addr, err)
	}
	return &Buf{Bytes: data, free: r.Free}, nil
}

// checkGet verifies a get's reply and returns the bytes that were asked for.
func checkGet(r *Response, off, n uint32) ([]byte, error) {
	if len(r.Head) != 8 {
		return nil, cluster.ECORRUPT
	}
	start := int(binary.BigEndian.Uint32(r.Head))
	length := int(binary.BigEndian.Uint32(r.Head[4:]))
	first := int(off) / checksum.Block * checksum.Block
	end := min(length, (int(off)+int(n)+checksum.Block-1)/checksum.Block*checksum.Block)
	if start != first || int(off)+int(n) > length || end <= start {
		return nil, cluster.ECORRUPT
	}
	k := checksum.Size(end - start)
	if len(r.Body) != k+end-start {
		return nil, cluster.ECORRUPT
	}
	sums, data := checksum.Sums(r.Body[:k]), r.Body[k:]
	if sums.Verify(data) >= 0 {
		return nil, cluster.ECORRUPT
	}
	return data[int(off)-start:][:n:n], nil
}

// Delete deletes blobs of one group, at most MaxDelete. One that is not there
// is no error.
func (c *Client) Delete(ctx context.Context, addr string, id cluster.StoreID, g cluster.GroupID, keys []cluster.BlobKey) error {
	if len(keys) > MaxDelete {
		return cluster.EINVAL
	}
	if st := c.store(id); st != nil {
		return st.Delete(ctx, keys)
	}
	body := make([]byte, 0, len(keys)*keyLen)
	for _, k := range keys {
		if k.Group != g {
			return cluster.EINVAL
		}
		body = appendKey(body, k)
	}
	r, err := c.call(ctx, addr, g, &head{op: opDelete, store: id, n: uint32(len(keys))}, body)
	if err != nil {
		return err
	}
	r.free()
	return nil
}

// List returns up to n ≤ MaxList blobs of a group after the key after, in
// order. Fewer than n says that there are no more.
func (c *Client) List(ctx context.Context, addr string, id cluster.StoreID, g cluster.GroupID, after cluster.BlobKey, n int) ([]segment.Info, error) {
	if n <= 0 || n > MaxList {
		return nil, cluster.EINVAL
	}
	if st := c.store(id); st != nil {
		return st.List(g, after, n)
	}
	r, err := c.call(ctx, addr, g, &head{op: opList, store: id, blob: after.Blob, shard: after.Shard, n: uint32(n)})
	if err != nil {
		return nil, err
	}
	defer r.free()
	if len(r.Body)%infoLen != 0 || len(r.Body) > n*infoLen {
		return nil, cluster.ECORRUPT
	}
	infos := make([]segment.Info, len(r.Body)/infoLen)
	for i := range infos {
		infos[i] = parseInfo(r.Body[i*infoLen:], g)
	}
	return infos, nil
}

// Stat describes a blob, or fails with ENOBLOB.
func (c *Client) Stat(ctx context.Context, addr string, id cluster.StoreID, key cluster.BlobKey) (segment.Info, error) {
	if st := c.store(id); st != nil {
		return st.Stat(key)
	}
	r, err := c.call(ctx, addr, key.Group, &head{op: opStat, store: id, blob: key.Blob, shard: key.Shard})
	if err != nil {
		return segment.Info{}, err
	}
	defer r.free()
	if len(r.Head) != infoLen {
		return segment.Info{}, cluster.ECORRUPT
	}
	return parseInfo(r.Head, key.Group), nil
}

// Usage returns how full a store is, or EDISK if it is out of service.
func (c *Client) Usage(ctx context.Context, addr string, id cluster.StoreID) (segment.Usage, error) {
	if st := c.store(id); st != nil {
		if st.Failed() != nil {
			return segment.Usage{}, cluster.EDISK
		}
		return st.Usage(), nil
	}
	r, err := c.call(ctx, addr, cluster.ClusterGroup, &head{op: opUsage, store: id})
	if err != nil {
		return segment.Usage{}, err
	}
	defer r.free()
	return parseUsage(r.Head)
}

func (c *Client) call(ctx context.Context, addr string, g cluster.GroupID, h *head, body ...[]byte) (Response, error) {
	if c.transport == nil || addr == "" {
		return Response{}, fmt.Errorf("store %d has no address: %w", h.store, cluster.EAGAIN)
	}
	return c.transport.Call(ctx, addr, g, h.append(make([]byte, 0, headLen)), body...)
}

func (r *Response) free() {
	if r.Free != nil {
		r.Free()
	}
}
