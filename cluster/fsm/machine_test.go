package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
)

func entry(index uint64, text string) cluster.Entry {
	return cluster.Entry{Index: index, Term: 1, Command: command(Envelope{}, text)}
}

// TestReadersAcrossRestore reads while commands are applied and the state is
// replaced: each read is of one whole state, and none fails.
func TestReadersAcrossRestore(t *testing.T) {
	fs := vfs.NewMem()
	m := openTest(t, fs)
	m.Apply([]cluster.Entry{entry(1, "set A 0; set B 0")})
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for !stop.Load() {
				s := m.Snapshot()
				a, ok := s.Get(nil, []byte("A"))
				b, _ := s.Get(nil, []byte("B"))
				if !ok || string(a) != string(b) {
					t.Errorf("A = %s, B = %s at %d", a, b, s.Index())
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				n := 0
				m.Reader().Ascend([]byte("A"), []byte("Z"), func(_, _ []byte) bool { n++; return true })
				if _, ok := m.Reader().Get(nil, []byte("A")); !ok || n != 2 {
					t.Errorf("%d keys", n)
				}
				m.Writers()
			}
		})
	}
	index := uint64(1)
	for round := range 8 {
		dir := fmt.Sprintf("ck%d", round)
		if _, err := m.Checkpoint(dir); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			index++
			m.Apply([]cluster.Entry{entry(index, fmt.Sprintf("set A %d; set B %d", index, index))})
		}
		if err := m.Restore(dir); err != nil {
			t.Fatal(err)
		}
		index, _ = m.Applied()
	}
	stop.Store(true)
	wg.Wait()
}

// TestRestoreKeepsReaders: a reader ends on the state that it began on.
func TestRestoreKeepsReaders(t *testing.T) {
	fs := vfs.NewMem()
	m := openTest(t, fs)
	m.Apply([]cluster.Entry{entry(1, "set A 1; set B 1")})
	if _, err := m.Checkpoint("ck"); err != nil {
		t.Fatal(err)
	}
	m.Apply([]cluster.Entry{entry(2, "set A 2; set B 2")})
	snap := m.Snapshot()
	got := ""
	m.Reader().Ascend([]byte("A"), []byte("Z"), func(_, v []byte) bool {
		if got == "" {
			if err := m.Restore("ck"); err != nil {
				t.Fatal(err)
			}
		}
		got += string(v)
		return true
	})
	if got != "22" {
		t.Errorf("read %s across a restore", got)
	}
	if v, _ := snap.Get(nil, []byte("A")); string(v) != "2" || snap.Index() != 2 {
		t.Errorf("the snapshot reads %s at %d", v, snap.Index())
	}
	if v, _ := m.Reader().Get(nil, []byte("A")); string(v) != "1" {
		t.Errorf("a new read gives %s", v)
	}
	if names, _ := fs.List("group"); len(names) != 2 {
		t.Errorf("folders while the old state is read: %v", names)
	}
	if err := snap.Close(); err != nil {
		t.Error(err)
	}
	if names, _ := fs.List("group"); len(names) != 1 {
		t.Errorf("folders afterwards: %v", names)
	}
}

func TestSubscribe(t *testing.T) {
	m := openTest(t, vfs.NewMem())
	var got []string
	cancel := m.Subscribe(func(index uint64, events []any) {
		v, _ := m.Reader().Get(nil, []byte("A"))
		applied, _ := m.Applied()
		got = append(got, fmt.Sprintf("%d %v A=%s applied %d", index, events, v, applied))
	})
	m.Apply([]cluster.Entry{entry(1, "set A 1; emit x"), entry(2, "set A 2; emit y; fail ENOENT"), entry(3, "set A 3; emit z")})
	m.Apply([]cluster.Entry{entry(4, "set A 4")})
	cancel()
	m.Apply([]cluster.Entry{entry(5, "emit w")})
	if want := "3 [x z] A=3 applied 3"; strings.Join(got, "; ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestLargeBatch: a batch over the bound is committed in parts.
func TestLargeBatch(t *testing.T) {
	m := openTest(t, vfs.NewMem())
	text := strings.Repeat("x", 900<<10)
	var entries []cluster.Entry
	for i := range uint64(80) {
		entries = append(entries, entry(i+1, fmt.Sprintf("emit %d; set A%d %s", i, i, text)))
	}
	parts := 0
	defer m.Subscribe(func(uint64, []any) { parts++ })()
	for i, r := range m.Apply(entries) {
		if _, err := SplitResult(r); err != nil {
			t.Fatalf("entry %d: %v", i+1, err)
		}
	}
	if applied, _ := m.Applied(); applied != 80 || parts < 2 {
		t.Errorf("applied %d in %d parts", applied, parts)
	}
	if cap(m.tx.overlay.buf) > keepArena {
		t.Errorf("kept %d bytes", cap(m.tx.overlay.buf))
	}
	if r := m.Apply([]cluster.Entry{entry(81, strings.Repeat("x", cluster.MaxCommand))}); showResult(r[0]) != "EINVAL" {
		t.Errorf("a command over the limit: %s", showResult(r[0]))
	}
}

// TestOpenRefuses: a state that this program cannot read is refused, and says why.
func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		name, key string
		value     []byte
		want      cluster.Errno
	}{
		{"newer format", "!format", binary.BigEndian.AppendUint32(nil, 2), cluster.EVERSION},
		{"no format", "!format", nil, cluster.ECORRUPT},
		{"broken writer", "W\x00\x00\x00\x01", []byte("?"), cluster.ECORRUPT},
		{"writer beyond the next", "W\x00\x00\x00\x07", appendWriter(nil, &Writer{ID: 7, Node: "n"}), cluster.ECORRUPT},
		{"lane of no writer", "W\x00\x00\x00\x01\x00\x01", []byte{1, 0, 0}, cluster.ECORRUPT},
		{"broken next writer", "!nextwriter", []byte{1}, cluster.ECORRUPT},
	} {
		fs := vfs.NewMem()
		m, err := Open(Options{Dir: "group", FS: fs, Core: scriptCore{}})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		db, err := m.openPebble("group/state-00000001", false)
		if err != nil {
			t.Fatal(err)
		}
		if c.value == nil {
			err = db.Delete([]byte(c.key), pebble.NoSync)
		} else {
			err = db.Set([]byte(c.key), c.value, pebble.NoSync)
		}
		if err := errors.Join(err, db.Flush(), db.Close()); err != nil {
			t.Fatal(err)
		}
		m, err = Open(Options{Dir: "group", FS: fs, Core: scriptCore{}})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		} else {
			t.Log(err)
		}
		if err == nil {
			err = m.Close()
			t.Error(err)
		}
	}
}

