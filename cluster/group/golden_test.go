package group

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/raft"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
)

// -golden makes the golden files anew: see testdata/golden/README.md.
var golden = flag.Bool("golden", false, "make the golden files anew")

const goldenDir = "../../testdata/golden/v1"

// A goldenState is a state machine with what has led to its golden state.
type goldenState struct {
	name     string
	core     func() fsm.Core
	commands func() [][]byte
	describe func(m *fsm.Machine) string
}

var goldenStates = []goldenState{
	{"volume", volume.New, volumeCommands, describeVolume},
	{"registry", registry.New, registryCommands, describeRegistry},
}

const goldenTime = cluster.Time(1_700_000_000_000_000_000)

func volumeCommands() (all [][]byte) {
	seq := uint64(0)
	add := func(writer cluster.WriterID, b fsm.Body) {
		env := fsm.Envelope{Time: goldenTime + cluster.Time(len(all))}
		if writer != 0 {
			seq++
			env.Writer, env.Seq, env.LowWater = writer, seq, 1
		}
		all = append(all, fsm.AppendCommand(nil, env, b))
	}
	root := cluster.Cred{UID: 0, GID: 0}
	attr := func(mode uint32) cluster.SetAttr { return cluster.SetAttr{Mask: cluster.SetMode, Mode: mode} }
	blob := func(n uint32) cluster.BlobID { return cluster.MakeBlobID(1, n) }
	add(0, volume.Format{HashKey: [16]byte{1, 2, 3}, Mode: 0o755, Class: cluster.Class{Copies: 3}})
	add(0, &fsm.OpenWriter{Node: "n1", Nonce: 7})
	add(0, volume.PutReplicaSet{Set: volume.ReplicaSet{Members: []cluster.StoreID{1, 2, 3}, Copies: 3}})
	add(0, volume.PutReplicaSet{Set: volume.ReplicaSet{Members: []cluster.StoreID{2, 3}, Copies: 3}})
	create := func(dir cluster.Ino, name string, kind cluster.FileType, mode uint32, target string) {
		add(1, volume.Create{Cred: root, Dir: dir, Name: name, Type: kind, Attr: attr(mode), Gen: 9, Target: target})
	}
	create(1, "dir", cluster.TypeDirectory, 0o750, "")        // inode 2
	create(2, "file", cluster.TypeRegular, 0o640, "")         // 3
	create(2, "tiny", cluster.TypeRegular, 0o600, "")         // 4
	create(1, "link", cluster.TypeSymlink, 0o777, "dir/file") // 5
	create(1, "gone", cluster.TypeRegular, 0o644, "")         // 6
	add(1, volume.Link{Cred: root, Ino: 3, Dir: 1, Name: "second name"})
	add(1, volume.SetXattr{Cred: root, Ino: 3, Name: "color", Value: []byte("blue")})
	add(1, volume.CommitExtents{
		Ino: 3, Blobs: []volume.NewBlob{{ID: blob(1), Set: 1, Epoch: 1, Len: 100_000, CRC: 0xabcd}, {ID: blob(2), Set: 2, Epoch: 1, Len: 5000, CRC: 0x1234}},
		Extents: []volume.NewExtent{{Off: 0, Len: 100_000, Blob: blob(1)}, {Off: 50_000, Len: 5000, Blob: blob(2)}, {Off: 200_000, Len: 3, Bytes: []byte("end")}},
	})
	add(1, volume.CommitExtents{Ino: 4, Extents: []volume.NewExtent{{Len: 5, Bytes: []byte("hello")}}})
	add(1, volume.CommitExtents{
		Ino: 6, Blobs: []volume.NewBlob{{ID: blob(3), Set: 1, Epoch: 1, Len: 20_000, CRC: 1}}, Extents: []volume.NewExtent{{Len: 20_000, Blob: blob(3)}},
	})
	add(1, volume.Remove{Cred: root, Dir: 1, Name: "gone"})
	add(1, volume.Lock{Ino: 4, Owner: volume.LockOwner{4}, Client: 77, Wire: []byte("w"), Start: 1, End: 9, Exclusive: true})
	add(0, volume.PutReplicaSet{Set: volume.ReplicaSet{ID: 2, Members: []cluster.StoreID{2, 3}, Copies: 3, Epoch: 1, State: volume.ReadOnly}})
	add(0, volume.SetClass{Cred: root, Ino: 2, Class: cluster.Class{Copies: 2, Consistency: cluster.Relaxed}})
	return all
}

