package sim

import (
	"os"
	"strings"
	"testing"
	_ "unsafe" // for linkname

	_ "github.com/hawserfs/hawser/cluster/fsm/volume"
)

// The rules within the state machine have a switch that only tests of its
// package reach, and this one: nothing else has any business there.
//
//go:linkname coreRulesOff github.com/hawserfs/hawser/cluster/fsm/volume.rulesOff
var coreRulesOff uint32

// As in cluster/fsm/volume/rules.go.
const (
	coreLowWater uint32 = 1 << 1
	coreEpoch    uint32 = 1 << 4
	coreWritable uint32 = 1 << 5
	coreQuiet    uint32 = 1 << 9
	coreSetEpoch uint32 = 1 << 11
	coreHeld     uint32 = 1 << 14
	coreReaped   uint32 = 1 << 15
	coreStates   uint32 = 1 << 16
)

func patient() bool { return os.Getenv("HAWSER_SIM") != "" }

// find runs worlds until one fails, and says after how many steps. It begins
// with c.Seed, or with 1 where there is time.
func find(t *testing.T, c Config, core uint32, most uint64) (err error) {
	coreRulesOff = core
	defer func() { coreRulesOff = 0 }()
	if patient() || c.Seed == 0 {
		c.Seed = 1
	}
	steps := uint64(0)
	for ; steps < most; c.Seed++ {
		n, err := Run(c)
		steps += n.Steps
		if err != nil {
			t.Logf("after %d steps: %.300v", steps, err)
			return err
		}
	}
	return nil
}

// TestBroken switches off each rule in turn: it is missed within a bounded
// number of steps.
func TestBroken(t *testing.T) {
	const most = 1_000_000
	for _, c := range []struct {
		name     string
		off      Break
		core     uint32
		kept     string // what is found of the rule itself
		outcomes string // what is found of its outcomes alone; "": not tried
		seed     uint64 // of a world that soon shows it; 0: any does
	}{
		{"commit before all members have the blob", BreakCopies, 0, "not durable", "not durable", 0},
		{"store answers before the blob is durable", BreakSync, 0, "not durable", "not durable", 0},
		{"blob id used again", BreakNewID, 0, "two contents", "another content", 3},
		{"command repeated under another number", BreakSequence, 0, "executes operation", "", 3},
		{"acknowledged before the commit", BreakAck, 0, "acknowledged", "", 0},
		{"fenced writer goes on", BreakFence, 0, "fenced writer", "", 1},
		{"verifier does not change", BreakVerifier, 0, "told", "", 0},
		{"orphan deleted while its writer may commit it", BreakCollect, 0, "may still commit", "not durable", 0},
		{"log cut beyond what is flushed", BreakLogCut, 0, "log begins", "", 0},
		{"strict read without a read index", BreakReadIndex, 0, "acknowledged before it began", "", 0},
		{"write committed in parts", BreakWhole, 0, "executes operation", "", 0},
		{"commit of an old epoch", 0, coreEpoch, "of epoch", "not durable", 7},
		{"commit below the low-water mark", BreakFinish, coreLowWater, "final below", "not durable", 5},
		{"commit to a set that is not writable", BreakChoose, coreWritable, "state 1", "not durable", 8},
		{"unlinked file freed while it is open", 0, coreHeld, "has it open", "", 3},
		{"file written while it is freed", 0, coreReaped, "has extents", "", 10},
		{"set changed from an old epoch", 0, coreSetEpoch | coreQuiet, "not durable", "not durable", 52},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, outcomes := range []bool{false, true} {
				want := c.kept
				if outcomes {
					want = c.outcomes
				}
				if want == "" {
					continue
				}
				err := find(t, Config{Seed: c.seed, Break: c.off, Outcomes: outcomes}, c.core, most)
				if err == nil {
					t.Errorf("outcomes %v: not found in %d steps", outcomes, most)
				} else if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "panic") {
					t.Errorf("outcomes %v: want %q", outcomes, want)
				}
			}
		})
	}
}

// TestBrokenTakeOver does it with the rules that clients rely on who go on at
// another front-end.
func TestBrokenTakeOver(t *testing.T) {
	for _, c := range []struct {
		name string
		off  Break
		core uint32
		want string
	}{
		{"a repeated request is another one", BreakOrigin, 0, "and is told"},
		{"a recorded open does not keep an unlinked file", 0, coreStates, "has it open"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := find(t, Config{Break: c.off, TakeOver: true}, c.core, 1_000_000)
			if err == nil {
				t.Error("not found")
			} else if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "panic") {
				t.Errorf("want %q", c.want)
			}
		})
	}
}

// TestRefused has front-ends that do what the state machine is there to refuse:
// nothing comes of it.
func TestRefused(t *testing.T) {
	most := uint64(15_000)
	if patient() {
		most = 2_000_000
	}
	if err := find(t, Config{Break: BreakFinish | BreakChoose}, 0, most); err != nil {
		t.Error(err)
	}
}
