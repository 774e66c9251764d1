package blob

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/segment"
)

// DeleteMoved deletes copies of one group that are not needed any more where
// they are, at most MaxDelete, and returns how many: those that still are what
// they were when they were listed. One that was put anew since, since its store
// is to be a member of its set again, has another Meta and stays. So it does no
// harm however late it comes.
func (c *Client) DeleteMoved(ctx context.Context, addr string, id cluster.StoreID, g cluster.GroupID, copies []segment.Info) (int, error) {
	if len(copies) > MaxDelete {
		return 0, cluster.EINVAL
	}
	if st := c.store(id); st != nil {
		return c.local.deleteMoved(ctx, st, copies)
	}
	body := make([]byte, 0, len(copies)*infoLen)
	for i := range copies {
		if copies[i].Key.Group != g {
			return 0, cluster.EINVAL
		}
		body = appendInfo(body, &copies[i])
	}
	r, err := c.call(ctx, addr, g, &head{op: opDeleteMoved, store: id, n: uint32(len(copies))}, body)
	if err != nil {
		return 0, err
	}
	defer r.free()
	if len(r.Head) != 4 {
		return 0, cluster.ECORRUPT
	}
	return int(binary.BigEndian.Uint32(r.Head)), nil
}

func (s *Server) deleteMoved(ctx context.Context, st Store, copies []segment.Info) (int, error) {
	s.moved.Lock()
	defer s.moved.Unlock()
	keys := make([]cluster.BlobKey, 0, len(copies))
	for i := range copies {
		now, err := st.Stat(copies[i].Key)
		switch {
		case errors.Is(err, cluster.ENOBLOB):
		case err != nil:
			return 0, err
		case now == copies[i]:
			keys = append(keys, now.Key)
		}
	}
	if len(keys) == 0 {
		return 0, nil
	}
	return len(keys), st.Delete(ctx, keys)
}
