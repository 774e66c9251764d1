package systest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// TestRepair loses two of five nodes for good, one after the other, while a
// client writes: it sees no error, and what they had is copied to others by itself.
func TestRepair(t *testing.T) {
	t.Setenv("HAWSER_REPAIR_AFTER", "4s")
	c := startCluster(t, 5, 1)
	_, work := c.workProgram()
	k := c.client(1, "1G")
	k.run(time.Minute, c.mountCommand(1, "vers=4.2")+"; mkdir /mnt/nfs/main/ledger")
	wait := k.start(10*time.Minute, work+" ledger /mnt/nfs/main/ledger 50 6")
	time.Sleep(5 * time.Second)
	for _, i := range []int{5, 4} {
		before := c.repaired(t)
		c.kill(i)
		began := time.Now()
		c.wait(3*time.Minute, fmt.Sprintf("what node %d had to be copied", i), func() error {
			now := c.repaired(t)
			if now.leader != before.leader {
				before = progress{leader: now.leader} // which counts its own
			}
			if now.moves+now.waits > 0 || now.done == before.done {
				return fmt.Errorf("%+v", now)
			}
			return nil
		})
		t.Logf("node %d is lost: %d sets have another member after %v", i, c.repaired(t).done-before.done, time.Since(began).Round(time.Millisecond))
	}
	out, err := wait()
	if err != nil {
		t.Fatalf("the client saw an error: %v", err)
	}
	c.audit(k, out, "/mnt/nfs/main/ledger", work, 1)
	c.wait(3*time.Minute, "three copies of everything", func() error {
		if now := c.repaired(t); now.moves+now.waits > 0 {
			return fmt.Errorf("%+v", now)
		}
		report := c.must(1, "check", "--data")
		m := regexp.MustCompile(`(\d+) blobs, (\d+) copies looked at: 0 problems`).FindStringSubmatch(report)
		if m == nil {
			t.Fatal(report)
		}
		blobs, _ := strconv.Atoi(m[1])
		if copies, _ := strconv.Atoi(m[2]); blobs == 0 || copies < 3*blobs {
			return fmt.Errorf("%d blobs have %d copies", blobs, copies)
		}
		t.Log(report)
		return nil
	})
}

// progress is how far the repair of the volume main is.
type progress struct {
	leader             string // that carries it out
	moves, waits, done int
}

// repaired asks for it.
func (c *testCluster) repaired(t *testing.T) (p progress) {
	t.Helper()
	var all []struct {
		Leader string
		Status struct {
			Moves, Waits []any
			Totals       struct{ Done int }
		}
	}
	if err := json.Unmarshal([]byte(c.must(1, "repair", "status", "-o", "json")), &all); err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 {
		t.Fatalf("%d volumes", len(all))
	}
	s := all[0].Status
	return progress{all[0].Leader, len(s.Moves), len(s.Waits), s.Totals.Done}
}
