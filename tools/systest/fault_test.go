package systest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// content makes a file of n random bytes and returns its path and what is in it.
func (c *testCluster) content(name string, n int) (path string, data []byte) {
	c.t.Helper()
	r := rand.NewChaCha8([32]byte([]byte(fmt.Sprintf("%-32.32s", name))))
	data = make([]byte, n)
	_, _ = r.Read(data) // never fails
	path = filepath.Join(c.dir, name)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		c.t.Fatal(err)
	}
	return path, data
}

// mountAll is the commands that mount each node at /mnt/n1, /mnt/n2, …
func (c *testCluster) mountAll() string {
	var b strings.Builder
	for _, n := range c.nodes {
		fmt.Fprintf(&b, "mkdir -p /mnt/n%d; mount -t nfs4 -o vers=4.2 %s:/ /mnt/n%[1]d\n", n.i, c.lab.HostAddr(n.i))
	}
	return b.String()
}

// fresh is the command that makes the client forget what it has read.
const fresh = "sync; echo 3 >/proc/sys/vm/drop_caches\n"

// TestDiskLost takes a node's disk away for good and gives it an empty one:
// everything is read from the others, through every node, and the new disk is
// used.
func TestDiskLost(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 1)
	k := c.client(1, "1G")
	path, _ := c.content("data", 24<<20)
	k.run(time.Minute, c.mountAll()+fmt.Sprintf(`
		cp /mnt/host%s /mnt/n1/main/big
		mkdir /mnt/n1/main/many
		head -c 4M /mnt/host%[1]s | split -b 40k -a 3 -d - /mnt/n1/main/many/
		sync`, path))
	const lost = 2
	c.stop(lost)
	if err := os.RemoveAll(c.path(lost, "disk")); err != nil {
		t.Fatal(err)
	}
	c.start(lost)
	// A new store beside the one that is gone.
	stores := func(i int, used uint64) error {
		s, err := c.status(i)
		if err != nil {
			return err
		}
		old, new := 0, 0
		for _, st := range s.Cluster.Stores {
			switch here := st.Node == fmt.Sprintf("n%d", lost); {
			case here && st.ID < 4 && st.State == "down":
				old++
			case here && st.ID == 4 && st.State == "up" && st.Used >= used:
				new++
			}
		}
		if old != 1 || new != 1 {
			return fmt.Errorf("stores: %+v", s.Cluster.Stores)
		}
		if !strings.Contains(strings.Join(s.Cluster.Problems, "\n"), "its disk is missing") {
			return fmt.Errorf("the lost disk is not among the problems: %q", s.Cluster.Problems)
		}
		return nil
	}
	for i := range c.nodes {
		c.wait(30*time.Second, "the new store", func() error { return stores(i+1, 0) })
	}
	k.run(time.Minute, fresh+fmt.Sprintf(`
		for n in 1 2 3; do
			cmp /mnt/n$n/main/big /mnt/host%s
			cat /mnt/n$n/main/many/* | cmp -n 4194304 - /mnt/host%[1]s
			test $(cat /mnt/n$n/main/many/* | wc -c) = 4194304
		done`, path))
	// What is written now has all its copies, on the new disk too.
	k.run(time.Minute, fmt.Sprintf("cp /mnt/host%s /mnt/n%d/main/again; sync", path, lost))
	c.wait(30*time.Second, "the copies on the new disk", func() error { return stores(1, 24<<20) })
	k.run(time.Minute, fresh+fmt.Sprintf(`
		for n in 1 2 3; do cmp /mnt/n$n/main/again /mnt/host%s; done
		rm -r /mnt/n1/main/many /mnt/n1/main/big`, path))
	c.alive()
	t.Log(strings.TrimSpace(c.must(1, "check", "--data")))
}

// TestDiskFull fills the disks of all nodes: the application is told, whatever
// needs no room on them goes on, and deleting makes room.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 1, func(folder string) {
		disk := filepath.Join(folder, "disk")
		if err := os.Mkdir(disk, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("hawser-test", disk, "tmpfs", 0, "size=448m,mode=755"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	})
	k := c.client(1, "1G")
	path, _ := c.content("data", 16<<20)
	k.run(time.Minute, c.mountAll()+fmt.Sprintf("cp /mnt/host%s /mnt/n1/main/keep; sync", path))
	for round := range 2 {
		out := k.run(2*time.Minute, `
			cd /mnt/n1/main
			if dd if=/dev/zero of=fill bs=1M count=2000 conv=fsync 2>/tmp/err; then echo it never got full; exit 1; fi
			cat /tmp/err
			ls -l fill`)
		if !strings.Contains(out, "No space left on device") {
			t.Fatalf("the application was not told:\n%s", out)
		}
		// Small files and names are in the state machine; the rest can be read.
		k.run(time.Minute, fresh+fmt.Sprintf(`
			for n in 1 2 3; do
				cmp /mnt/n$n/main/keep /mnt/host%s
				mkdir /mnt/n$n/main/dir; echo small >/mnt/n$n/main/dir/file; mv /mnt/n$n/main/dir/file /mnt/n$n/main/dir/moved
				test "$(cat /mnt/n$n/main/dir/moved)" = small
				rm -r /mnt/n$n/main/dir
			done`, path))
		c.alive()
		s, err := c.status(1)
		if err != nil || !strings.Contains(strings.Join(s.Cluster.Problems, "\n"), "is full") {
			t.Errorf("the full stores are not among the problems: %q, %v", s.Cluster.Problems, err)
		}
		// The files' bytes are kept for store.free_delay.
		k.run(90*time.Second, fmt.Sprintf(`
			rm /mnt/n2/main/fill
			for i in $(seq 60); do
				if cp /mnt/host%s /mnt/n3/main/room%d 2>/dev/null && sync /mnt/n3/main/room%[2]d; then exit 0; fi
				sleep 1
			done
			echo deleting made no room
			exit 1`, path, round))
	}
	k.run(time.Minute, fresh+fmt.Sprintf("for n in 1 2 3; do for f in keep room0 room1; do cmp /mnt/n$n/main/$f /mnt/host%s; done; done", path))
	c.check()
}

