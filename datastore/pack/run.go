package pack

import (
	"context"
	"time"
)

// Run packs while the configuration's Lead reports that this node is to, until
// ctx ends: a pass every `every`.
func (p *Packer) Run(ctx context.Context, every time.Duration) {
	t := time.NewTimer(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			if p.cfg.Lead() {
				if err := p.Pack(ctx, now); err != nil {
					p.cfg.Logger.Debug("packing", "err", err)
				}
				if err := p.Compact(ctx, now); err != nil {
					p.cfg.Logger.Debug("compacting", "err", err)
				}
				p.pass.Store(int64(time.Since(now)))
			}
			t.Reset(every)
		}
	}
}

// Pace returns a Config.Wait that lets so many bytes a second pass, on average,
// and none if bytes is 0 or less.
func Pace(bytes int64) func(ctx context.Context, n int) error {
	var free time.Time // when the next may begin
	return func(ctx context.Context, n int) error {
		if bytes <= 0 {
			return nil
		}
		now := time.Now()
		wait := free.Sub(now)
		if wait < 0 {
			free, wait = now, 0
		}
		free = free.Add(time.Duration(float64(n) / float64(bytes) * float64(time.Second)))
		if wait == 0 {
			return ctx.Err()
		}
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
			return nil
		}
	}
}
