package fsm

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/hawserfs/hawser/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const kindScript = FirstCoreKind

// script is a command whose body says what to do: operations separated by ";".
type script string

func (s script) Kind() Kind                 { return kindScript }
func (s script) AppendTo(dst []byte) []byte { return append(dst, s...) }

// scriptCore runs scripts. The result is the text that the operations append.
//
//	set K V, del K, get K, add K N (a decimal counter), delrange LO HI LIMIT
//	scan LO HI, mirror LO HI (writes each key met again, under the key with
//	"+" at its end, for keys shorter than 4), cull LO HI (deletes the key
//	after each one met), nest LO HI (scans the rest for each)
//	fail ERRNO, panic, emit X, writer ID, live, big BYTES, index, time
type scriptCore struct{}

// store is what a script works on: a Tx, or the model of one.
type store interface {
	Reader
	Set(key, value []byte)
	Delete(key []byte)
	DeleteRange(lower, upper []byte, limit int) (n int, more bool)
	Result(e cluster.Errno) []byte
	Emit(event any)
}

func (scriptCore) Apply(tx *Tx, index uint64, env *Envelope, body []byte) []byte {
	return runScript(tx, index, env, body)
}

func runScript(tx store, index uint64, env *Envelope, body []byte) []byte {
	out := tx.Result(cluster.OK)
	for op := range strings.SplitSeq(string(body), ";") {
		f := strings.Fields(op)
		if len(f) == 0 {
			continue
		}
		arg := func(i int) []byte { return []byte(f[i]) }
		num := func(i int) int { n, _ := strconv.Atoi(f[i]); return n }
		switch f[0] {
		case "set":
			tx.Set(arg(1), arg(2))
		case "del":
			tx.Delete(arg(1))
		case "get":
			if v, ok := tx.Get(nil, arg(1)); ok {
				out = fmt.Appendf(out, " %s=%s", f[1], v)
			} else {
				out = fmt.Appendf(out, " %s?", f[1])
			}
		case "add":
			v, _ := tx.Get(nil, arg(1))
			n, _ := strconv.Atoi(string(v))
			n += num(2)
			tx.Set(arg(1), strconv.AppendInt(nil, int64(n), 10))
			out = fmt.Appendf(out, " %d", n)
		case "delrange":
			n, more := tx.DeleteRange(arg(1), arg(2), num(3))
			out = fmt.Appendf(out, " %d %v", n, more)
		case "scan":
			tx.Ascend(arg(1), arg(2), func(k, v []byte) bool {
				out = fmt.Appendf(out, " %s=%s", k, v)
				return true
			})
		case "nest":
			tx.Ascend(arg(1), arg(2), func(k, _ []byte) bool {
				out = fmt.Appendf(out, " %s(", k)
				tx.Ascend(append(append([]byte(nil), k...), 0), arg(2), func(k, _ []byte) bool {
					out = fmt.Appendf(out, "%s,", k)
					return true
				})
				out = append(out, ')')
				return true
			})
		case "mirror":
			tx.Ascend(arg(1), arg(2), func(k, v []byte) bool {
				out = fmt.Appendf(out, " %s=%s", k, v)
				if len(k) < 4 {
					tx.Set(append(append([]byte(nil), k...), '+'), append(append([]byte(nil), v...), '+'))
				}
				return true
			})
		case "cull":
			tx.Ascend(arg(1), arg(2), func(k, _ []byte) bool {
				out = fmt.Appendf(out, " %s", k)
				tx.DeleteRange(append(append([]byte(nil), k...), 0), arg(2), 1)
				return true
			})
		case "fail":
			return append(tx.Result(errnoNamed(f[1])), out[2:]...)
		case "panic":
			panic("asked for")
		case "emit":
			tx.Emit(f[1])
		case "writer":
			w, ok := tx.(*Tx).Writer(cluster.WriterID(num(1)))
			out = fmt.Appendf(out, " %s lwm=%d fenced=%v ok=%v", w.Node, w.LowWater, w.Fenced, ok)
		case "live":
			for _, w := range tx.(*Tx).LiveWriters() {
				out = fmt.Appendf(out, " %d", w.ID)
			}
		case "big":
			out = append(out, make([]byte, num(1))...)
		case "index":
			out = fmt.Appendf(out, " %d %d %d", index, tx.(*Tx).Index(), env.Seq)
		case "time":
			out = fmt.Appendf(out, " %d", tx.(*Tx).Time())
		default:
			return tx.Result(cluster.EINVAL)
		}
	}
	return out
}

var errnos = map[string]cluster.Errno{
	"ENOENT": cluster.ENOENT, "EINVAL": cluster.EINVAL, "EFENCED": cluster.EFENCED,
	"EVERSION": cluster.EVERSION, "EINTERNAL": cluster.EINTERNAL,
	"EREPLAY": cluster.EREPLAY, "ERETRY": cluster.ERETRY,
}

func errnoNamed(name string) cluster.Errno {
	e, ok := errnos[name]
	if !ok {
		panic("no errno " + name)
	}
	return e
}

// showResult shows a result as "ERRNO body".
func showResult(result []byte) string {
	if result == nil {
		return "skipped"
	}
	body, err := SplitResult(result)
	text := "ok"
	for name, e := range errnos {
		if err == e.Err() && err != nil {
			text = name
		}
	}
	if len(body) > 200 {
		return fmt.Sprintf("%s %d bytes", text, len(body))
	}
	return text + string(body)
}

func command(env Envelope, text string) []byte { return AppendCommand(nil, env, script(text)) }

// openTest opens a machine on fs that is closed with the test.
func openTest(t testing.TB, fs vfs.FS) *Machine {
	t.Helper()
	m, err := Open(Options{Dir: "group", FS: fs, Core: scriptCore{}, MemTableBytes: 256 << 10, CacheBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}
