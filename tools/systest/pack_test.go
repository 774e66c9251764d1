package systest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestPack has a client write many small files, which are packed while some are
// written over, and read them through another node.
func TestPack(t *testing.T) {
	t.Setenv("HAWSER_PACK_AFTER", "2s")
	t.Setenv("HAWSER_PACK_EVERY", "500ms")
	c := startCluster(t, 3, 2)
	a, b := c.client(1, "512M"), c.client(2, "512M")
	a.run(time.Minute, c.mountCommand(1, "vers=4.2"))
	b.run(time.Minute, c.mountCommand(2, "vers=4.1"))
	const files = 600
	a.run(3*time.Minute, fmt.Sprintf(`
		mkdir /mnt/nfs/main/small; cd /mnt/nfs/main/small
		head -c $((%[1]d * 4090)) /dev/urandom | split -d -a 4 -b 4090 - f
		for round in 1 2 3; do # while they are packed
			for file in f*$round$round; do
				echo "$file, written in round $round" | dd of=$file conv=notrunc bs=64 seek=$round 2>/dev/null
			done
			sleep 1
		done
		sha256sum * >/mnt/nfs/main/sums`, files))
	c.wait(time.Minute, "small files to be packed", func() error {
		packed, waiting := uint64(0), uint64(0)
		for i := range c.nodes {
			out, err := c.admin(i+1, "status", "-o", "json")
			if err != nil {
				return err
			}
			var s struct {
				Packing []struct{ Packed, Waiting, Errors uint64 }
			}
			if err := json.Unmarshal([]byte(out), &s); err != nil {
				return err
			}
			for _, p := range s.Packing {
				packed, waiting = packed+p.Packed, waiting+p.Waiting
				if p.Errors > 0 {
					t.Logf("node %d: %+v", i+1, p)
				}
			}
		}
		if packed < files*4000 || waiting > 0 {
			return fmt.Errorf("%d bytes are packed, %d files wait", packed, waiting)
		}
		return nil
	})
	begin := time.Now()
	b.run(2*time.Minute, "cd /mnt/nfs/main/small; sha256sum -c --quiet ../sums")
	t.Logf("%d files were read through another node in %v", files, time.Since(begin).Round(time.Millisecond))
	t.Log(strings.TrimSpace(c.must(1, "check", "--data")))
}
