// Package sim proves the data path by breaking everything around it: it runs
// the pure cores of a volume in a simulated world, where time, the network, the
// disks and what happens next come out of one random number generator, and
// holds what they do against the rules of the design after every step.
//
// Real in it are the state machine (cluster/fsm with cluster/fsm/volume, on a
// file system in memory that forgets what was not flushed), the front-end's
// writer (vfs/writer), its unstable data (vfs/dirty), the collector
// (datastore/collect) and, where asked for, the stores (datastore/segment). The
// front-end's steps between them are those of vfs and datastore/placement,
// transcribed. Modelled are the Raft group, the network and, for speed, the
// stores.
//
// With Config.TakeOver there are clients besides that go from front-end to
// front-end in the middle of their requests, while those before may still be at
// it: each request is executed once, and what is recorded as open stays.
//
// Nothing runs at the same time as anything else: a task is a coroutine that
// runs until it waits. So a seed says all that happens, and a failure is
// repeated by its seed.
//
// go test runs worlds for some seconds; HAWSER_SIM=10m for ten minutes, on all
// cores; HAWSER_SEED=n repeats one, and HAWSER_TRACE=1 tells what happens in it.
// A [Break] switches a rule off, to show that it is missed.
package sim
