package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// EventChanged tells front-ends that a regular file was changed, or opened so that it
// may be, or so that others can't read it: what clients were promised to hear of. It
// may be told more than once of a command.
type EventChanged struct {
	Ino cluster.Ino
}

// tellChanged emits EventChanged of a regular file that is stored.
func (n *inode) tellChanged(tx *fsm.Tx) {
	if n.Type == cluster.TypeRegular && n.Ino != 0 { // 0: it is being made
		tx.Emit(EventChanged{Ino: n.Ino})
	}
}

// tellOpened emits EventChanged of a file that a state opens so that it counts.
func (s *State) tellOpened(tx *fsm.Tx, ino cluster.Ino) {
	if s.Kind == StateOpen && (s.Access&ShareWrite != 0 || s.Deny&ShareRead != 0) {
		tx.Emit(EventChanged{Ino: ino})
	}
}
