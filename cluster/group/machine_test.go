package group

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/hawserfs/hawser/cluster"
)

// A testState is the state of a testMachine.
type testState struct {
	Index, Term uint64
	ConfIndex   uint64
	Conf        []byte
	Results     map[string]string // by command id: exactly-once
	Log         []string          // the commands in the order they were applied
}

// A testMachine is a state machine in memory. What is not flushed is lost when
// it is opened again. A command is "id=value"; its result is "value@index" of
// its first application.
type testMachine struct {
	file string

	mu       sync.Mutex
	s        testState
	applied  int // commands, repeated ones too
	restored int
	pad      string // makes checkpoints large
	failSnap error
	seen     func(cluster.Entry) // called with what is applied
}

func openTestMachine(dir string) (*testMachine, error) {
	m := &testMachine{file: filepath.Join(dir, "state.json")}
	return m, m.load(m.file)
}

func (m *testMachine) load(file string) error {
	m.s = testState{Results: map[string]string{}}
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(b, &m.s)
}

func (m *testMachine) Apply(entries []cluster.Entry) [][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([][]byte, len(entries))
	for i, e := range entries {
		if e.Index <= m.s.Index {
			panic(fmt.Sprintf("index %d after %d", e.Index, m.s.Index))
		}
		m.s.Index, m.s.Term = e.Index, e.Term
		m.applied++
		if m.seen != nil {
			m.seen(e)
		}
		id, value, _ := strings.Cut(string(e.Command), "=")
		r, ok := m.s.Results[id]
		if !ok {
			r = fmt.Sprintf("%s@%d", value, e.Index)
			m.s.Results[id] = r
			m.s.Log = append(m.s.Log, string(e.Command))
		}
		results[i] = []byte(r)
	}
	return results
}

func (m *testMachine) StoreConfiguration(index, term uint64, conf []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.s.Index, m.s.Term = index, term
	m.s.ConfIndex, m.s.Conf = index, append([]byte(nil), conf...)
}

func (m *testMachine) Configuration() (uint64, []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.s.ConfIndex, m.s.Conf
}

func (m *testMachine) Applied() (uint64, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.s.Index, m.s.Term
}

func (m *testMachine) write(file string) error {
	b, err := json.Marshal(&m.s)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func (m *testMachine) Flush() (uint64, uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.s.Index, m.s.Term, m.write(m.file)
}

func (m *testMachine) Checkpoint(dir string) (cluster.Checkpoint, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failSnap != nil {
		return cluster.Checkpoint{}, m.failSnap
	}
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "sub"), 0o700), m.write(filepath.Join(dir, "state.json")),
		os.WriteFile(filepath.Join(dir, "sub", "pad"), []byte(m.pad), 0o600))
	return cluster.Checkpoint{
		Index: m.s.Index, Term: m.s.Term, ConfigurationIndex: m.s.ConfIndex, Configuration: m.s.Conf,
	}, err
}

func (m *testMachine) Restore(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.restored++
	if _, err := os.Stat(filepath.Join(dir, "sub", "pad")); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(dir, "state.json"), m.file); err != nil {
		return err
	}
	return m.load(m.file)
}

func (m *testMachine) Close() error { return nil }

// commands returns the commands in the order they were applied.
func (m *testMachine) commands() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.s.Log...)
}

// value returns the result of a command, "" if it was not applied.
func (m *testMachine) value(id string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.s.Results[id]
}
