package conf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "hawser.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestLoad(t *testing.T) {
	file := write(t, `
node:
  name: n1
  roles: [meta, nfs]
  disks: [/d1, /d2]
listen:
  peer: 10.0.0.1:7420
  nfs: ["10.0.0.1:2049", "[fd00::1]:2049"]
cache:
  data: 1.5GiB
nfs:
  lease: 30s
  grace: 30s # of an earlier version
addresses:
  floating: [10.0.0.50/24, "fd00::50/64@fast"]
`)
	t.Setenv("HAWSER_NODE_RACK", "r7")
	t.Setenv("HAWSER_NODE_DISKS", "/e1, /e2")
	t.Setenv("HAWSER_NFS_MAX_SLOTS", "64")
	c, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		what      string
		got, want any
	}{
		{"name", c.Node.Name, "n1"},
		{"rack from the environment", c.Node.Rack, "r7"},
		{"disks from the environment", strings.Join(c.Node.Disks, "|"), "/e1|/e2"},
		{"size with a unit", c.Cache.Data, Size(1.5 * (1 << 30))},
		{"duration", c.NFS.Lease, 30 * time.Second},
		{"number from the environment", c.NFS.MaxSlots, 64},
		{"derived advertise", c.Listen.Advertise, "10.0.0.1:7420"},
		{"derived admin", c.Listen.Admin, "/var/lib/hawser/admin.sock"},
		{"default kept", c.Health.DownAfter, 3 * time.Second},
		{"floating addresses", strings.Join(c.Addresses.Floating, "|"), "10.0.0.50/24|fd00::50/64@fast"},
	} {
		if x.got != x.want {
			t.Errorf("%s: got %v, want %v", x.what, x.got, x.want)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	for _, x := range []struct{ name, text, want string }{
		{"unknown key", "node:\n  nmae: n1\n", ":2: unknown setting node.nmae: did you mean node.name?"},
		{"unknown section", "nodes:\n  name: n1\n", ":1: unknown setting nodes: did you mean node?"},
		{"set twice", "node:\n  name: a\nlisten:\n  peer: h:1\nnode:\n  name: b\n", ":5: node is set twice: keep one"},
		{"wrong type", "nfs:\n\n  lease: soon\n", ":3: nfs.lease is \"soon\": it must be a duration like"},
		{"wrong size", "cache:\n  data: lots\n", ":2: cache.data is \"lots\": it must be a size like"},
		{"wrong number", "nfs:\n  max_slots: 1.5\n", ":2: nfs.max_slots is \"1.5\": it must be a whole number"},
		{"out of range", "nfs:\n  lease: 1s\n", ":2: nfs.lease is 1s: it must be 10s to 10m"},
		{"not one of", "raft:\n  log: bolt\n", ":2: raft.log is \"bolt\": it must be of wal, boltdb"},
		{"list wanted", "node:\n  roles: meta\n", ":2: node.roles is a list"},
		{"list not wanted", "node:\n  name: [a]\n", ":2: node.name is a single value"},
		{"section wanted", "node: n1\n", ":1: node is a section"},
		{"no role", "node:\n  roles: []\n", ":2: node.roles is empty"},
		{"bad address", "listen:\n  peer: here\n", ":2: listen.peer is \"here\": write it as HOST:PORT"},
		{"wildcard peer", "listen:\n  peer: 0.0.0.0:7420\n", "listen.advertise is \"0.0.0.0:7420\", which other nodes can't connect to"},
		{"no NFS address", "listen:\n  nfs: []\n", ":2: listen.nfs is empty"},
		{"disk twice", "node:\n  disks: [/a, /a/]\n", ":2: node.disks names /a/ twice"},
		{"no prefix", "addresses:\n  floating: [10.0.0.50]\n", `:2: addresses.floating item "10.0.0.50" lacks the length of its subnet's prefix: write it like 10.0.0.50/24`},
		{"no address", "addresses:\n  floating: [fileserver/24]\n", `:2: addresses.floating item "fileserver/24" is no address`},
		{"bad group", "addresses:\n  floating: [\"10.0.0.50/24@a b\"]\n", "a group's name is"},
		{"loopback", "addresses:\n  floating: [127.0.0.5/8]\n", "can't move between machines"},
		{"link-local", "addresses:\n  floating: [\"fe80::5/64\"]\n", "is link-local"},
		{"a subnet", "addresses:\n  floating: [10.0.0.0/24]\n", "is the address of a whole subnet"},
		{"a broadcast", "addresses:\n  floating: [10.0.1.255/23]\n", "is the address of a whole subnet"},
		{"an address twice", "addresses:\n  floating: [10.0.0.5/24, 10.0.0.5/16]\n", ":2: addresses.floating names 10.0.0.5 twice"},
		{"own address", "listen:\n  nfs: [\"10.0.0.5:2049\"]\naddresses:\n  floating: [10.0.0.5/24]\n", ":4: addresses.floating names 10.0.0.5, which is this node's own address"},
		{"failback", "addresses:\n  failback: never\n", ":2: addresses.failback is \"never\": it must be of auto, manual"},
		{"take-over after down", "health:\n  takeover_after: 3s\n", ":2: health.takeover_after is not less than health.down_after (3s)"},
		{"fence before down", "health:\n  down_after: 1m\n  fence_after: 10s\n", ":3: health.fence_after is less than"},
		{"not YAML", "node: [\n", "yaml"},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, err := Load(write(t, x.text))
			if err == nil || !strings.Contains(err.Error(), x.want) {
				t.Fatalf("got %v, want an error with %q", err, x.want)
			}
		})
	}
}

func TestLoadNamesTheEnvironment(t *testing.T) {
	t.Setenv("HAWSER_NFS_LEASE", "1s")
	_, err := Load("")
	if err == nil || !strings.Contains(err.Error(), "environment variable HAWSER_NFS_LEASE: nfs.lease is 1s") {
		t.Fatalf("got %v", err)
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	_, err := Load(write(t, "nfs:\n  lease: 1s\n  max_slots: 0\nlog:\n  level: loud\n"))
	if n := strings.Count(err.Error(), "\n") + 1; n != 3 {
		t.Fatalf("got %d faults, want 3:\n%v", n, err)
	}
}

func TestCheckFolders(t *testing.T) {
	c := Default()
	c.Node.Data = filepath.Join(t.TempDir(), "made", "for", "you")
	file := write(t, "")
	c.Node.Disks = []string{file}
	err := c.CheckFolders()
	if err == nil || !strings.Contains(err.Error(), "folder "+file+" can't be written") || strings.Contains(err.Error(), c.Node.Data) {
		t.Fatalf("got %v", err)
	}
}

func TestGeneratedFilesAreCurrent(t *testing.T) {
	for file, want := range map[string]string{
		"../docs/configuration.md": Reference(),
		"hawser.example.yaml":      YAML(Default()),
	} {
		got, err := os.ReadFile(file)
		if err != nil || string(got) != want {
			t.Errorf("%s is not current (%v): run go generate ./conf", file, err)
		}
	}
}

func TestDefaultsLoadBack(t *testing.T) {
	t.Setenv("HAWSER_NODE_NAME", "n1")
	c, err := Load("hawser.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	if YAML(c) != YAML(want) {
		t.Fatalf("got\n%s\nwant\n%s", YAML(c), YAML(want))
	}
}

func TestEveryRangeCanBeRead(t *testing.T) {
	c := Default()
	for _, f := range fields(&c) {
		if !f.section {
			if err := f.checkRange(); err != nil {
				t.Errorf("default: %v", err)
			}
		}
	}
}
