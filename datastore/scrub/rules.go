package scrub

import "sync/atomic"

// A rule is one of those that the safety of a repair rests on. Tests switch rules
// off, one at a time, to show that they would notice.
type rule uint32

// The rules.
const (
	ruleFresh  rule = 1 << iota // what looks wrong is judged again at a read index
	ruleVerify                  // what is fetched is held against the blob's record
	ruleAgain                   // what was stored is read before it counts as repaired
)

// rulesOff has the rules that a test has switched off.
var rulesOff atomic.Uint32

// on reports whether a rule is in force: always, but in tests.
func on(r rule) bool { return rulesOff.Load()&uint32(r) == 0 }