func registryCommands() (all [][]byte) {
	add := func(b fsm.Body) {
		all = append(all, fsm.AppendCommand(nil, fsm.Envelope{Time: goldenTime + cluster.Time(len(all))}, b))
	}
	add(&registry.InitCluster{UUID: registry.UUID{1, 2, 3}, Name: "golden", Key: [32]byte{9}})
	for i := byte(1); i <= 2; i++ {
		add(&registry.PutNode{ID: cluster.NodeID(fmt.Sprintf("n%d", i)), PeerAddr: fmt.Sprintf("10.0.0.%d:7420", i), NFSAddr: fmt.Sprintf("10.0.0.%d:2049", i), Roles: registry.RoleMeta | registry.RoleData, Rack: "r1"})
		add(&registry.PutStore{UUID: registry.UUID{i}, Node: cluster.NodeID(fmt.Sprintf("n%d", i)), Capacity: 1 << 40, Used: 1 << 30})
	}
	add(&registry.CreateVolume{Name: "main", Class: cluster.Class{Copies: 3}, Voters: []cluster.NodeID{"n1", "n2"}})
	add(&registry.SetStoreState{ID: 2, State: registry.StoreFailed})
	add(&registry.SetNodeState{ID: "n2", State: registry.NodeDown})
	return all
}

func describeVolume(m *fsm.Machine) string {
	v := volume.View{Reader: m.Reader()}
	var b strings.Builder
	var walk func(dir cluster.Ino, path string)
	walk = func(dir cluster.Ino, path string) {
		v.ReadDir(dir, 0, func(e *volume.Dirent) bool {
			a, ok := v.Inode(e.Ino)
			name := path + "/" + string(e.Name)
			fmt.Fprintf(&b, "%s: %v type %d mode %o links %d size %d used %d mtime %d change %d class %v copies=%d\n", name, ok, a.Type, a.Mode, a.Nlink, a.Size, a.Used, a.Mtime, a.Change, a.Class.Consistency, a.Class.Copies)
			if t, err := v.Readlink(e.Ino); err == nil {
				fmt.Fprintf(&b, "  to %s\n", t)
			}
			names, _ := v.Xattrs(e.Ino)
			for _, n := range names {
				value, _ := v.Xattr(e.Ino, n)
				fmt.Fprintf(&b, "  xattr %s=%s\n", n, value)
			}
			v.Extents(e.Ino, 0, ^uint64(0), func(x *volume.Extent) bool {
				fmt.Fprintf(&b, "  extent %d+%d blob %v at %d bytes %q\n", x.Off, x.Len, x.Blob, x.BlobOff, x.Bytes)
				return true
			})
			v.Locks(e.Ino, func(l *volume.LockInfo) bool {
				fmt.Fprintf(&b, "  lock %d-%d exclusive %v of client %d\n", l.Start, l.End, l.Exclusive, l.Client)
				return true
			})
			if a.Type == cluster.TypeDirectory {
				walk(e.Ino, name)
			}
			return true
		})
	}
	walk(cluster.RootIno, "")
	for _, s := range v.ReplicaSets() {
		fmt.Fprintf(&b, "set %d: members %v copies %d epoch %d state %d\n", s.ID, s.Members, s.Copies, s.Epoch, s.State)
		v.SetBlobs(s.ID, 0, func(id cluster.BlobID) bool {
			x, _ := v.Blob(id)
			fmt.Fprintf(&b, "  blob %v: kind %d len %d crc %08x refs %d\n", id, x.Kind, x.Len, x.CRC, x.Refs)
			return true
		})
	}
	u := v.Usage()
	fmt.Fprintf(&b, "usage: %d inodes, %d bytes\n", u.Inodes, u.Bytes)
	r := volume.Check(v, func(p volume.Problem) { fmt.Fprintf(&b, "PROBLEM %v\n", p) })
	fmt.Fprintf(&b, "garbage %d, unlinked %d\n", r.Garbage, r.Unlinked)
	return b.String()
}

func describeRegistry(m *fsm.Machine) string {
	r := registry.View{Reader: m.Reader()}
	var b strings.Builder
	c, _ := r.Cluster()
	fmt.Fprintf(&b, "cluster %s %s\n", c.Name, c.ID())
	for _, n := range r.Nodes() {
		fmt.Fprintf(&b, "node %s: %s %s roles %s rack %s state %d since %d\n", n.ID, n.PeerAddr, n.NFSAddr, n.Roles, n.Rack, n.State, n.Since)
	}
	for _, s := range r.Stores() {
		fmt.Fprintf(&b, "store %d: %x of %s, %d of %d bytes, state %d\n", s.ID, s.UUID[:], s.Node, s.Used, s.Capacity, s.State)
	}
	for _, v := range r.Volumes() {
		fmt.Fprintf(&b, "volume %d: %s fsid %d.%d copies=%d voters %v\n", v.ID, v.Name, v.FSID.Major, v.FSID.Minor, v.Class.Copies, v.Voters)
	}
	return b.String()
}

func (g goldenState) path(ext string) string { return filepath.Join(goldenDir, g.name+ext) }

