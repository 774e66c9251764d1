package fsm

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
)

// model is a Tx the obvious way: a map that is copied for each command.
type model map[string]string

func (m model) Get(dst, key []byte) ([]byte, bool) {
	v, ok := m[string(key)]
	return append(dst, v...), ok
}

func (m model) Ascend(lower, upper []byte, fn func(key, value []byte) bool) {
	for at := string(lower); ; {
		next, found := "", false
		for k := range m {
			if k >= at && k < string(upper) && (!found || k < next) {
				next, found = k, true
			}
		}
		if !found || !fn([]byte(next), []byte(m[next])) {
			return
		}
		at = next + "\x00"
	}
}

func (m model) Set(key, value []byte) { m[string(key)] = string(value) }
func (m model) Delete(key []byte)     { delete(m, string(key)) }
func (m model) Emit(any)              {}

func (m model) DeleteRange(lower, upper []byte, limit int) (n int, more bool) {
	m.Ascend(lower, upper, func(k, _ []byte) bool {
		if n == limit {
			more = true
			return false
		}
		delete(m, string(k))
		n++
		return true
	})
	return n, more
}

func (m model) Result(e cluster.Errno) []byte { return AppendResult(nil, e) }

// TestTxModel compares Tx with the model over random scripts and batches.
func TestTxModel(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 10))
		m := openTest(t, vfs.NewMem())
		state := model{}
		key := func() string { return fmt.Sprintf("A%d", rng.IntN(30)) }
		for index := uint64(1); index < 60; {
			var entries []cluster.Entry
			var want []string
			for range 1 + rng.IntN(10) {
				text := ""
				for range 1 + rng.IntN(5) {
					switch rng.IntN(9) {
					case 0:
						text += "del " + key()
					case 1:
						text += "get " + key()
					case 2:
						text += fmt.Sprintf("delrange %s %s %d", key(), key(), rng.IntN(6))
					case 3:
						text += fmt.Sprintf("scan %s %s", key(), key())
					case 4:
						text += fmt.Sprintf("mirror %s %s", key(), key())
					case 5:
						text += fmt.Sprintf("cull %s %s", key(), key())
					case 6:
						text += fmt.Sprintf("nest %s %s", key(), key())
					default:
						text += fmt.Sprintf("set %s %d", key(), rng.IntN(1000))
					}
					text += ";"
				}
				if rng.IntN(5) == 0 {
					text += "fail ENOENT"
				}
				after := model{}
				for k, v := range state {
					after[k] = v
				}
				result := runScript(after, index, &Envelope{}, []byte(text))
				if _, err := SplitResult(result); err == nil {
					state = after
				}
				entries = append(entries, cluster.Entry{Index: index, Term: 1, Command: command(Envelope{}, text)})
				want = append(want, string(result))
				index++
			}
			for i, r := range m.Apply(entries) {
				if string(r) != want[i] {
					t.Fatalf("seed %d, entry %d, %s:\n got %q\nwant %q", seed, entries[i].Index, entries[i].Command, r, want[i])
				}
			}
		}
		var got, want []string
		m.Reader().Ascend([]byte("A"), []byte("Z"), func(k, v []byte) bool {
			got = append(got, string(k)+"="+string(v))
			return true
		})
		for _, k := range slices.Sorted(maps.Keys(state)) {
			want = append(want, k+"="+state[k])
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d:\n got %q\nwant %q", seed, got, want)
		}
	}
}

// touchCore does what a create does: reads one record, writes three.
type touchCore struct{}

func (touchCore) Apply(tx *Tx, index uint64, env *Envelope, body []byte) []byte {
	var key, value [64]byte
	k := append(key[:0], "I\x00\x00\x00\x00\x00\x00\x00\x01"...)
	v, _ := tx.Get(value[:0], k)
	if len(v) < 40 {
		v = append(v, make([]byte, 40)...)
	}
	v[0]++
	tx.Set(k, v)
	k = append(append(key[:0], 'I'), body...)
	tx.Set(k, v)
	k = append(append(key[:0], 'D'), body...)
	if _, ok := tx.Get(nil, k); ok {
		return tx.Result(cluster.EEXIST)
	}
	tx.Set(k, v[:20])
	return append(tx.Result(cluster.OK), v...)
}

func touchEntries(n int, from uint64) []cluster.Entry {
	entries := make([]cluster.Entry, n)
	for i := range entries {
		index := from + uint64(i)
		entries[i] = cluster.Entry{Index: index, Term: 1, Command: command(
			Envelope{Writer: 1, Lane: uint16(i), Seq: index, LowWater: uint32(index), Time: cluster.Time(index)}, fmt.Sprintf("%08d", index*7919%99999989))}
	}
	return entries
}

func openTouch(t testing.TB) *Machine {
	t.Helper()
	m, err := Open(Options{Dir: t.TempDir(), Core: touchCore{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	m.Apply([]cluster.Entry{{Index: 1, Term: 1, Command: AppendCommand(nil, Envelope{}, &OpenWriter{Node: "n", Nonce: 1})}})
	return m
}

// TestApplyAllocations holds the hot path to a few allocations a batch.
func TestApplyAllocations(t *testing.T) {
	m := openTouch(t)
	const batch = 64
	next := uint64(2)
	entries := touchEntries(batch*40, next)
	for range 20 {
		m.Apply(entries[next-2 : next-2+batch])
		next += batch
	}
	n := testing.AllocsPerRun(10, func() {
		m.Apply(entries[next-2 : next-2+batch])
		next += batch
	})
	if n > batch/2 {
		t.Errorf("%v allocations for %d commands", n, batch)
	}
}

func BenchmarkApply(b *testing.B) {
	for _, batch := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			m := openTouch(b)
			entries := touchEntries(b.N, 2)
			// Lanes are reused: 0 to 255.
			for i := range entries {
				entries[i].Command = command(Envelope{Writer: 1, Lane: uint16(i % 256), Seq: uint64(i + 1), LowWater: uint32(i)}, fmt.Sprintf("%08d", i*7919%99999989))
			}
			b.ReportAllocs()
			b.ResetTimer()
			for at := 0; at < b.N; at += batch {
				m.Apply(entries[at:min(at+batch, b.N)])
			}
		})
	}
}
