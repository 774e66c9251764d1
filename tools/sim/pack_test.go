package sim

import (
	"strings"
	"testing"
	"time"
)

// As in cluster/fsm/volume/rules.go.
const (
	coreSameBytes  uint32 = 1 << 17
	coreSameExtent uint32 = 1 << 18
)

// TestPacks has bytes of files moved into blobs of several files, and out of
// blobs of which little is left, while clients write, truncate and clone.
func TestPacks(t *testing.T) {
	simulate(t, long(t, 8*time.Second)/4, Config{Pack: true})
	moved, leftOut := uint64(0), uint64(0)
	for seed := uint64(1); seed <= 3; seed++ {
		n, err := Run(Config{Pack: true, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		moved, leftOut = moved+n.relocated, leftOut+n.leftOut
	}
	if t.Logf("%d moves done, %d left out", moved, leftOut); moved == 0 || leftOut == 0 {
		t.Error("there must be some of both")
	}
}

// TestBrokenPack switches off what a move is held against.
func TestBrokenPack(t *testing.T) {
	for _, c := range []struct {
		name string
		core uint32
		want string
	}{
		{"bytes that were overwritten meanwhile come back", coreSameBytes, "changes by being moved"},
		{"a blob that was overwritten meanwhile comes back", coreSameExtent, "changes by being moved"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := find(t, Config{Pack: true}, c.core, 1_000_000)
			if err == nil {
				t.Error("not found")
			} else if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "panic") {
				t.Errorf("want %q", c.want)
			}
		})
	}
}