// flip changes a byte of what a node has stored of data at off, and reports
// whether it has it.
func (c *testCluster) flip(i int, data []byte, off int) bool {
	c.t.Helper()
	segments, err := filepath.Glob(filepath.Join(c.path(i, "disk"), "seg-*"))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, name := range segments {
		stored, err := os.ReadFile(name)
		if err != nil {
			c.t.Fatal(err)
		}
		at := bytes.Index(stored, data[off:off+64])
		if at < 0 {
			continue
		}
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			c.t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte{data[off] ^ 0x10}, int64(at)); err != nil {
			c.t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			c.t.Fatal(err)
		}
		return true
	}
	return false
}

// TestFlippedByte changes bytes on the nodes' disks: a reader gets the right
// data from another copy; where there is none, EIO; never wrong data.
func TestFlippedByte(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 1)
	k := c.client(1, "1G")
	three, threeData := c.content("three", 8<<20)
	one, oneData := c.content("one", 8<<20)
	k.run(time.Minute, c.mountAll()+fmt.Sprintf("cp /mnt/host%s /mnt/n1/main/three; mkdir /mnt/n1/main/single; sync", three))
	c.must(1, "class", "set", "/main/single", "copies=1")
	k.run(time.Minute, fmt.Sprintf("cp /mnt/host%s /mnt/n1/main/single/one; sync; umount /mnt/n1 /mnt/n2 /mnt/n3", one))
	// Nobody has it in memory.
	for i := range c.nodes {
		c.stop(i + 1)
	}
	for i := range c.nodes {
		c.start(i + 1)
	}
	c.waitHealthy(time.Minute)
	// Two of the three copies of each of several places are bad.
	const step = 1<<20 + 4096*3 + 77
	for n, off := 0, 5; off < len(threeData); n, off = n+1, off+step {
		for _, i := range []int{1 + n%3, 1 + (n+1)%3} {
			if !c.flip(i, threeData, off) {
				t.Errorf("node %d does not have the file's byte %d", i, off)
			}
		}
	}
	const bad = 5<<20 + 1000
	copies := 0
	for i := range c.nodes {
		if c.flip(i+1, oneData, bad) {
			copies++
		}
	}
	if copies != 1 {
		t.Errorf("%d copies of the file that was to have one", copies)
	}
	k.run(time.Minute, c.mountAll()+fmt.Sprintf("for n in 1 2 3; do cmp /mnt/n$n/main/three /mnt/host%s; done", three))
	out := k.run(time.Minute, fmt.Sprintf(`
		for n in 1 2 3; do
			if cat /mnt/n$n/main/single/one >/tmp/got 2>/tmp/err; then echo node $n gave a file that can not be right; exit 1; fi
			cat /tmp/err
			# What came before the error is right, and so is the file's other end.
			size=$(stat -c %%s /tmp/got)
			test $size -le %d
			cmp -n $size /tmp/got /mnt/host%s
			cmp -i 7340032 /mnt/n$n/main/single/one /mnt/host%[2]s
		done`, bad, one))
	if strings.Count(out, "Input/output error") != 3 {
		t.Errorf("not EIO:\n%s", out)
	}
	c.alive()
	found, err := c.admin(1, "check", "--data")
	if err == nil || !strings.Contains(found+err.Error(), "checksum") && !strings.Contains(found+err.Error(), "corrupt") {
		t.Errorf("the check does not find it: %v\n%s", err, found)
	}
	// A file that is written again is whole.
	k.run(time.Minute, fmt.Sprintf(`
		cp /mnt/host%s /mnt/n2/main/single/new; mv /mnt/n2/main/single/new /mnt/n2/main/single/one; sync
		%s
		for n in 1 2 3; do cmp /mnt/n$n/main/single/one /mnt/host%[1]s; done`, one, fresh))
}