func (g goldenState) machine(t *testing.T) *fsm.Machine {
	t.Helper()
	m, err := fsm.Open(fsm.Options{Dir: filepath.Join(t.TempDir(), "state"), Core: g.core()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// make writes the golden files of a state machine.
func (g goldenState) make(t *testing.T) {
	t.Helper()
	var log strings.Builder
	for i, cmd := range g.commands() {
		data, sum := seal(cmd)
		fmt.Fprintf(&log, "%d %d %x %x\n", i+2, 1, data, sum)
	}
	m := g.machine(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(g.path(".log"), []byte(log.String()), 0o644))
	g.replay(t, m)
	dir := filepath.Join(t.TempDir(), "checkpoint")
	_, err := m.Checkpoint(dir)
	must(err)
	r, err := newArchiveReader(dir)
	must(err)
	archive, err := io.ReadAll(r)
	must(errors.Join(err, r.Close()))
	must(os.WriteFile(g.path(".archive"), archive, 0o644))
	must(os.WriteFile(g.path(".txt"), []byte(g.describe(m)), 0o644))
}

// replay applies the golden log, as a node does that reads its log at start.
func (g goldenState) replay(t *testing.T, m *fsm.Machine) {
	t.Helper()
	text, err := os.ReadFile(g.path(".log"))
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var l raft.Log
		var data, sum string
		if _, err := fmt.Sscan(lines.Text(), &l.Index, &l.Term, &data, &sum); err != nil {
			t.Fatal(err)
		}
		l.Type = raft.LogCommand
		var e1, e2 error
		l.Data, e1 = hex.DecodeString(data)
		l.Extensions, e2 = hex.DecodeString(sum)
		if err := errors.Join(e1, e2, checkSeal(&l)); err != nil {
			t.Fatalf("entry %d: %v", l.Index, err)
		}
		results := m.Apply([]cluster.Entry{{Index: l.Index, Term: l.Term, Command: l.Data}})
		if _, err := fsm.SplitResult(results[0]); err != nil {
			t.Errorf("%s: entry %d: %v", g.name, l.Index, err)
		}
	}
}

// unpack writes the golden archive's files to a folder.
func (g goldenState) unpack(t *testing.T) string {
	t.Helper()
	archive, err := os.ReadFile(g.path(".archive"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "unpacked")
	w, err := newArchiveWriter(dir)
	if err == nil {
		_, err = w.Write(archive)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestGolden replays the log that version 1 has written and restores its
// snapshot: both lead to the state that is described beside them.
func TestGolden(t *testing.T) {
	for _, g := range goldenStates {
		if *golden {
			g.make(t)
		}
		want, err := os.ReadFile(g.path(".txt"))
		if err != nil {
			t.Fatal(err)
		}
		m := g.machine(t)
		g.replay(t, m)
		if got := g.describe(m); got != string(want) {
			t.Errorf("%s: the log leads to\n%s\nwant\n%s", g.name, got, want)
		}
		m = g.machine(t)
		if err := m.Restore(g.unpack(t)); err != nil {
			t.Fatalf("%s: %v", g.name, err)
		}
		if got := g.describe(m); got != string(want) {
			t.Errorf("%s: the snapshot is\n%s\nwant\n%s", g.name, got, want)
		}
		if strings.Contains(string(want), "PROBLEM") {
			t.Errorf("%s: the golden state is not sound:\n%s", g.name, want)
		}
	}
}

// What a later version has written is refused with a word to upgrade, and not
// taken for damage: an archive, a state, and a command.
func TestGoldenNewer(t *testing.T) {
	g := goldenStates[0]
	archive, err := os.ReadFile(g.path(".archive"))
	if err != nil {
		t.Fatal(err)
	}
	copy(archive, "HWSNAP02")
	w, err := newArchiveWriter(filepath.Join(t.TempDir(), "new"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(archive)
	w.abort()
	if !errors.Is(err, cluster.EVERSION) || !strings.Contains(err.Error(), "upgrade it") {
		t.Errorf("archive: %v", err)
	}

	dir := g.unpack(t)
	db, err := pebble.Open(dir, &pebble.Options{FormatMajorVersion: pebble.FormatTableFormatV6})
	if err != nil {
		t.Fatal(err)
	}
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	marked := false
	for it.First(); it.Valid(); it.Next() {
		// The only key whose value is the number 1 in 4 bytes is the format's.
		if v := it.Value(); len(v) == 4 && binary.BigEndian.Uint32(v) == 1 && len(it.Key()) < 16 {
			key := bytes.Clone(it.Key())
			if err := db.Set(key, binary.BigEndian.AppendUint32(nil, 99), pebble.Sync); err != nil {
				t.Fatal(err)
			}
			marked = true
			break
		}
	}
	if err := errors.Join(it.Close(), db.Flush(), db.Close()); err != nil || !marked {
		t.Fatal(marked, err)
	}
	if err := g.machine(t).Restore(dir); !errors.Is(err, cluster.EVERSION) {
		t.Errorf("state: %v", err)
	}

	cmd := bytes.Clone(g.commands()[0])
	cmd[0] = fsm.CommandVersion + 1
	m := g.machine(t)
	if _, err := fsm.SplitResult(m.Apply([]cluster.Entry{{Index: 2, Term: 1, Command: cmd}})[0]); !errors.Is(err, cluster.EVERSION) {
		t.Errorf("command: %v", err)
	}
}
