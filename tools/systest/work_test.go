package systest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// workProgram builds the program whose work can be verified, and returns its
// path on this machine and in guests.
func (c *testCluster) workProgram() (here, guest string) {
	c.t.Helper()
	here = filepath.Join(c.dir, "work")
	build := exec.Command("go", "build", "-o", here, "github.com/hawserfs/hawser/tools/systest/work")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		c.t.Fatalf("building work: %v\n%s", err, out)
	}
	return here, "/mnt/host" + here
}

// TestMounts mounts each node with each minor version and number of
// connections, and does a little of everything.
func TestMounts(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 1)
	k := c.client(1, "512M")
	for node := 1; node <= 3; node++ {
		for _, options := range []string{"vers=4.1", "vers=4.2", "vers=4.1,nconnect=4", "vers=4.2,nconnect=4"} {
			t.Run(fmt.Sprintf("node %d %s", node, options), func(t *testing.T) {
				k := &client{t: t, c: c, guest: k.guest}
				dir := fmt.Sprintf("/mnt/nfs/main/%d-%s", node, options)
				out := k.run(time.Minute, c.mountCommand(node, options)+fmt.Sprintf(`
					test "$(ls /mnt/nfs)" = main
					mkdir '%[1]s'
					cd '%[1]s'
					echo hello >a; ln a b; ln -s a c; mkfifo p; mknod d c 1 3; mkdir e
					chown 12:34 a; chmod 4750 a; touch -d '2001-02-03 04:05:06.789' a
					mv b e/f
					stat -c '%%n %%F %%a %%u %%g %%h %%s %%y' a c p d e/f
					cat c e/f
					df . >/dev/null
					rm a; cat e/f
					cd /; umount /mnt/nfs`, dir))
				for _, want := range []string{
					"a regular file 4750 12 34 2 6 2001-02-03 04:05:06.789000000",
					"c symbolic link 777 0 0 1 1", "p fifo 644 0 0 1 0", "d character special file 644", "e/f regular file 4750",
				} {
					if !strings.Contains(out, want) {
						t.Errorf("%q is not in\n%s", want, out)
					}
				}
			})
		}
	}
}

