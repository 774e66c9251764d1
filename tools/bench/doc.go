// Package bench measures NFSv4.1 and 4.2 servers with the project's own client,
// which has no cache: every operation goes to the server.
//
// A benchmark is a list of workloads, each measured in several runs after some
// for warm-up that don't count. With two servers the runs alternate, A B A B …,
// with the same bytes in the same order, made from one seed. What is reported
// of a workload is the median over its runs and how far the runs lie apart, and
// whether the server said that what it acknowledged was stable.
//
// Everything is made in one new directory on each server, which is removed at
// the end, also when the benchmark is stopped or fails.
package bench
