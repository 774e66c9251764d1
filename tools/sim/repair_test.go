package sim

import (
	"strings"
	"testing"
	"time"
	_ "unsafe" // for linkname

	_ "github.com/hawserfs/hawser/datastore/collect"
)

// As coreRulesOff, of datastore/collect.
//
//go:linkname collectRulesOff github.com/hawserfs/hawser/datastore/collect.rulesOff
var collectRulesOff uint32

// As in datastore/collect/rules.go.
const collectSettled uint32 = 1 << 0

// TestRepairs has members that are lost, away for long and come back, and stores
// that are emptied, while clients write: every copy is where it is to be at all
// times, and in the end nowhere else.
func TestRepairs(t *testing.T) {
	simulate(t, long(t, 8*time.Second)/4, Config{Repair: true})
}

// TestBrokenRepair switches off each rule of repair in turn.
func TestBrokenRepair(t *testing.T) {
	for _, c := range []struct {
		name    string
		off     Break
		core    uint32
		collect uint32
		seed    uint64 // where finding it takes long; 0: 1
		want    string
	}{
		{"a member is added before it has all", BreakFill, 0, 0, 0, "not durable"},
		{"copies go from a store that is being filled", 0, 0, collectSettled, 0, "deletes its copy"},
		{"a late or second pull replaces a copy", BreakLate | BreakTwice, 0, 0, 254, "not durable"},
		{"a set is moved while it is written to", 0, coreSetEpoch | coreQuiet, 0, 68, "not durable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			collectRulesOff = c.collect
			defer func() { collectRulesOff = 0 }()
			err := find(t, Config{Seed: c.seed, Break: c.off, Repair: true}, c.core, 8_000_000)
			if err == nil {
				t.Error("not found")
			} else if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "panic") {
				t.Errorf("want %q", c.want)
			}
		})
	}
}
