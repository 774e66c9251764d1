package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hawserfs/hawser/cluster"
)

// TestAddrCache: an answer is kept for a while if the store is up, and not at
// all if it is down.
func TestAddrCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addr, up, asked := "a", true, 0
		c := addrCache{ask: func(cluster.StoreID) (string, bool) {
			asked++
			return addr, up
		}}
		want := func(wantAddr string, wantUp bool, wantAsked int) {
			t.Helper()
			if a, u := c.get(1); a != wantAddr || u != wantUp || asked != wantAsked {
				t.Errorf("%q %v after asking %d times, want %q %v after %d", a, u, asked, wantAddr, wantUp, wantAsked)
			}
		}
		want("a", true, 1)
		want("a", true, 1)
		addr = "b"
		time.Sleep(addrAge)
		want("b", true, 2)
		up = false
		want("b", true, 2)
		time.Sleep(addrAge)
		want("b", false, 3)
		want("b", false, 4)
		up = true
		want("b", true, 5)
		want("b", true, 5)
	})
}
