package collect

import (
	"context"
	"time"
)

// Pace says how often Run takes its steps.
type Pace struct {
	Garbage time.Duration // between looks at the delete queues; 0: 5 s
	Orphans time.Duration // between batches of the search for orphans; 0: 2 s
	Rest    time.Duration // between two searches of all stores; 0: 10 min
}

// Run collects while lead reports that this node leads the volume's group,
// until ctx ends.
func (c *Collector) Run(ctx context.Context, lead func() bool, pace Pace) {
	if pace.Garbage == 0 {
		pace.Garbage = 5 * time.Second
	}
	if pace.Orphans == 0 {
		pace.Orphans = 2 * time.Second
	}
	if pace.Rest == 0 {
		pace.Rest = 10 * time.Minute
	}
	garbage := time.NewTimer(pace.Garbage)
	orphans := time.NewTimer(pace.Rest / 10)
	defer garbage.Stop()
	defer orphans.Stop()
	turn := 0 // which store is searched
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-garbage.C:
			for lead() {
				more, err := c.StepGarbage(ctx, now)
				if err != nil {
					c.cfg.Logger.Debug("collecting garbage", "group", c.cfg.Group, "err", err)
				}
				if !more || err != nil {
					break
				}
				now = time.Now()
			}
			garbage.Reset(pace.Garbage)
		case <-orphans.C:
			wait := pace.Orphans
			if all := c.cfg.Stores.All(); !lead() || len(all) == 0 {
				turn, wait = 0, pace.Rest
			} else if turn >= len(all) {
				turn, wait = 0, pace.Rest
			} else if id := all[turn]; !c.cfg.Stores.Up(id) {
				turn++
			} else if done, err := c.StepOrphans(ctx, id); done || err != nil {
				turn++
				if err != nil {
					c.cfg.Logger.Debug("collecting orphans", "group", c.cfg.Group, "store", id, "err", err)
				}
			}
			orphans.Reset(wait)
		}
	}
}
