package member

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
)

// places reads "n1 n2+ n3- n4! n5d": + for one that is steady, - for one that
// is not ready and not lost, ! for one that is lost, d for one that drains.
func readPlaces(text string) (out []place) {
	for _, w := range strings.Fields(text) {
		p := place{id: cluster.NodeID(strings.TrimRight(w, "+-!d")), ready: !strings.ContainsAny(w, "-!")}
		p.steady, p.lost, p.draining = strings.Contains(w, "+"), strings.Contains(w, "!"), strings.Contains(w, "d")
		out = append(out, p)
	}
	return out
}

// readIdentities reads "n1 n2/g n1@n2 - own:n1 x:n1": the node that has it, its
// group, its home; - for nobody, own: for a node's own, x: for one that is retired.
func readIdentities(text string) (out []registry.Identity) {
	for k, w := range strings.Fields(text) {
		i := registry.Identity{ID: cluster.IdentityID(k + 1)}
		rest, own := strings.CutPrefix(w, "own:")
		rest, i.Retired = strings.CutPrefix(rest, "x:")
		if !own {
			i.Addr = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(k + 1)}), 24)
		}
		var home string
		rest, home, _ = strings.Cut(rest, "@")
		i.Home = cluster.NodeID(home)
		rest, i.Group, _ = strings.Cut(rest, "/")
		if i.Node = cluster.NodeID(rest); rest == "-" {
			i.Node = ""
		}
		out = append(out, i)
	}
	return out
}

func showMoves(moves []move) string {
	var words []string
	for _, m := range moves {
		words = append(words, fmt.Sprintf("%d>%s%s", m.identity, m.to, map[bool]string{true: "!"}[m.force]))
	}
	return strings.Join(words, " ")
}

func TestPlanIdentities(t *testing.T) {
	for _, x := range []struct {
		name, places, identities string
		failback                 bool
		want                     string
	}{
		{name: "all is well", places: "n1 n2 n3", identities: "n1 n2 n3 own:n1"},
		{name: "uneven stays uneven", places: "n1 n2 n3", identities: "n1 n1 n1"},
		{name: "new ones are spread", places: "n1 n2 n3", identities: "- - - -", want: "1>n1! 2>n2! 3>n3! 4>n1!"},
		{name: "where there are fewest", places: "n1 n2 n3", identities: "n1 n1 n2 -", want: "4>n3!"},
		{name: "groups are spread on their own", places: "n1 n2", identities: "n1/a n1/a n2/b -/a -/b", want: "4>n2! 5>n1!"},
		{name: "in a group evenly, in all as well as can be", places: "n1 n2", identities: "n1/a -/b", want: "2>n2!"},
		{name: "home if it is there", places: "n1 n2", identities: "n2 -@n2", want: "2>n2!"},
		{name: "elsewhere if it is not", places: "n1 n2!", identities: "-@n2", want: "1>n1!"},
		{name: "a lost node's are spread over the others", places: "n1! n2 n3", identities: "n1 n1 n1 n2", want: "1>n3! 2>n2! 3>n3!"},
		{name: "a silent node that is not lost yet keeps them", places: "n1- n2", identities: "n1"},
		{name: "and gets none", places: "n1- n2", identities: "- -", want: "1>n2! 2>n2!"},
		{name: "nobody is there", places: "n1! n2! n3-", identities: "n1 n2 -"},
		{name: "a node that is gone is lost", places: "n2", identities: "n1", want: "1>n2!"},
		{name: "a draining node's are handed over", places: "n1d n2 n3", identities: "n1 n1 n2", want: "1>n3 2>n2"},
		{name: "home first", places: "n1d n2 n3", identities: "n1@n3 n3", want: "1>n3"},
		{name: "not to another draining one", places: "n1d n2d", identities: "n1"},
		{name: "a draining node gets none", places: "n1d n2", identities: "- -@n1", want: "1>n2! 2>n2!"},
		{name: "not if it is the only one", places: "n1d", identities: "-"},
		{name: "a lost draining node", places: "n1d! n2", identities: "n1", want: "1>n2!"},
		{name: "away from home by hand stays", places: "n1+ n2+", identities: "n2@n1"},
		{name: "failback", places: "n1+ n2+", identities: "n2@n1", failback: true, want: "1>n1"},
		{name: "not before the home is steady", places: "n1 n2+", identities: "n2@n1", failback: true},
		{name: "nor to one that drains", places: "n1+d n2+", identities: "n2@n1", failback: true},
		{name: "at home already", places: "n1+ n2+", identities: "n1@n1", failback: true},
		{name: "a draining home's", places: "n1+d n2+", identities: "n1@n1", failback: true, want: "1>n2"},
		{name: "what has no home stays", places: "n1+ n2+", identities: "n2", failback: true},
		{name: "retired ones and nodes' own are left alone", places: "n1! n2", identities: "x:n1 x:- own:n1 own:-"},
		{name: "retired ones don't count", places: "n1 n2", identities: "x:n1 n2 -", want: "3>n1!"},
		{name: "no nodes", identities: "n1 -"},
	} {
		t.Run(x.name, func(t *testing.T) {
			if got := showMoves(planIdentities(readIdentities(x.identities), readPlaces(x.places), x.failback)); got != x.want {
				t.Errorf("got %q, want %q", got, x.want)
			}
		})
	}
}

