package admin

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/hawserfs/hawser/datastore/scrub"
)

func (f *fake) Scrub(ctx context.Context, req ScrubRequest, report func(ScrubEvent)) (ScrubSummary, error) {
	report(ScrubEvent{Problem: "a copy is gone"})
	report(ScrubEvent{Progress: "half"})
	return ScrubSummary{Counts: scrub.Counts{Copies: 7, Repaired: 2}}, f.call(ctx, "scrub %+v", req)
}

func (f *fake) ScrubStatus(ctx context.Context) ([]NodeScrubs, error) {
	return []NodeScrubs{{Node: "n1", Stores: []scrub.Status{{Store: 3, Running: true}}}}, f.call(ctx, "scrub status")
}

func (f *fake) File(ctx context.Context, path string, verify bool) (File, error) {
	return File{Path: path, Size: 5}, f.call(ctx, "file %s %v", path, verify)
}

func TestScrubCalls(t *testing.T) {
	f := &fake{}
	c, _ := serve(t, f)
	var lines []string
	sum, err := c.Scrub(t.Context(), ScrubRequest{Node: "n2"}, func(e ScrubEvent) { lines = append(lines, e.Problem+e.Progress) })
	if err != nil || sum.Copies != 7 || sum.Repaired != 2 || strings.Join(lines, ",") != "a copy is gone,half" || f.asked != "scrub {Path: Node:n2 Store:0}" {
		t.Errorf("%+v %v %q %q", sum, err, lines, f.asked)
	}
	list, err := c.ScrubStatus(t.Context())
	if err != nil || len(list) != 1 || list[0].Node != "n1" || !list[0].Stores[0].Running {
		t.Errorf("%+v %v", list, err)
	}
	file, err := c.File(t.Context(), "/main/a b&c", true)
	if err != nil || file.Path != "/main/a b&c" || f.asked != "file /main/a b&c true" {
		t.Errorf("%+v %v %q", file, err, f.asked)
	}
	f.err = errors.New("no such thing")
	if _, err := c.Scrub(t.Context(), ScrubRequest{}, func(ScrubEvent) {}); err == nil || err.Error() != "no such thing" {
		t.Errorf("%v", err)
	}
}

// A client that goes away ends the scrub.
func TestScrubIsStopped(t *testing.T) {
	f := &fake{wait: true, began: make(chan struct{}), ended: make(chan struct{})}
	c, _ := serve(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-f.began
		cancel()
	}()
	if _, err := c.Scrub(ctx, ScrubRequest{}, func(ScrubEvent) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	<-f.ended
}
