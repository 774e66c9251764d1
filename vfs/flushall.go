package vfs

import (
	"context"
	"fmt"
)

// Flush commits all unstable data that is held, of every client, and drops the
// states that were given up. A front-end that hands an address over calls it when
// that address's requests have ended: what it committed later could overwrite
// what its clients write elsewhere, and what it did not drop would be taken for
// theirs still.
func (s *System) Flush(ctx context.Context) error {
	var first error
	for _, m := range s.list() {
		if err := m.flushAll(ctx); err != nil && first == nil {
			first = fmt.Errorf("vfs: unstable data of volume %s was not committed: %w", m.Name, err)
		}
		m.dropAll(ctx)
	}
	return first
}