// TestPlanIdentitiesSettles: once a plan is carried out nothing is left to do,
// whatever the nodes are; nothing goes to a node that can't have it; and what is
// taken from a lost node leaves nobody with two more than another of a group
// that got some.
func TestPlanIdentitiesSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var places []place
		for n := range rapid.IntRange(0, 5).Draw(t, "nodes") {
			state := rapid.SampledFrom([]string{"", "+", "-", "!", "d", "+d", "!d"}).Draw(t, "state")
			places = append(places, readPlaces(fmt.Sprintf("n%d%s", n+1, state))...)
		}
		var words []string
		for range rapid.IntRange(0, 12).Draw(t, "identities") {
			words = append(words, rapid.SampledFrom([]string{"-", "n1", "n2", "n3", "n4", "n9"}).Draw(t, "node")+
				rapid.SampledFrom([]string{"", "/a", "/b"}).Draw(t, "group")+rapid.SampledFrom([]string{"", "@n1", "@n2"}).Draw(t, "home"))
		}
		identities := readIdentities(strings.Join(words, " "))
		failback := rapid.Bool().Draw(t, "failback")
		for _, m := range planIdentities(identities, places, failback) {
			at := map[cluster.NodeID]place{}
			for _, p := range places {
				at[p.id] = p
			}
			i := &identities[m.identity-1]
			if to := at[m.to]; !to.ready || to.draining || m.to == i.Node {
				t.Fatalf("%v to %+v", *i, to)
			}
			if from, ok := at[i.Node]; m.force && ok && !from.lost {
				t.Fatalf("%v is taken by force from %+v", *i, from)
			}
			i.Node = m.to
		}
		if again := planIdentities(identities, places, failback); len(again) > 0 {
			t.Fatalf("there is more to do: %s", showMoves(again))
		}
	})
}

// A watchStep is a step of TestWatcherPlaces.
type watchStep struct {
	at     time.Duration
	hear   string // a heartbeat of n1: with "front" or "bare"
	missed time.Duration
	slept  time.Duration
	want   string // of n1: ready, steady, lost
}

// beats are heartbeats once a second.
func beats(n int) (out []watchStep) {
	for k := range n {
		out = append(out, watchStep{at: time.Duration(k) * time.Second, hear: "front"})
	}
	return out
}

// TestWatcherPlaces: when a node's addresses may be taken, and when it may be
// given some.
func TestWatcherPlaces(t *testing.T) {
	const takeover, steady = 1500 * time.Millisecond, 30 * time.Second
	for _, x := range []struct {
		name  string
		steps []watchStep
	}{
		{"a new leader gives a node the whole time", []watchStep{
			{at: 0, want: ""},
			{at: takeover, want: ""},
			{at: takeover + 1, want: "lost"},
		}},
		{"one that was heard may be given some", []watchStep{
			{at: 0, hear: "front", want: "ready"},
			{at: takeover / 2, want: "ready"},
			{at: takeover/2 + 1, want: ""},
			{at: takeover + 1, want: "lost"},
			{at: 2 * takeover, hear: "front", want: "ready"},
		}},
		{"one without a front-end may not, and loses what it has", []watchStep{
			{at: 0, hear: "bare", want: ""},
			{at: takeover, hear: "bare", want: ""},
			{at: takeover + 1, hear: "bare", want: "lost"},
			{at: takeover + 2, hear: "front", want: "ready"},
			{at: takeover + 3, hear: "bare", want: ""},
		}},
		{"steady after a while without a gap", []watchStep{
			{at: 0, hear: "front", want: "ready"},
			{at: time.Second, hear: "front"},
			{at: 2 * time.Second, hear: "front"},
			{at: 32 * time.Second, hear: "front", want: "ready"},
			{at: 32*time.Second + takeover/2, hear: "front"},
			{at: 33 * time.Second, hear: "front", want: "ready"},
		}},
		{"steady", append(beats(31), watchStep{at: 30*time.Second + 1, want: "ready steady"})},
		{"the last leader, which nobody has confirmed for long", []watchStep{
			{at: 0, missed: -time.Second, want: ""},
			{at: takeover - time.Second + 1, want: "lost"},
		}},
		{"is heard after all", []watchStep{
			{at: 0, hear: "front"},
			{at: 0, missed: -time.Minute, want: "ready"},
		}},
		{"a leader that did not run itself", []watchStep{
			{at: 0, hear: "front"},
			{at: time.Minute, slept: time.Minute - time.Second/2, want: "ready steady"},
			{at: time.Minute + time.Second, want: ""},
			{at: time.Minute + time.Second, slept: time.Hour, want: "ready steady"},
			{at: time.Minute + time.Second + takeover + 1, want: "lost"},
		}},
		{"it can't have been heard later than now", []watchStep{
			{at: 0, want: ""},
			{at: time.Second, missed: time.Hour, want: ""},
			{at: takeover + 1, want: "lost"},
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWatcher(time.Second, 3*time.Second)
			start := time.Unix(1000, 0)
			for k, s := range x.steps {
				now := start.Add(s.at)
				if s.hear != "" {
					w.heard(now, heartbeat{Node: "n1", FrontEnd: s.hear == "front"})
				}
				if s.missed != 0 {
					w.missed(now, "n1", now.Add(s.missed))
				}
				if s.slept != 0 {
					w.slept(now, s.slept)
				}
				p := w.place(now, "n1", takeover, steady)
				got := strings.TrimSpace(map[bool]string{true: "ready "}[p.ready] + map[bool]string{true: "steady "}[p.steady] + map[bool]string{true: "lost"}[p.lost])
				if got != s.want && (s.hear == "" || s.want != "") {
					t.Errorf("step %d: got %q, want %q", k, got, s.want)
				}
			}
		})
	}
}

