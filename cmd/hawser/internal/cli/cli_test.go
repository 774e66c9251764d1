package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/member"
	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestMain lets the test program stand in for hawser: `dev` starts it again as
// its nodes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "server" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		err := Root("test").ExecuteContext(ctx)
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, "hawser:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// run runs a command line and returns what it wrote.
func run(args ...string) (out, progress string, err error) {
	var o, p bytes.Buffer
	cmd := Root("v1.2")
	cmd.SetArgs(args)
	cmd.SetOut(&o)
	cmd.SetErr(&p)
	err = cmd.ExecuteContext(context.Background())
	return o.String(), p.String(), err
}

// golden compares text with a file in testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || text != string(want) {
		t.Errorf("%s: %v; run with -update if this is meant:\n%s", file, err, text)
	}
}

// sample is the status of a cluster that is not all well.
func sample() admin.Status {
	hour := time.Now().Add(-time.Hour - time.Second)
	return admin.Status{Version: "v1.2", Serving: []string{"10.0.0.1:2049"}, Cluster: member.Status{
		Self: "n1", Member: true, UUID: "00ff", Name: "lab",
		Nodes: []member.NodeStatus{
			{ID: "n1", PeerAddr: "10.0.0.1:7420", NFSAddr: "10.0.0.1:2049", Roles: "meta,data,nfs", Rack: "r1", State: "up", Since: hour},
			{ID: "n2", PeerAddr: "10.0.0.2:7420", Roles: "meta,data", State: "down", Since: hour, Draining: true},
		},
		Stores: []member.StoreStatus{
			{ID: 1, Node: "n1", State: "up", Capacity: 4 << 40, Used: 1 << 40},
			{ID: 2, Node: "n2", State: "down", Capacity: 4 << 40},
		},
		Groups: []member.GroupStatus{
			{ID: 0, Leader: "n1", Term: 2, Applied: 10, Members: []member.MemberStatus{{Node: "n1", Voter: true, Applied: 10}, {Node: "n2", Applied: 9}}},
			{ID: 1, Term: 3, Applied: 1234},
		},
		Volumes: []member.VolumeStatus{
			{ID: 1, Name: "main", Consistency: "strict", Copies: 2, Files: 7, Bytes: 5 << 20, Sets: member.SetsStatus{Healthy: 3, Degraded: 1, Reduced: 1}},
		},
		Problems: []string{"node n2 is down since yesterday", "group 1 has no leader"},
		Identities: []member.IdentityStatus{
			{ID: 1, Home: "n1", Node: "n1", State: "serving", Since: hour, Clients: 3},
			{ID: 2, Address: "10.0.0.50/24", Node: "n1", State: "serving", Since: hour, Clients: 12},
			{ID: 3, Address: "fd00::50/64", Group: "fast", State: "unserved", Home: "n2", Since: hour},
		},
	}}
}

func TestStatusText(t *testing.T) {
	text := func(st admin.Status) string {
		var b bytes.Buffer
		writeStatus(&b, st)
		for line := range strings.Lines(b.String()) {
			if strings.HasSuffix(line, " \n") {
				t.Errorf("spaces at the end of %q", line)
			}
		}
		return b.String()
	}
	st := sample()
	golden(t, "status.txt", text(st))
	st.Cluster.Problems, st.Serving, st.Cluster.Identities = nil, nil, nil
	golden(t, "status-well.txt", text(st))
	golden(t, "status-new.txt", text(admin.Status{Version: "v1.2", Cluster: member.Status{Self: "n1"}}))
}

func TestOtherText(t *testing.T) {
	var b bytes.Buffer
	writeVolumes(&b, []admin.Volume{
		{Name: "main", ID: 1, Consistency: "strict", Copies: 3, Files: 12345, Bytes: 3 << 30},
		{Name: "a-longer-name", ID: 22, Consistency: "relaxed", Copies: 1},
	})
	fmt.Fprintln(&b)
	writeClass(&b, admin.Class{Path: "/main/a", Consistency: "relaxed", Copies: 2})
	fmt.Fprintln(&b)
	writeSummary(&b, admin.CheckSummary{Volumes: 1, Inodes: 2, Blobs: 3, Copies: 9})
	writeSummary(&b, admin.CheckSummary{Volumes: 1, Inodes: 2, Blobs: 3, Copies: 9, Problems: 4, Unused: 5, Skipped: []cluster.StoreID{2, 7}})
	fmt.Fprintln(&b)
	writeAddresses(&b, sample().Cluster.Identities)
	golden(t, "other.txt", b.String())
}

func TestParseClass(t *testing.T) {
	for _, x := range []struct{ words, want, err string }{
		{words: "consistency=relaxed", want: "{/p relaxed 0}"},
		{words: "copies=2", want: "{/p  2}"},
		{words: "consistency=strict copies=1", want: "{/p strict 1}"},
		{words: "copies", err: "KEY=VALUE"},
		{words: "copies=0", err: "1, 2 or 3"},
		{words: "copies=4", err: "1, 2 or 3"},
		{words: "copies=two", err: "1, 2 or 3"},
		{words: "consistency=loose", err: "strict or relaxed"},
		{words: "colour=red", err: "consistency or copies"},
		{words: "copies=2 ec=none", want: "{/p  2}"},
		{words: "ec=4", err: "like 4+2"},
		{words: "ec=4+2", err: "keeps copies only"},
	} {
		got, err := parseClass("/p", strings.Fields(x.words))
		switch {
		case x.err == "" && (err != nil || fmt.Sprint(got) != x.want):
			t.Errorf("%s: got %v, %v, want %s", x.words, got, err, x.want)
		case x.err != "" && (err == nil || !strings.Contains(err.Error(), x.err)):
			t.Errorf("%s: got %v, want an error with %q", x.words, err, x.err)
		}
	}
}

