package collect

// A rule is one of the checks that the safety of data rests on. Tests switch
// rules off, one at a time, to show that they would notice.
type rule uint32

// The rules.
const (
	ruleSettled    rule = 1 << iota // a copy on a store that may be being filled stays
	ruleEverywhere                  // a copy that was moved goes only when all members have theirs
)

// rulesOff has the rules that a test has switched off.
var rulesOff rule

// on reports whether a rule is in force: always, but in tests.
func on(r rule) bool { return rulesOff&r == 0 }