// TestConfirmations: what a voter says of the leaders that it has confirmed.
func TestConfirmations(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	var c confirmations
	c.begin(at(0))
	for k, x := range []struct {
		at            int
		term, present uint64
		leader        cluster.NodeID
		ok            bool
		before        confirmation
	}{
		// Before this process anything may have been confirmed.
		{1, 5, 5, "n1", true, confirmation{at: at(0)}},
		{2, 5, 5, "n1", true, confirmation{at: at(0)}},
		// A leader of another term is told what the last one was promised.
		{4, 6, 6, "n2", true, confirmation{5, "n1", at(2)}},
		{5, 6, 6, "n2", true, confirmation{5, "n1", at(2)}},
		// A voter in a later term confirms nothing, and keeps what it knows.
		{6, 6, 7, "n2", false, confirmation{}},
		{7, 7, 7, "n3", true, confirmation{6, "n2", at(5)}},
		// A question of an old leader that comes late.
		{8, 6, 6, "n2", false, confirmation{}},
		{9, 7, 7, "n3", true, confirmation{6, "n2", at(5)}},
	} {
		before, ok := c.confirm(at(x.at), x.term, x.leader, func() uint64 { return x.present })
		if ok != x.ok || before != x.before {
			t.Errorf("question %d: got %+v, %v, want %+v, %v", k, before, ok, x.before, x.ok)
		}
	}
}

// TestParseAddress: each wrong address is told what is wrong.
func TestParseAddress(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.50/24":         "",
		"10.0.0.50/32":         "",
		"10.0.0.0/31":          "",
		"2001:db8::50/64":      "",
		"2001:db8::50/128":     "",
		"fd00::1/64":           "",
		"10.0.0.50":            "no prefix length",
		"2001:db8::50":         "no prefix length",
		"10.0.0/24":            "no address",
		"":                     "no address",
		"host/24":              "no address",
		"10.0.0.50/33":         "no address",
		"fe80::1%eth0/64":      "no prefix length",
		"::ffff:10.0.0.50/120": "write it as 10.0.0.50",
		"0.0.0.0/0":            "can't be the address",
		"127.0.0.1/8":          "can't be the address",
		"::1/128":              "can't be the address",
		"224.0.0.1/4":          "can't be the address",
		"fe80::1/64":           "link-local",
		"10.0.0.50/0":          "prefix length 0",
		"10.0.0.0/24":          "the subnet itself",
		"2001:db8::/64":        "the subnet itself",
		"10.0.0.255/24":        "broadcast",
		"10.0.1.255/23":        "broadcast",
		"10.0.0.255/23":        "",
		"10.0.0.3/30":          "broadcast",
	} {
		p, err := ParseAddress(in)
		switch {
		case want == "" && (err != nil || p.String() != in):
			t.Errorf("%s: got %v, %v", in, p, err)
		case want != "":
			fails(t, in, err, want)
		}
	}
}

// FuzzConns: any list of connections is refused or read, and then written the same.
func FuzzConns(f *testing.F) {
	f.Add(packConns([]netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:700"), netip.MustParseAddrPort("[2001:db8::1]:1023")}))
	f.Add([]byte{4, 1, 2, 3})
	f.Fuzz(func(t *testing.T, in []byte) {
		conns, err := unpackConns(in)
		if err != nil {
			return
		}
		again, err := unpackConns(packConns(conns))
		if err != nil || len(again) != len(conns) {
			t.Fatalf("%v, and again %v, %v", conns, again, err)
		}
	})
}