// TestRealWork does through one node what people do, and looks at it through
// another from a second client.
func TestRealWork(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 2)
	here, work := c.workProgram()
	a, b := c.client(1, "3G"), c.client(2, "1G")
	a.run(time.Minute, c.mountCommand(1, "vers=4.2,nconnect=4"))
	b.run(time.Minute, c.mountCommand(2, "vers=4.1"))

	t.Run("a tree copied with cp and tar", func(t *testing.T) {
		a, b := a.of(t), b.of(t)
		src := filepath.Join(goroot(t), "src")
		cp := a.start(15*time.Minute, fmt.Sprintf("cp -a /mnt/host%s /mnt/nfs/main/cp", src))
		a.run(15*time.Minute, fmt.Sprintf("mkdir /mnt/nfs/main/tar; tar -C /mnt/host%s --format=posix -cf - . | tar -C /mnt/nfs/main/tar -xpf -", src))
		if _, err := cp(); err != nil {
			t.Fatal(err)
		}
		want, err := exec.Command(here, "manifest", src).Output()
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(want), "\n"); n < 8000 {
			t.Fatalf("the source tree has %d entries: too few to prove anything", n)
		}
		copies := []string{"cp", "tar"}
		var got []func() (string, error)
		for _, copied := range copies {
			got = append(got, b.start(15*time.Minute, work+" manifest /mnt/nfs/main/"+copied))
		}
		for i, copied := range copies {
			out, err := got[i]()
			if err != nil {
				t.Fatal(err)
			}
			sameLines(t, copied, out, string(want))
		}
	})

	t.Run("git", func(t *testing.T) {
		repo, err := filepath.Abs("../..")
		if err != nil {
			t.Fatal(err)
		}
		a.of(t).run(10*time.Minute, fmt.Sprintf(`
			export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
			cd /mnt/nfs/main
			git clone --quiet --no-local /mnt/host%s repo
			cd repo
			git fsck --full --strict
			git gc --quiet
			git fsck --full
			test -z "$(git status --porcelain)"`, repo))
		b.of(t).run(5*time.Minute, `
			export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
			cd /mnt/nfs/main/repo; git fsck --full; git log --oneline | wc -l`)
	})

	t.Run("go build", func(t *testing.T) { testGoBuild(t, a.of(t), b.of(t)) })

	t.Run("sqlite", func(t *testing.T) {
		for _, mode := range []string{"delete", "wal"} {
			a.of(t).run(5*time.Minute, fmt.Sprintf(`
				cd /mnt/nfs/main
				sqlite3 %[1]s.db 'pragma journal_mode=%[1]s; create table t(n integer primary key, s text);'
				for i in $(seq 20); do
					sqlite3 %[1]s.db "begin; with recursive c(x) as (select 1 union all select x+1 from c where x<500)
						insert into t(s) select hex(randomblob(40)) from c; commit;"
					sqlite3 %[1]s.db 'update t set s = s || n where n %% 7 = 0; delete from t where n %% 50 = 0;'
				done
				test "$(sqlite3 %[1]s.db 'pragma integrity_check')" = ok`, mode))
			out := b.of(t).run(time.Minute, fmt.Sprintf("cd /mnt/nfs/main; sqlite3 %s.db 'pragma integrity_check; select count(*) > 9000 from t;'", mode))
			if out != "ok\n1\n" {
				t.Errorf("journal_mode %s, seen from another node: %s", mode, out)
			}
		}
	})

	t.Run("locks", func(t *testing.T) { testLocks(t, a.of(t), b.of(t), work) })

	t.Run("2 GiB", func(t *testing.T) {
		const size = 2 << 30
		t.Log("written at", a.of(t).run(10*time.Minute, fmt.Sprintf("%s write /mnt/nfs/main/large %d 1", work, size)))
		t.Log("read at", b.of(t).run(10*time.Minute, fmt.Sprintf("%s verify /mnt/nfs/main/large %d 1", work, size)))
		a.of(t).run(time.Minute, "rm /mnt/nfs/main/large")
	})

	t.Run("mmap", func(t *testing.T) {
		a.of(t).run(time.Minute, work+" mmap /mnt/nfs/main/mapped")
		b.of(t).run(time.Minute, fmt.Sprintf("%s verify /mnt/nfs/main/mapped %d 7", work, 4<<20+123))
	})

	t.Run("a file that is open and removed", func(t *testing.T) {
		a.of(t).run(time.Minute, `
			echo kept >/mnt/nfs/main/open
			exec 3</mnt/nfs/main/open
			rm /mnt/nfs/main/open
			test "$(cat <&3)" = kept`)
		b.of(t).run(time.Minute, "echo kept >/mnt/nfs/main/elsewhere")
		held := b.of(t).start(time.Minute, `exec 3</mnt/nfs/main/elsewhere; touch /tmp/opened; while test ! -e /tmp/removed; do sleep 0.1; done; sleep 3
			echo 3 >/proc/sys/vm/drop_caches; cat <&3`)
		b.of(t).run(time.Minute, "while test ! -e /tmp/opened; do sleep 0.1; done")
		a.of(t).run(time.Minute, "rm /mnt/nfs/main/elsewhere")
		b.of(t).run(time.Minute, "touch /tmp/removed")
		if out, err := held(); err != nil || out != "kept\n" {
			t.Errorf("a file held open through another node: %q, %v", out, err)
		}
	})

	t.Run("100,000 files in a directory", func(t *testing.T) {
		const files = 100_000
		a.of(t).run(15*time.Minute, fmt.Sprintf("mkdir /mnt/nfs/main/many; %s many /mnt/nfs/main/many %d", work, files))
		for _, list := range []string{"ls -f /mnt/nfs/main/many | grep -c file-", "find /mnt/nfs/main/many -type f | wc -l"} {
			for _, k := range []*client{a, b} {
				if got := strings.TrimSpace(k.of(t).run(5*time.Minute, list)); got != strconv.Itoa(files) {
					t.Errorf("%s counts %s", list, got)
				}
			}
		}
		listing := b.of(t).start(15*time.Minute, `while test -d /mnt/nfs/main/many; do ls -f /mnt/nfs/main/many | sort | uniq -d; done`)
		a.of(t).run(15*time.Minute, "rm -rf /mnt/nfs/main/many")
		if out, err := listing(); err != nil || strings.Contains(out, "file-") {
			t.Errorf("listing while it is removed: %v, names seen twice:\n%.2000s", err, out)
		}
	})

	c.check()
	a.run(time.Minute, "umount /mnt/nfs")
	b.run(time.Minute, "umount /mnt/nfs")
}

