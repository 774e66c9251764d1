package peer

import (
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listen opens an endpoint on the loopback that is closed with the test.
func listen(t testing.TB, self string, change func(*Config)) *Endpoint {
	t.Helper()
	cfg := Config{Self: cluster.NodeID(self), Listen: "127.0.0.1:0", ClusterID: "c1"}
	if change != nil {
		change(&cfg)
	}
	e, err := Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}
