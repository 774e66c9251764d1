package node

import (
	"slices"
	"strings"
	"sync"
)

// faults are what a part of this node can't do now, each in a sentence, for
// the node's status.
type faults struct {
	mu  sync.Mutex
	now map[string]string // by part
}

// set says what is wrong with a part, and reports whether that is news; ""
// says that nothing is.
func (f *faults) set(part, what string) (news bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now[part] == what {
		return false
	}
	if what == "" {
		delete(f.now, part)
		return true
	}
	if f.now == nil {
		f.now = map[string]string{}
	}
	f.now[part] = what
	return true
}

// list returns the sentences, in the order of the parts' names.
func (f *faults) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for part, what := range f.now {
		out = append(out, part+": "+what)
	}
	slices.SortFunc(out, strings.Compare)
	return out
}