// goroot is where Go is installed, here and in the guests.
func goroot(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// testGoBuild builds hawser with its source, the build cache and the output on
// the mount. The guest's one processor takes a quarter of an hour for all that
// hawser is made of, so the cache that it begins with, copied to the mount, has
// what others wrote; hawser's own packages are compiled and linked there.
func testGoBuild(t *testing.T, a, b *client) {
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	source, cache := filepath.Join(a.c.dir, "source"), filepath.Join(a.c.dir, "cache")
	prepare := exec.Command("sh", "-eu", "-c", `
		mkdir -p "$SOURCE"
		git -c safe.directory='*' ls-files -z | tar --null -T - -cf - | tar -C "$SOURCE" -xf -
		go mod vendor -o "$SOURCE/vendor"
		cd "$SOURCE"
		go build $(go list -deps ./cmd/hawser | grep -v ^github.com/hawserfs/)`)
	prepare.Dir = repo
	prepare.Env = append(os.Environ(), "SOURCE="+source, "GOCACHE="+cache, "GOFLAGS=-trimpath", "CGO_ENABLED=0")
	if out, err := prepare.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	a.run(5*time.Minute, fmt.Sprintf("mkdir -p /mnt/nfs/main/build/tmp; cp -a /mnt/host%s /mnt/host%s /mnt/nfs/main/build/", source, cache))
	a.run(15*time.Minute, fmt.Sprintf(`
		cd /mnt/nfs/main/build/source
		export GOCACHE=/mnt/nfs/main/build/cache GOTMPDIR=/mnt/nfs/main/build/tmp GOPATH=/mnt/nfs/main/build/gopath
		export GOFLAGS='-trimpath -mod=vendor' CGO_ENABLED=0 GOTOOLCHAIN=local GOROOT=%[1]s
		%[1]s/bin/go build -o ../hawser ./cmd/hawser
		../hawser --version`, goroot(a.t)))
	b.run(time.Minute, "/mnt/nfs/main/build/hawser --version")
}

// of returns the client reporting to a subtest.
func (k *client) of(t *testing.T) *client { return &client{t: t, c: k.c, guest: k.guest} }

// testLocks shows that flock and POSIX locks exclude between clients of two nodes.
func testLocks(t *testing.T, a, b *client, work string) {
	// flock, held by a.
	held := a.start(time.Minute, "flock -n /mnt/nfs/main/lock sh -c 'touch /tmp/held; sleep 4'")
	a.run(time.Minute, "while test ! -e /tmp/held; do sleep 0.1; done")
	b.run(time.Minute, "if flock -n /mnt/nfs/main/lock true; then echo two hold the lock; exit 1; fi")
	if _, err := held(); err != nil {
		t.Error(err)
	}
	b.run(time.Minute, "flock -n /mnt/nfs/main/lock true")
	// POSIX, held by b.
	held = b.start(time.Minute, work+" fcntl /mnt/nfs/main/posix 4")
	a.run(time.Minute, "sleep 1.5; s=0; "+work+" fcntl /mnt/nfs/main/posix 0 || s=$?; test $s = 3")
	if _, err := held(); err != nil {
		t.Error(err)
	}
	a.run(time.Minute, work+" fcntl /mnt/nfs/main/posix 0")
	// A counter that both add to under a lock loses nothing.
	var wg sync.WaitGroup
	for _, k := range []*client{a, b} {
		wg.Go(func() {
			if _, err := k.try(3*time.Minute, work+" count /mnt/nfs/main/counter 50"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := strings.TrimSpace(a.run(time.Minute, "cat /mnt/nfs/main/counter")); got != "100" {
		t.Errorf("two clients added 50 each under a lock: %s", got)
	}
}

// sameLines compares two manifests and shows a few differences.
func sameLines(t *testing.T, what, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	have := map[string]bool{}
	for line := range strings.Lines(got) {
		have[line] = true
	}
	shown := 0
	for line := range strings.Lines(want) {
		if !have[line] && shown < 10 {
			t.Errorf("%s: missing or different: %s", what, strings.TrimSpace(line))
			shown++
		}
		delete(have, line)
	}
	for line := range have {
		if shown++; shown < 20 {
			t.Errorf("%s: not wanted: %s", what, strings.TrimSpace(line))
		}
	}
}

// check runs the verifier over the cluster, data and all.
func (c *testCluster) check() {
	c.t.Helper()
	c.waitHealthy(2 * time.Minute)
	c.t.Log(strings.TrimSpace(c.must(1, "check", "--data")))
}
