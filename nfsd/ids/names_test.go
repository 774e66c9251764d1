package ids

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestNames(t *testing.T) {
	var asked []string
	fail := error(nil)
	n := NewNames(NamesConfig{Domain: "example.org", Max: 2, Lookup: func(name string, group bool) (uint32, error) {
		asked = append(asked, name)
		switch {
		case fail != nil:
			return 0, fail
		case name == "alice" && !group:
			return 1000, nil
		case name == "staff" && group:
			return 50, nil
		}
		return 0, ErrUnknown
	}})
	now := time.Unix(1000, 0)
	n.now = func() time.Time { return now }
	for _, c := range []struct {
		owner string
		group bool
		id    uint32
		ok    bool
		asks  int // in all so far
	}{
		{"alice@example.org", false, 1000, true, 1},
		{"alice@EXAMPLE.ORG", false, 1000, true, 1},
		{"alice@example.com", false, 0, false, 1},
		{"alice", false, 0, false, 1},
		{"@example.org", false, 0, false, 1},
		{"alice@example.org@example.org", false, 0, false, 1},
		{"staff@example.org", true, 50, true, 2},
		{"alice@example.org", true, 0, false, 3},
		{"alice@example.org", true, 0, false, 3},
	} {
		if id, ok := n.ID(context.Background(), c.owner, c.group); id != c.id || ok != c.ok || len(asked) != c.asks {
			t.Errorf("%+v: %d %v, asked %d times", c, id, ok, len(asked))
		}
	}
	known := 0
	n.known.Range(func(any, any) bool { known++; return true })
	if known > 2 {
		t.Errorf("%d names are remembered", known)
	}
	// What is known outlives a failure.
	n.ID(context.Background(), "alice@example.org", false)
	now, fail = now.Add(time.Hour), errors.New("no answer")
	if id, ok := n.ID(context.Background(), "alice@example.org", false); id != 1000 || !ok {
		t.Error(id, ok)
	}
	if _, ok := n.ID(context.Background(), "bob@example.org", false); ok {
		t.Error("bob is known")
	}
}

func TestNamesWait(t *testing.T) {
	stuck := make(chan struct{})
	defer close(stuck)
	n := NewNames(NamesConfig{Domain: "d", Wait: time.Millisecond, MaxBusy: 1, Lookup: func(string, bool) (uint32, error) {
		<-stuck
		return 1, nil
	}})
	for _, name := range []string{"a@d", "a@d", "b@d"} {
		if _, ok := n.ID(context.Background(), name, false); ok {
			t.Error(name, "is known")
		}
	}
}

func TestSystemName(t *testing.T) {
	if id, err := SystemName("root", false); id != 0 || err != nil {
		t.Error(id, err)
	}
	for _, group := range []bool{false, true} {
		if _, err := SystemName("no such name, surely", group); !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
	}
}
