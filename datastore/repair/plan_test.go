package repair

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"go.uber.org/goleak"

	"github.com/hawserfs/hawser/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// readStores reads lines like "3 n2/r1 down draining 40GB": number, node, rack.
func readStores(text string) (stores []Store) {
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		if len(w) == 0 {
			continue
		}
		id, _ := strconv.Atoi(w[0])
		node, rack, _ := strings.Cut(w[1], "/")
		s := Store{ID: cluster.StoreID(id), Node: cluster.NodeID(node), Rack: rack, Up: true, Capacity: 100}
		for _, x := range w[2:] {
			switch x {
			case "down":
				s.Up = false
			case "lost":
				s.Up, s.Lost = false, true
			case "draining":
				s.Draining = true
			case "full":
				s.Full = true
			default:
				s.Capacity, _ = strconv.ParseUint(x, 10, 64)
			}
		}
		stores = append(stores, s)
	}
	return stores
}

// readSets reads lines like "7: 1 2 3 copies=3 used read-only begun=4 bytes=10".
func readSets(t *testing.T, text string) (sets []Set) {
	for line := range strings.Lines(text) {
		head, rest, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		id, _ := strconv.Atoi(strings.TrimSpace(head))
		s := Set{ID: cluster.ReplicaSetID(id), Epoch: 1}
		for _, w := range strings.Fields(rest) {
			name, value, _ := strings.Cut(w, "=")
			n, _ := strconv.Atoi(value)
			switch name {
			case "copies":
				s.Copies = uint8(n)
			case "used":
				s.Used = true
			case "read-only":
				s.State = ReadOnly
			case "retired":
				s.State = Retired
			case "foreign":
				s.Foreign = true
			case "begun":
				s.Begun = cluster.StoreID(n)
			case "bytes":
				s.Bytes, s.Used = uint64(n), true
			default:
				m, err := strconv.Atoi(name)
				if err != nil {
					t.Fatalf("%q", w)
				}
				s.Members = append(s.Members, cluster.StoreID(m))
			}
		}
		if s.Copies == 0 {
			s.Copies = uint8(len(s.Members))
		}
		sets = append(sets, s)
	}
	return sets
}

func show(s *Set) string {
	text := fmt.Sprintf("set %d %v copies=%d", s.ID, s.Members, s.Copies)
	if s.State != Writable {
		text += " " + [...]string{"", "read-only", "retired"}[s.State]
	}
	return text
}

// A model is sets and stores in which plans are carried out.
type model struct {
	in   Input
	next cluster.ReplicaSetID
}

// step carries out what a plan says; moves succeed at once. It reports whether
// there was anything.
func (m *model) step(p Plan) bool {
	for _, s := range p.Put {
		if s.ID == 0 {
			m.next++
			s.ID, s.Epoch = m.next, 1
			m.in.Sets = append(m.in.Sets, s)
			continue
		}
		*m.set(s.ID) = s
	}
	if len(p.Put) > 0 {
		return true
	}
	for i := range p.Moves {
		s := m.set(p.Moves[i].Set.ID)
		s.Members = p.Moves[i].Members()
		s.State, s.Begun = Writable, 0
	}
	return len(p.Moves) > 0
}

func (m *model) set(id cluster.ReplicaSetID) *Set {
	return &m.in.Sets[slices.IndexFunc(m.in.Sets, func(s Set) bool { return s.ID == id })]
}

func (m *model) load(t *testing.T, d *datadriven.TestData) {
	switch d.Cmd {
	case "stores":
		m.in.Stores = readStores(d.Input)
	case "sets":
		m.in.Sets = readSets(t, d.Input)
		m.in.Busy, m.in.Pause, m.next = nil, nil, 100
	default:
		d.Fatalf(t, "no such command")
	}
}

// TestPlan runs scripts: stores and sets are given, "plan" prints the next
// steps, "settle" carries steps out until there are none and prints what was
// done to sets with blobs and what is left.
func TestPlan(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		m := &model{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			m.in.Balance = d.HasArg("balance")
			if d.HasArg("parallel") {
				d.ScanArgs(t, "parallel", &m.in.Parallel)
			}
			switch d.Cmd {
			case "busy":
				var set, from, to int
				d.ScanArgs(t, "set", &set)
				d.ScanArgs(t, "from", &from)
				d.ScanArgs(t, "to", &to)
				m.in.Busy = append(m.in.Busy, Move{*m.set(cluster.ReplicaSetID(set)), Lost, cluster.StoreID(from), cluster.StoreID(to)})
			case "needed":
				for i := range m.in.Busy {
					fmt.Fprintln(&out, Needed(&m.in, &m.in.Busy[i]))
				}
			case "pause":
				var set int
				d.ScanArgs(t, "set", &set)
				m.in.Pause = map[cluster.ReplicaSetID]string{cluster.ReplicaSetID(set): "it has failed"}
			case "plan":
				p := NewPlan(&m.in)
				writePlan(&out, &p, !d.HasArg("moves"))
			case "settle":
				for i := 0; ; i++ {
					p := NewPlan(&m.in)
					for j := range p.Moves {
						if len(p.Put) == 0 {
							x := &p.Moves[j]
							fmt.Fprintf(&out, "%d: set %d %v: %d to %d gives %v\n", i, x.Set.ID, x.Reason, x.From, x.To, x.Members())
						}
					}
					if !m.step(p) {
						writePlan(&out, &p, true)
						break
					}
					if i == 200 {
						d.Fatalf(t, "no end of steps")
					}
				}
				for i := range m.in.Sets {
					if m.in.Sets[i].Used {
						fmt.Fprintln(&out, show(&m.in.Sets[i]))
					}
				}
			case "count":
				// How many sets there are that can be written, by copies and members.
				n := map[string]int{}
				for i := range m.in.Sets {
					if s := &m.in.Sets[i]; s.State == Writable {
						n[fmt.Sprintf("copies=%d of %d members", s.Copies, len(s.Members))]++
					} else {
						n["others"]++
					}
				}
				for _, k := range []string{"copies=1 of 1 members", "copies=2 of 1 members", "copies=2 of 2 members", "copies=3 of 1 members", "copies=3 of 2 members", "copies=3 of 3 members", "others"} {
					if n[k] > 0 {
						fmt.Fprintf(&out, "%s: %d\n", k, n[k])
					}
				}
			case "each":
				// In how many writable sets of three each store is.
				n := map[cluster.StoreID]int{}
				for i := range m.in.Sets {
					if s := &m.in.Sets[i]; s.State == Writable && len(s.Members) == 3 {
						for _, id := range s.Members {
							n[id]++
						}
					}
				}
				for i := range m.in.Stores {
					fmt.Fprintf(&out, "%d:%d ", m.in.Stores[i].ID, n[m.in.Stores[i].ID])
				}
			default:
				m.load(t, d)
			}
			return out.String()
		})
	})
}

func writePlan(out *strings.Builder, p *Plan, puts bool) {
	for i := range p.Put {
		if puts {
			fmt.Fprintf(out, "put %s\n", show(&p.Put[i]))
		}
	}
	for i := range p.Moves {
		m := &p.Moves[i]
		fmt.Fprintf(out, "move set %d %v: %d to %d\n", m.Set.ID, m.Reason, m.From, m.To)
	}
	for _, w := range p.Waits {
		why := w.Why
		if why == "" {
			why = "its turn"
		}
		fmt.Fprintf(out, "wait set %d %v of %d: %s\n", w.Set, w.Reason, w.From, why)
	}
}
