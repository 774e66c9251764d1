package volume

import (
	"slices"
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// TestEventChanged: whatever changes a file, or opens it so that it may be changed or
// not be read, is told of; what changes nothing that clients cache is not.
func TestEventChanged(t *testing.T) {
	root := cluster.Cred{}
	for _, c := range []struct {
		name string
		told bool
		do   func(f, g cluster.Ino) fsm.Body
	}{
		{"write", true, func(f, _ cluster.Ino) fsm.Body {
			return CommitExtents{Ino: f, Extents: []NewExtent{inline(0, []byte("x"))}}
		}},
		{"mode", true, func(f, _ cluster.Ino) fsm.Body {
			return SetAttr{Cred: root, Ino: f, Attr: cluster.SetAttr{Mask: cluster.SetMode, Mode: 0o600}}
		}},
		{"size", true, func(f, _ cluster.Ino) fsm.Body {
			return SetAttr{Cred: root, Ino: f, Attr: cluster.SetAttr{Mask: cluster.SetSize, Size: 5}}
		}},
		{"remove", true, func(cluster.Ino, cluster.Ino) fsm.Body { return Remove{Dir: 1, Name: "f"} }},
		{"rename", true, func(cluster.Ino, cluster.Ino) fsm.Body {
			return Rename{FromDir: 1, FromName: "f", ToDir: 1, ToName: "h"}
		}},
		{"replace", true, func(cluster.Ino, cluster.Ino) fsm.Body {
			return Rename{FromDir: 1, FromName: "g", ToDir: 1, ToName: "f"}
		}},
		{"link", true, func(f, _ cluster.Ino) fsm.Body { return Link{Ino: f, Dir: 1, Name: "h"} }},
		{"open to write", true, func(f, _ cluster.Ino) fsm.Body {
			return PutState{Ino: f, State: State{Other: StateID{1}, Client: 1, Access: ShareWrite}}
		}},
		{"open to write by name", true, func(cluster.Ino, cluster.Ino) fsm.Body {
			return Create{Dir: 1, Name: "f", Gen: 7, Type: cluster.TypeRegular, Open: &State{Other: StateID{1}, Client: 1, Access: ShareWrite}}
		}},
		{"open that denies reading", true, func(f, _ cluster.Ino) fsm.Body {
			return PutState{Ino: f, State: State{Other: StateID{1}, Client: 1, Access: ShareRead, Deny: ShareRead}}
		}},
		{"open to read", false, func(f, _ cluster.Ino) fsm.Body {
			return PutState{Ino: f, State: State{Other: StateID{1}, Client: 1, Access: ShareRead}}
		}},
		{"read", false, func(f, _ cluster.Ino) fsm.Body { return Touch{Inos: []cluster.Ino{f}, Atime: 1 << 62} }},
		{"lock", false, func(f, _ cluster.Ino) fsm.Body { return Lock{Ino: f, End: 9} }},
		{"write to another", false, func(_, g cluster.Ino) fsm.Body {
			return CommitExtents{Ino: g, Extents: []NewExtent{inline(0, []byte("x"))}}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newData(t)
			defer e.close()
			e.open("a", "n1")
			f, g := e.create("f"), e.create("g")
			e.takeEvents()
			e.must("a", c.do(f, g))
			if told := slices.Contains(e.takeEvents(), any(EventChanged{f})); told != c.told {
				t.Errorf("told: %v", told)
			}
		})
	}
}
