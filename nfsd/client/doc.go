// Package client is an NFSv4.1 and 4.2 client for tests and benchmarks. It
// pipelines compounds over the slots of one session and over several
// connections, repeats what was under way after a lost connection on the same
// slot with the same sequence number (RFC 8881 §2.10.6), makes a new session
// when the server asks for one, and reclaims opens and locks when the server
// has restarted.
//
// There are three ways in: methods that do what a user wants (Open, Rename, …),
// Do with a Compound built operation by operation, and Raw, which sends what it
// is given and nothing around it.
package client
