package node

import (
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
)

// addrAge is how old an answer of an addrCache is at most. A store that fails
// meanwhile is found out by using it; that one came back is seen at once.
const addrAge = 100 * time.Millisecond

// An addrCache has the addresses of stores that are up: each copy of each blob
// asks for one, and the answer takes two records of the registry.
type addrCache struct {
	ask    func(cluster.StoreID) (addr string, up bool)
	stores sync.Map // cluster.StoreID -> upStore
}

type upStore struct {
	addr string
	at   time.Time
}

func (c *addrCache) get(id cluster.StoreID) (addr string, up bool) {
	now := time.Now()
	if v, ok := c.stores.Load(id); ok {
		if s := v.(upStore); now.Sub(s.at) < addrAge {
			return s.addr, true
		}
	}
	if addr, up = c.ask(id); up {
		c.stores.Store(id, upStore{addr, now})
	}
	return addr, up
}
