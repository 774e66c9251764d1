// Package conformance holds any NFSv4 server to what the RFCs demand, over the
// network alone. A case is one rule: it is named after what it checks and the
// section that says so, has a directory and clients of its own, and runs for each minor
// version that the rule is of. Where the RFCs leave a choice, all of it passes.
package conformance
