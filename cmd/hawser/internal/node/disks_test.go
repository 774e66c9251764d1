package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCopiedDisk starts a node with a copy of another node's disk: it is not
// served beside the other, and is once that one has gone without it.
func TestCopiedDisk(t *testing.T) {
	x := startCluster(t, 3, nil)
	id := x.storeOf("n3")
	x.nodes[2].stop()
	folder := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(folder, os.DirFS(x.confs[2].Node.Disks[0])); err != nil {
		t.Fatal(err)
	}
	x.nodes[2] = start(t, x.confs[2])
	n := x.nodes[0]
	eventually(t, "n3 is back", func() bool { _, up := n.member.Addr(id); return up })

	x.nodes[1].stop()
	x.confs[1].Node.Disks = append(x.confs[1].Node.Disks, folder)
	x.nodes[1] = start(t, x.confs[1])
	twin := x.nodes[1]
	refused := func() bool {
		st, err := twin.Status(within(t))
		return err == nil && strings.Contains(strings.Join(st.Cluster.Problems, "\n"), "node n3 has it")
	}
	eventually(t, "the copy is refused", refused)
	time.Sleep(300 * time.Millisecond) // some heartbeats and duties
	if x.storeOf("n3") != id || !refused() {
		t.Error("the copy has become the store")
	}
	if _, there := twin.disks.server.Local(id); there {
		t.Error("the copy is served")
	}

	x.nodes[2].stop()
	x.nodes[2] = nil
	eventually(t, "the copy takes its place", func() bool { _, there := twin.disks.server.Local(id); return there && !refused() })
}
