package systest

import (
	"context"
	"testing"
	"time"
)

// TestConformance holds a real cluster to the rules of the RFCs, through a
// node that follows and through a floating address.
func TestConformance(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 0)
	c.must(1, "address", "add", floating(0)+"/24")
	c.server(floating(0))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for _, address := range []string{c.lab.HostAddr(c.leader(1)%3 + 1), floating(0)} {
		out, err := c.lab.Command(ctx, 0, hawser, "conformance", address+"/main").CombinedOutput()
		if err != nil {
			t.Errorf("at %s: %v\n%s", address, err, out)
		}
	}
	c.check()
}
