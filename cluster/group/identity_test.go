package group

import (
	"context"
	"testing"
	"time"
)

// TestAddressChangesHands: a new node at a lost voter's address does not vote
// or acknowledge in its name, as it has not the lost one's log.
func TestAddressChangesHands(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.propose(c.leader(), "before")
	c.settle()
	survivor, lost := c.leader(), c.followers()
	for _, n := range lost {
		c.kill(n)
	}
	heir := c.addNode("n4")
	c.mu.Lock()
	for _, n := range lost {
		c.addrs[n.id] = c.addrs[heir.id]
	}
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if index, _, err := survivor.group.Propose(ctx, []byte("after")); err == nil {
		t.Errorf("one node of three committed %d", index)
	}
	if got := len(heir.machine.commands()); got != 0 {
		t.Errorf("the heir of the address got %d commands that were meant for another", got)
	}

	// The one that was not lost comes back, at another address.
	c.mu.Lock()
	delete(c.addrs, lost[1].id)
	c.mu.Unlock()
	c.start(lost[0])
	c.propose(survivor, "together")
}
