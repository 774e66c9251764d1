package recode

// A rule is one of the checks that the safety of data rests on. Tests switch
// rules off, one at a time, to show that they would notice.
type rule uint8

const (
	ruleVerify  rule = 1 << iota // what is put is what the record tells of
	ruleUnknown                  // a blob whose command has no known outcome is not given up
)

// rulesOff has the rules that a test has switched off.
var rulesOff rule

// on reports whether a rule is in force: always, but in tests.
func on(r rule) bool { return rulesOff&r == 0 }
