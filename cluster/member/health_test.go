package member

import (
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
)

func TestWatcher(t *testing.T) {
	const suspect, down = time.Second, 3 * time.Second
	start := time.Unix(1000, 0)
	type step struct {
		at     time.Duration
		hear   string          // a node's heartbeat
		agreed map[string]bool // else: judge with this
		want   string          // verdicts
		up     string          // nodes that placement takes as up
	}
	for _, x := range []struct {
		name  string
		steps []step
	}{
		{"a silent node goes down and comes back", []step{
			{at: 0, hear: "n1"},
			{at: 2 * time.Second, agreed: map[string]bool{"n1": true}},
			{at: 4 * time.Second, agreed: map[string]bool{"n1": true}, want: "-n1"},
			{at: 5 * time.Second, agreed: map[string]bool{"n1": false}},
			{at: 6 * time.Second, hear: "n1"},
			{at: 6 * time.Second, agreed: map[string]bool{"n1": false}, want: "+n1", up: "n1"},
		}},
		{"a new leader gives each node the whole time", []step{
			{at: 100 * time.Second, agreed: map[string]bool{"n1": true, "n2": true}},
			{at: 102 * time.Second, hear: "n2"},
			{at: 104 * time.Second, agreed: map[string]bool{"n1": true, "n2": true}, want: "-n1"},
		}},
		{"a node that was never heard is not brought up", []step{
			{at: 0, agreed: map[string]bool{"n1": false}},
			{at: time.Millisecond, agreed: map[string]bool{"n1": false}},
		}},
		{"a suspect node is not written to, and is not down", []step{
			{at: 0, hear: "n1"},
			{at: 0, hear: "n2"},
			{at: 1500 * time.Millisecond, hear: "n2"},
			{at: 1600 * time.Millisecond, agreed: map[string]bool{"n1": true, "n2": true}, up: "n2"},
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWatcher(suspect, down)
			for i, s := range x.steps {
				now := start.Add(s.at)
				if s.hear != "" {
					w.heard(now, heartbeat{Node: cluster.NodeID(s.hear)})
					continue
				}
				agreed := map[cluster.NodeID]bool{}
				for n, up := range s.agreed {
					agreed[cluster.NodeID(n)] = up
				}
				got := ""
				for _, v := range w.judge(now, agreed) {
					got += map[bool]string{true: "+", false: "-"}[v.up] + string(v.node)
				}
				if got != s.want {
					t.Errorf("step %d: got verdicts %q, want %q", i, got, s.want)
				}
				if s.up != "" {
					for n := range agreed {
						if got, want := w.up(now, n), string(n) == s.up; got != want {
							t.Errorf("step %d: up(%s) is %v, want %v", i, n, got, want)
						}
					}
				}
			}
		})
	}
}

func TestIdentity(t *testing.T) {
	dir := t.TempDir()
	a, err := loadIdentity(dir, "n1")
	if err != nil {
		t.Fatal(err)
	}
	b, err := loadIdentity(dir, "n1")
	if err != nil || b.Incarnation != a.Incarnation {
		t.Fatalf("got %+v, %v: want the incarnation to stay %s", b, err, a.Incarnation)
	}
	if _, err := loadIdentity(dir, "n2"); err == nil {
		t.Fatal("another node's folder was taken")
	}
}
