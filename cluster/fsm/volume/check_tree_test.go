package volume

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// TestCheckTree runs random commands on a small tree, with and without a hash
// under which many names meet. Whatever they do, the invariants hold.
func TestCheckTree(t *testing.T) {
	good := hashName
	defer func() { hashName = good }()
	rapid.Check(t, func(t *rapid.T) {
		hashName = good
		if rapid.Bool().Draw(t, "poor hash") {
			hashName = func(_, _ uint64, name []byte) uint64 { return uint64(name[0]%2) << 40 }
		}
		e := newData(t)
		defer e.close()
		e.open("a", "n1")
		dirs := []cluster.Ino{cluster.RootIno}
		inos := []cluster.Ino{cluster.RootIno}
		dir := func() cluster.Ino { return rapid.SampledFrom(dirs).Draw(t, "dir") }
		name := func() string { return rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "name") }
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			var b fsm.Body
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1, 2:
				typ := rapid.SampledFrom([]cluster.FileType{
					cluster.TypeRegular, cluster.TypeDirectory, cluster.TypeDirectory, cluster.TypeSymlink, cluster.TypeFIFO,
				}).Draw(t, "type")
				c := Create{Dir: dir(), Name: name(), Type: typ, Gen: 1}
				if typ == cluster.TypeSymlink {
					c.Target = "there"
				}
				body, err := e.apply("a", c)
				if err != nil {
					continue
				}
				r, err := DecodeCreateResult(body)
				if err != nil {
					t.Fatal(err)
				}
				inos = append(inos, r.Attr.Ino)
				if typ == cluster.TypeDirectory {
					dirs = append(dirs, r.Attr.Ino)
				}
				continue
			case 3:
				b = Link{Ino: rapid.SampledFrom(inos).Draw(t, "ino"), Dir: dir(), Name: name()}
			case 4, 5:
				b = Remove{Dir: dir(), Name: name()}
			case 6, 7:
				b = Rename{FromDir: dir(), FromName: name(), ToDir: dir(), ToName: name()}
			case 8:
				b = SetXattr{Ino: rapid.SampledFrom(inos).Draw(t, "ino"), Name: name(), Value: []byte(name())}
			case 9:
				ino := rapid.SampledFrom(inos).Draw(t, "ino")
				b = rapid.SampledFrom([]fsm.Body{
					RemoveXattr{Ino: ino, Name: "a"},
					ReleaseUnlinked{Inos: []cluster.Ino{ino}},
					Reap{Max: 2},
					CommitExtents{Ino: ino, Extents: []NewExtent{inline(3, []byte("abc"))}},
				}).Draw(t, "other")
			}
			// Most fail, for one reason or another.
			_, err := e.apply("a", b)
			if err == cluster.EINTERNAL {
				t.Fatalf("%T%+v: %v", b, b, err)
			}
		}
		if p := e.problems(); len(p) > 0 {
			t.Fatal(fmt.Sprint(p))
		}
		e.replay()
	})
}
