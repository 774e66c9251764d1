package group

import "sync/atomic"

// A rule is one of those that make it safe to send an entry to the followers
// while the leader's own disk still writes it (see tail.go). Tests switch rules
// off, one at a time, to show that they would notice.
type rule uint32

// The rules.
const (
	ruleClamp  rule = 1 << iota // no follower hears of a commit index beyond the leader's disk
	ruleGate                    // no state machine applies an entry that is not on its own disk
	ruleSettle                  // a former leader acknowledges nothing that is not on its disk
	ruleWait                    // only commands return before they are on disk
	ruleStop                    // a leader whose log cannot be written takes no more entries
)

// rulesOff has the rules that a test has switched off.
var rulesOff atomic.Uint32

// on reports whether a rule is in force: always, but in tests.
func on(r rule) bool { return rulesOff.Load()&uint32(r) == 0 }
