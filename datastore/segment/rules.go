package segment

import "sync/atomic"

// A rule is one of those that copies are made whole by. Tests switch rules off,
// one at a time, to show that they would notice.
type rule uint32

// The rules.
const (
	ruleReplaceBad   rule = 1 << iota // a copy that can be read is not replaced
	ruleReplaceBooks                  // a copy that is replaced leaves the books with its record
)

// rulesOff has the rules that a test has switched off.
var rulesOff atomic.Uint32

// on reports whether a rule is in force: always, but in tests.
func on(r rule) bool { return rulesOff.Load()&uint32(r) == 0 }
