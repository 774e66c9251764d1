package cluster

// An Entry is a committed command of a group's log.
type Entry struct {
	Index   uint64
	Term    uint64
	Command []byte // valid during Apply only
}

// A StateMachine is what a group replicates. Apply, StoreConfiguration,
// Restore and Close are called from one goroutine at a time; the others may be
// called at any time until Close.
//
// The applied index, the Raft configuration and the state change in one batch,
// so that after a crash the state is that of some index at or above the last
// Flush, whole.
type StateMachine interface {
	// Apply applies entries in index order, as one batch, and returns a result
	// for each. Entries at or below Applied are skipped, with a nil result.
	Apply(entries []Entry) (results [][]byte)
	// StoreConfiguration records the Raft configuration of log entry index.
	StoreConfiguration(index, term uint64, configuration []byte)
	// Configuration returns what StoreConfiguration recorded last.
	Configuration() (index uint64, configuration []byte)
	// Applied returns the last applied index and its term.
	Applied() (index, term uint64)
	// Flush makes everything applied so far durable and returns the index and
	// term up to which it is. The Raft log must not be cut beyond it.
	Flush() (index, term uint64, err error)
	// Checkpoint writes a consistent copy of the state into the new folder dir
	// (hard links where the file system has them), and returns its index, term
	// and configuration.
	Checkpoint(dir string) (Checkpoint, error)
	// Restore replaces the state by the checkpoint in folder dir, which must
	// be on the same file system and which it takes over. A crash in the
	// middle leaves the old state or the new one.
	Restore(dir string) error
	// Close flushes and closes the state.
	Close() error
}

// A Checkpoint describes a state written by StateMachine.Checkpoint.
type Checkpoint struct {
	Index, Term        uint64
	ConfigurationIndex uint64
	Configuration      []byte
}
