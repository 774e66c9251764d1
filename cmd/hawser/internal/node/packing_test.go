package node

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
	"github.com/hawserfs/hawser/datastore/pack"
	"github.com/hawserfs/hawser/nfsd/client"
)

// inlineBytes returns how many bytes of files are in a volume's state machine.
func (n *testNode) inlineBytes(t *testing.T) (sum int) {
	for _, v := range n.member.Volumes() {
		v.View().Ascend([]byte{'I'}, []byte{'J'}, func(key, _ []byte) bool {
			ino := cluster.Ino(0)
			for _, b := range key[1:9] {
				ino = ino<<8 | cluster.Ino(b)
			}
			v.View().Extents(ino, 0, cluster.MaxFileSize, func(e *volume.Extent) bool {
				if e.Blob == 0 {
					sum += int(e.Len)
				}
				return true
			})
			return true
		})
	}
	return sum
}

// TestPacking: what clients write in small files goes into blobs by itself, also
// while it is overwritten, and is read as it was written, also after a restart;
// the stores have what the state machine says.
func TestPacking(t *testing.T) {
	c := config(t, "n1")
	c.Pack.After, c.Pack.Every = 300*time.Millisecond, 100*time.Millisecond
	n := start(t, c)
	if err := n.Init(within(t), admin.InitRequest{Name: "c", Class: admin.Class{Copies: 1}}); err != nil {
		t.Fatal(err)
	}
	n.serving()
	const files = 400
	body := func(i, round int) []byte { return content(uint64(i+1000*round+1), 4096) }
	last := make([]int, files)
	n.use(func(nc *client.Client) {
		dir, err := nc.Walk(within(t), "/main")
		if err != nil {
			t.Fatal(err)
		}
		for i := range files {
			put(t, nc, dir, fmt.Sprint(i), body(i, 0))
		}
		put(t, nc, dir, "tiny", content(7, pack.InlineLimit))
		for round := 1; round < 4; round++ { // while it packs
			for i := round; i < files; i += 7 {
				put(t, nc, dir, fmt.Sprint(i), body(i, round))
				last[i] = round
			}
			time.Sleep(400 * time.Millisecond)
		}
	})
	eventually(t, "all but the tiny file is packed", func() bool { return n.inlineBytes(t) == pack.InlineLimit })
	st, err := n.Status(within(t))
	if err != nil || len(st.Packing) != 1 || st.Packing[0].Packed < files*4096 || st.Packing[0].Errors > 0 {
		t.Errorf("status: %+v", st.Packing)
	}
	read := func() {
		n.use(func(nc *client.Client) {
			for i := range files {
				if !bytes.Equal(get(t, nc, fmt.Sprintf("/main/%d", i)), body(i, last[i])) {
					t.Fatalf("file %d has other bytes than were written last", i)
				}
			}
		})
	}
	read()
	n.clean()
	n.stop()
	n = start(t, c)
	n.serving()
	read()
	_, misses, _ := n.front.fs.CacheStats()
	t.Logf("%d files were read with %d loads", files, misses)
	n.stop()
	if sum, f := offlineCheck(t, true, c); sum.Problems > 0 {
		t.Errorf("%+v", f)
	}
}