func TestAfterClose(t *testing.T) {
	m, err := Open(Options{Dir: "group", FS: vfs.NewMem(), Core: scriptCore{}})
	if err != nil {
		t.Fatal(err)
	}
	r := m.Reader()
	if err := errors.Join(m.Close(), m.Close()); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.Get(nil, []byte("A")); ok || m.Snapshot() != nil {
		t.Error("there is something to read after Close")
	}
	r.Ascend(nil, nil, func(_, _ []byte) bool { t.Error("a key after Close"); return false })
	if _, _, err := m.Flush(); err == nil {
		t.Error("Flush after Close")
	}
	if _, err := m.Checkpoint("ck"); err == nil {
		t.Error("Checkpoint after Close")
	}
	if err := m.Restore("ck"); err == nil {
		t.Error("Restore after Close")
	}
}

// TestOnDisk opens, restores and reopens on the real file system.
func TestOnDisk(t *testing.T) {
	dir := t.TempDir()
	m, err := Open(Options{Dir: dir + "/a/b", Core: scriptCore{}})
	if err != nil {
		t.Fatal(err)
	}
	m.Apply([]cluster.Entry{entry(1, "set A 1")})
	m.StoreConfiguration(2, 1, []byte("conf"))
	if c, err := m.Checkpoint(dir + "/ck"); err != nil || c.Index != 2 || string(c.Configuration) != "conf" {
		t.Fatalf("%+v, %v", c, err)
	}
	if err := m.Restore(dir + "/ck"); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m, err = Open(Options{Dir: dir + "/a/b", Core: scriptCore{}})
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := m.Reader().Get(nil, []byte("A")); string(v) != "1" {
		t.Errorf("A = %s", v)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestParseCommand(t *testing.T) {
	env := Envelope{Version: 1, Kind: kindScript, Writer: 1 << 31, Lane: 1023, Seq: 1 << 60, LowWater: 1<<32 - 1, Time: -5}
	got, body, err := ParseCommand(AppendCommand([]byte{}, env, script("body")))
	if err != nil || got != env || string(body) != "body" {
		t.Errorf("%+v %s %v", got, body, err)
	}
	cmd := AppendCommand(nil, env, script(""))
	for i := range cmd {
		if _, _, err := ParseCommand(cmd[:i]); !errors.Is(err, cluster.EINVAL) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	cmd[0] = 0
	if _, _, err := ParseCommand(cmd); !errors.Is(err, cluster.EINVAL) {
		t.Errorf("version 0: %v", err)
	}
	cmd[0] = CommandVersion + 1
	if _, _, err := ParseCommand(cmd); !errors.Is(err, cluster.EVERSION) {
		t.Errorf("newer version: %v", err)
	}
	if _, err := SplitResult([]byte{1}); err != cluster.EINTERNAL { //nolint:errorlint // it is returned bare
		t.Errorf("short result: %v", err)
	}
	if body, err := SplitResult(Result(cluster.ELOCKED, []byte("by"), []byte("her"))); !errors.Is(err, cluster.ELOCKED) || string(body) != "byher" {
		t.Errorf("%s %v", body, err)
	}
}

// TestStateHash: the hash tells keys from values and is the same on any path.
func TestStateHash(t *testing.T) {
	hash := func(text string) [32]byte {
		m := openTest(t, vfs.NewMem())
		m.Apply([]cluster.Entry{entry(1, text)})
		return StateHash(m.Reader())
	}
	base := hash("set A 1; set AB 2")
	if hash("set AB 2; set A 1; set C 1; del C") != base {
		t.Error("differs for the same state")
	}
	for _, other := range []string{"set A 1; set AB 3", "set A 1", "set A 1A; set B 2", "set A1 1; set AB 2"} {
		if hash(other) == base {
			t.Errorf("same for %s", other)
		}
	}
}
