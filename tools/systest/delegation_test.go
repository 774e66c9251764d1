package systest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// counts are functions of scripts: how many requests of a kind the mount at $2 has made.
const counts = `
	count() { awk -v op="$1:" -v at="$2" '$1=="device"{on=($5==at)} on&&$1==op{print $2}' /proc/self/mountstats; }
`

// TestDelegations has kernels cache what is delegated to them, and hear of what others
// change: through the same node and another, while they have it open and locked, and
// after the node that has granted it has restarted.
func TestDelegations(t *testing.T) {
	t.Setenv("HAWSER_NFS_DELEGATIONS", "read")
	c := startCluster(t, 3, 2)
	c.must(1, "class", "set", "/main", "consistency=relaxed")
	a, b := c.client(1, "512M"), c.client(2, "512M")
	b.run(time.Minute, c.mountCommand(1, "vers=4.2")+"; mkdir /tmp/other; mount -t nfs4 -o vers=4.2 "+c.lab.HostAddr(2)+":/ /tmp/other")
	for _, vers := range []string{"4.1", "4.2"} {
		t.Run(vers, func(t *testing.T) {
			a, b := a.of(t), b.of(t)
			dir := "/mnt/nfs/main/" + vers
			b.run(time.Minute, fmt.Sprintf("mkdir %[1]s; for f in same other held locked gone restart; do echo one >%[1]s/$f; done; sync", dir))
			a.run(time.Minute, c.mountCommand(1, "vers="+vers))

			// The first look at a file costs an OPEN, others none.
			got := a.run(time.Minute, counts+fmt.Sprintf(`
				cd %s; cat same other >/dev/null
				before=$(count OPEN /mnt/nfs/main); reads=$(count READ /mnt/nfs/main)
				for i in 1 2 3 4 5 6 7 8 9; do cat same other >/dev/null; done
				echo $(($(count OPEN /mnt/nfs/main) - before)) $(($(count READ /mnt/nfs/main) - reads))`, dir))
			if strings.TrimSpace(got) != "0 0" {
				t.Errorf("18 opens of what is delegated cost %q OPENs and READs", got)
			}
			sees := func(file, want string) {
				t.Helper()
				a.run(time.Minute, fmt.Sprintf("cd %s; for i in $(seq 50); do test \"$(cat %s)\" = %s && exit; sleep 0.1; done; cat %s; exit 1", dir, file, want, file))
			}
			// What is written through the same node waits for the recall; what is through
			// another is seen soon.
			b.run(time.Minute, fmt.Sprintf("echo two >%s/same", dir))
			if got := a.run(time.Minute, fmt.Sprintf("cat %s/same", dir)); got != "two\n" {
				t.Errorf("old data after a write through the same node: %q", got)
			}
			b.run(time.Minute, fmt.Sprintf("echo two >/tmp/other/main/%s/other", vers))
			sees("other", "two")

			// What a has opened by itself goes on, and its lock holds.
			hold := a.start(2*time.Minute, fmt.Sprintf(`
				cd %s; cat held locked >/dev/null
				exec 3<held 4<locked
				flock -s 4
				touch /tmp/holds
				while test -e /tmp/holds; do sleep 0.1; done
				cat <&3; cat <&4; flock -u 4`, dir))
			a.run(time.Minute, "while ! test -e /tmp/holds; do sleep 0.1; done")
			b.run(time.Minute, fmt.Sprintf(`cd %s; echo two >held
				exec 4<>locked
				if flock -n -x 4; then echo "a lock that another has"; exit 1; fi`, dir))
			b.run(time.Minute, fmt.Sprintf("rm %s/gone", dir))
			a.run(time.Minute, "rm /tmp/holds")
			// Linux need not look for changes of what is open already.
			if out, err := hold(); err != nil || out != "two\none\n" && out != "one\none\n" {
				t.Errorf("what was held: %q, %v", out, err)
			}
			b.run(time.Minute, fmt.Sprintf("flock -n -x %s/locked true; ! test -e %[1]s/gone", dir))

			// A restart is a take-over: what is cached may be old by then.
			hold = a.start(3*time.Minute, fmt.Sprintf(`
				cd %s; cat restart >/dev/null; exec 3<restart
				touch /tmp/holds
				while test -e /tmp/holds; do sleep 0.1; done
				cat <&3`, dir))
			a.run(time.Minute, "while ! test -e /tmp/holds; do sleep 0.1; done")
			c.kill(1)
			b.run(2*time.Minute, fmt.Sprintf("echo two >/tmp/other/main/%s/restart", vers))
			c.start(1)
			a.run(2*time.Minute, fmt.Sprintf("ls %s >/dev/null", dir))
			sees("restart", "two")
			a.run(time.Minute, "rm /tmp/holds")
			if out, err := hold(); err != nil || out != "one\n" && out != "two\n" {
				t.Errorf("what was open: %q, %v", out, err)
			}
			out := a.run(time.Minute, counts+"echo $(count DELEGRETURN /mnt/nfs/main); umount /mnt/nfs")
			t.Logf("delegations returned: %s", strings.TrimSpace(out))
			c.waitHealthy(time.Minute)
		})
	}
}
