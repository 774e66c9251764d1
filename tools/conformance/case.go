package conformance

import (
	"fmt"
	"slices"
	"strings"
)

// A Minors is a set of minor versions.
type Minors uint8

// The sets that rules are of.
const (
	V0  Minors = 1 << iota // NFSv4.0
	V1                     // NFSv4.1
	V2                     // NFSv4.2
	All = V0 | V1 | V2
	V12 = V1 | V2 // those with sessions
)

// Has reports whether the minor version is in the set.
func (m Minors) Has(minor uint32) bool { return minor < 8 && m&(1<<minor) != 0 }

// A Case is one rule.
type Case struct {
	Name    string // what holds: family/rule
	Section string // where that is said
	Minors  Minors
	Run     func(*T)
}

// cases are all, as the files of this package register them.
var cases []Case

// register adds the cases of a family.
func register(family string, all ...Case) struct{} {
	for _, c := range all {
		c.Name = family + "/" + c.Name
		cases = append(cases, c)
	}
	return struct{}{}
}

// Cases returns all cases, by name.
func Cases() []Case {
	all := slices.Clone(cases)
	slices.SortFunc(all, func(a, b Case) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// An Outcome is how a case ended.
type Outcome string

// The outcomes.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Skipped Outcome = "skipped" // the server does not have what the rule is about
)

// A Result is a case's outcome with a minor version.
type Result struct {
	Name    string  `json:"name"`
	Section string  `json:"section"`
	Minor   uint32  `json:"minor_version"`
	Outcome Outcome `json:"outcome"`
	Message string  `json:"message,omitempty"`
	Millis  int64   `json:"ms"`
}

// String is a line of the report.
func (r *Result) String() string {
	s := fmt.Sprintf("%-7s 4.%d %s (%s)", r.Outcome, r.Minor, r.Name, r.Section)
	if r.Message != "" {
		s += ": " + r.Message
	}
	return s
}
