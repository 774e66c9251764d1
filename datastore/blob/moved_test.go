package blob

import (
	"errors"
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/segment"
)

// A copy that was put anew after it was listed is not deleted by who goes by
// the list, however late: that is what Renew and DeleteMoved are to each other.
func TestDeleteMoved(t *testing.T) {
	for _, local := range []bool{false, true} {
		a, _, addrs, c := pullers(t, PullLimits{})
		addr := addrs[0]
		if local {
			c, addr = a.pulls.Load().client, ""
		}
		data := []byte("the quick brown fox")
		for _, at := range []struct {
			addr string
			id   cluster.StoreID
		}{{addr, 1}, {addrs[1], 11}} {
			if err := put(c, at.addr, at.id, key(1), data); err != nil {
				t.Fatal(err)
			}
		}
		if err := put(c, addr, 1, key(2), data); err != nil {
			t.Fatal(err)
		}
		listed, err := c.List(bg, addr, 1, 4, cluster.BlobKey{}, 10)
		if err != nil || len(listed) != 2 {
			t.Fatal(listed, err)
		}
		q := &PullRequest{
			Key: key(1), Meta: segment.Meta{Set: 1, Epoch: 5}, Len: uint32(len(data)), CRC: checksum.Sum(data),
			Sources: []Source{{11, addrs[1]}},
		}
		if r, err := c.Pull(bg, addr, 1, q); err != nil || r.Copied {
			t.Fatal(r, err)
		}
		q.Renew = true
		for i, copied := range []bool{true, false} {
			if r, err := c.Pull(bg, addr, 1, q); err != nil || r.Copied != copied {
				t.Fatalf("pull %d: %+v %v", i, r, err)
			}
		}
		late := *q
		late.Meta.Epoch--
		if r, err := c.Pull(bg, addr, 1, &late); err != nil || r.Copied {
			t.Errorf("local %v: a late pull put the copy anew: %+v %v", local, r, err)
		}
		if n, err := c.DeleteMoved(bg, addr, 1, 4, append(listed, segment.Info{Key: key(9)})); err != nil || n != 1 {
			t.Errorf("local %v: %d deleted, %v", local, n, err)
		}
		if i, err := c.Stat(bg, addr, 1, key(1)); err != nil || i.Meta.Epoch != 5 {
			t.Errorf("local %v: the copy that was put anew: %+v %v", local, i, err)
		}
		if _, err := c.Stat(bg, addr, 1, key(2)); !errors.Is(err, cluster.ENOBLOB) {
			t.Errorf("local %v: the other one: %v", local, err)
		}
		if n, err := c.DeleteMoved(bg, addr, 1, 4, listed); err != nil || n != 0 {
			t.Errorf("local %v: again: %d, %v", local, n, err)
		}
		// Nobody else has it: then it is left as it is.
		if err := c.Delete(bg, addrs[1], 11, 4, []cluster.BlobKey{key(1)}); err != nil {
			t.Fatal(err)
		}
		q.Meta.Epoch++
		if _, err := c.Pull(bg, addr, 1, q); !errors.Is(err, cluster.ENOBLOB) {
			t.Errorf("local %v: a last copy was put anew: %v", local, err)
		}
		if _, err := c.Stat(bg, addr, 1, key(1)); err != nil {
			t.Errorf("local %v: it is gone: %v", local, err)
		}
	}
}