// A fake is the Backend behind the verbs.
type fake struct {
	admin.Backend
	set   admin.Class
	asked []any
}

func (f *fake) ask(req any) error {
	f.asked = append(f.asked, req)
	return nil
}

func (f *fake) Addresses(context.Context) ([]member.IdentityStatus, error) {
	return sample().Cluster.Identities, nil
}

func (f *fake) AddAddress(_ context.Context, r admin.AddressRequest) error {
	return f.ask(r)
}

func (f *fake) MoveAddress(_ context.Context, r admin.AddressRequest) error {
	return f.ask(r)
}

func (f *fake) RemoveAddress(_ context.Context, r admin.AddressRequest) error {
	return f.ask(r)
}
func (f *fake) Drain(_ context.Context, r admin.DrainRequest) error { return f.ask(r) }

func (f *fake) Status() admin.Status { return sample() }
func (f *fake) Volumes(context.Context) ([]admin.Volume, error) {
	return []admin.Volume{{Name: "main", ID: 1, Consistency: "strict", Copies: 3}}, nil
}

func (f *fake) SetClass(_ context.Context, c admin.Class) (admin.Class, error) {
	f.set = c
	return c, nil
}

func (f *fake) Check(_ context.Context, _ admin.CheckRequest, report func(admin.CheckEvent)) (admin.CheckSummary, error) {
	report(admin.CheckEvent{Progress: "looking"})
	report(admin.CheckEvent{Problem: "a hole"})
	return admin.CheckSummary{Volumes: 1, Problems: 1}, nil
}

func TestVerbs(t *testing.T) {
	f := &fake{}
	socket := filepath.Join(t.TempDir(), "s")
	s, err := admin.Listen(socket, f, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	out, _, err := run("status", "--socket", socket, "-o", "json")
	var st admin.Status
	if err != nil || json.Unmarshal([]byte(out), &st) != nil || st.Cluster.Name != "lab" {
		t.Errorf("status -o json: %v, %s", err, out)
	}
	if out, _, err = run("volume", "show", "main", "--socket", socket); err != nil || !strings.Contains(out, "main") {
		t.Errorf("volume show: %v, %s", err, out)
	}
	if out, _, err = run("class", "set", "/main/a", "copies=2", "--socket", socket); err != nil || f.set.Copies != 2 || out != "/main/a: consistency= copies=2\n" {
		t.Errorf("class set: %v, %q, %+v", err, out, f.set)
	}
	if out, _, err = run("address", "list", "--socket", socket); err != nil || !strings.Contains(out, "fd00::50/64") {
		t.Errorf("address list: %v, %s", err, out)
	}
	for _, x := range []struct{ args, want string }{
		{"add 10.0.0.50/24 --group g --home n1", "{Address:10.0.0.50/24 Group:g Home:n1 Node:}"},
		{"move 10.0.0.50 n2", "{Address:10.0.0.50 Group: Home: Node:n2}"},
		{"move 10.0.0.50", "{Address:10.0.0.50 Group: Home: Node:}"},
		{"remove 10.0.0.50", "{Address:10.0.0.50 Group: Home: Node:}"},
		{"drain n1", "{Node:n1 Drain:true}"},
		{"undrain n1", "{Node:n1 Drain:false}"},
	} {
		f.asked = nil
		if out, _, err = run(append(strings.Fields("address "+x.args), "--socket", socket)...); err != nil || fmt.Sprintf("%+v", f.asked) != "["+x.want+"]" || out == "" {
			t.Errorf("address %s: %v, %q, %+v", x.args, err, out, f.asked)
		}
	}
	out, progress, err := run("check", "--socket", socket)
	if err == nil || err.Error() != "1 problems found" || progress != "looking\n" || !strings.HasPrefix(out, "problem: a hole\n1 volumes") {
		t.Errorf("check: %v, %q, %q", err, out, progress)
	}

	for _, x := range []struct{ args, want string }{
		{"status -o yaml --socket x", "text or json"},
		{"volume show none --socket " + socket, "hawser volume list"},
		{"volume create a --copies 0 --socket x", "1, 2 or 3"},
		{"volume create a --consistency loose --socket x", "strict or relaxed"},
		{"cluster init --copies 9 --socket x", "1, 2 or 3"},
		{"check n1.yaml --socket x", "--offline"},
		{"check --offline --socket x", "choose one"},
		{"check --offline --config /nonexistent/h.yaml", "/nonexistent/h.yaml"},
		{"status --socket /nonexistent", "hawser server"},
		{"status --config /nonexistent/h.yaml", "--config"},
		{"address add 10.0.0.50 --socket x", "10.0.0.50/24"},
		{"address add 10.0.0.50/24 --group a,b --socket x", "a group's name"},
		{"dev --nodes 0", "1 to 9"},
		{"dev --port 65535", "--port"},
	} {
		if _, _, err := run(strings.Fields(x.args)...); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: got %v, want an error with %q", x.args, err, x.want)
		}
	}
}
