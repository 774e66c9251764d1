package sim

import (
	"strings"
	"testing"
	"time"
)

// TestDamage has copies damaged and lost all the time, and scrubs that make them
// whole.
func TestDamage(t *testing.T) { simulate(t, long(t, 8*time.Second)/4, Config{Damage: true}) }

// TestDamageHappens: copies are hurt and healed in these worlds.
func TestDamageHappens(t *testing.T) {
	var total Counts
	for seed := uint64(1); total.healed < 20 && total.Steps < 500_000; seed++ {
		c, err := Run(Config{Seed: seed, Damage: true})
		if err != nil {
			t.Fatal(err)
		}
		total.Steps += c.Steps
		total.hurts += c.hurts
		total.healed += c.healed
	}
	if total.hurts == 0 || total.healed < 20 {
		t.Errorf("%d copies hurt, %d healed in %d steps", total.hurts, total.healed, total.Steps)
	}
}

// TestBrokenScrub switches off what a scrub is for, and what it must keep to.
func TestBrokenScrub(t *testing.T) {
	for _, c := range []struct {
		name string
		off  Break
		want string
	}{
		{"nothing is made whole", BreakScrub, "copies are whole"},
		{"what is fetched is not verified", BreakScrubVerify, "two contents"},
		{"the damaged copy goes first", BreakScrubOrder, "deletes blob"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := find(t, Config{Break: c.off, Damage: true}, 0, 1_000_000)
			if err == nil {
				t.Error("not found")
			} else if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "panic") {
				t.Errorf("want %q", c.want)
			}
		})
	}
}
