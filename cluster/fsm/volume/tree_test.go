package volume

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// A treeEnv is a volume whose commands have the time of their index.
type treeEnv struct {
	tb    testing.TB
	m     *fsm.Machine
	view  View
	index uint64
	log   []cluster.Entry
	cred  cluster.Cred
	gen   uint32
}

func newTree(tb testing.TB) *treeEnv {
	e, done := openTree(tb)
	tb.Cleanup(done)
	return e
}

// openTree returns a formatted volume, and a function that closes it.
func openTree(tb testing.TB) (*treeEnv, func()) {
	m, err := fsm.Open(fsm.Options{Dir: "volume", FS: vfs.NewMem(), Core: New(), CacheBytes: 1 << 20, MemTableBytes: 4 << 20})
	if err != nil {
		tb.Fatal(err)
	}
	e := &treeEnv{tb: tb, m: m, view: View{m.Reader()}}
	e.apply(Format{HashKey: [16]byte{1, 2, 3}, Mode: 0o755, Class: cluster.Class{Copies: 3}})
	return e, func() {
		if err := m.Close(); err != nil {
			tb.Error(err)
		}
	}
}

// entry returns the log entry of a command at the present index.
func (e *treeEnv) entry(b fsm.Body) cluster.Entry {
	return cluster.Entry{
		Index: e.index, Term: 1,
		Command: fsm.AppendCommand(nil, fsm.Envelope{Time: cluster.Time(e.index)}, b),
	}
}

// apply applies one command and returns its result.
func (e *treeEnv) apply(b fsm.Body) ([]byte, error) {
	e.index++
	e.log = append(e.log, e.entry(b))
	res := e.m.Apply(e.log[len(e.log)-1:])
	body, err := fsm.SplitResult(res[0])
	if errors.Is(err, cluster.EINTERNAL) {
		e.tb.Fatalf("%+v failed by a bug", b)
	}
	return body, err
}

// do applies one command, decodes its result, and fails the test if it can't.
func do[R any](e *treeEnv, b fsm.Body, decode func([]byte) (R, error)) (R, error) {
	body, err := e.apply(b)
	if err != nil {
		var zero R
		return zero, err
	}
	r, err := decode(body)
	if err != nil {
		e.tb.Fatalf("result of %T: %v", b, err)
	}
	return r, nil
}

// walk follows a path without asking for permission.
func (e *treeEnv) walk(path string) (cluster.Ino, error) {
	ino := cluster.RootIno
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if name == "" {
			continue
		}
		d, ok := e.view.Lookup(ino, name)
		if !ok {
			return 0, cluster.ENOENT
		}
		ino = d.Ino
	}
	return ino, nil
}

// split walks to a path's directory and returns it and the last name.
func (e *treeEnv) split(path string) (cluster.Ino, string) {
	i := strings.LastIndexByte(path, '/')
	dir, err := e.walk(path[:i])
	if err != nil {
		dir = 1 << 40 // not there
	}
	name := path[i+1:]
	if s, err := strconv.Unquote(`"` + name + `"`); err == nil {
		name = s
	}
	if n, ok := strings.CutPrefix(name, "LONG"); ok {
		count, _ := strconv.Atoi(n)
		name = strings.Repeat("x", count)
	}
	return dir, name
}

// change says what a command did to a directory.
func (e *treeEnv) change(c cluster.ChangeInfo) string {
	switch {
	case c.Before == c.After:
		return "dir unchanged"
	case c.After == e.index && c.Before < c.After:
		return "dir changed"
	}
	return fmt.Sprintf("BAD CHANGE %d -> %d at %d", c.Before, c.After, e.index)
}

func (e *treeEnv) stat(a *cluster.Attr) string {
	s := fmt.Sprintf("#%d %c %04o %d:%d nlink=%d size=%d", a.Ino, "?fdlbcps"[a.Type], a.Mode, a.UID, a.GID, a.Nlink, a.Size)
	if a.Major|a.Minor != 0 {
		s += fmt.Sprintf(" dev=%d,%d", a.Major, a.Minor)
	}
	if a.Parent != 0 {
		s += fmt.Sprintf(" parent=%d", a.Parent)
	}
	s += fmt.Sprintf(" a=%d m=%d c=%d b=%d", a.Atime, a.Mtime, a.Ctime, a.Btime)
	if a.Change != uint64(a.Ctime) {
		s += fmt.Sprintf(" CHANGE=%d", a.Change)
	}
	return s
}

// parseSet reads mode=, uid=, gid=, size=, atime=, mtime= from args.
func parseSet(tb testing.TB, args []string) (s cluster.SetAttr) {
	for _, arg := range args {
		k, v, ok := strings.Cut(arg, "=")
		if !ok || k == "to" || k == "excl" {
			continue
		}
		base := 10
		if k == "mode" {
			base = 8
		}
		n, err := strconv.ParseInt(v, base, 64)
		if err != nil && v != "now" {
			tb.Fatalf("bad argument %q", arg)
		}
		switch k {
		case "mode":
			s.Mask |= cluster.SetMode
			s.Mode = uint32(n)
		case "uid":
			s.Mask |= cluster.SetUID
			s.UID = uint32(n)
		case "gid":
			s.Mask |= cluster.SetGID
			s.GID = uint32(n)
		case "size":
			s.Mask |= cluster.SetSize
			s.Size = uint64(n)
		case "atime", "mtime":
			mask, now := cluster.SetAtime, cluster.SetAtimeNow
			if k == "mtime" {
				mask, now = cluster.SetMtime, cluster.SetMtimeNow
			}
			switch {
			case v == "now":
				s.Mask |= now
			case k == "atime":
				s.Mask |= mask
				s.Atime = cluster.Time(n)
			default:
				s.Mask |= mask
				s.Mtime = cluster.Time(n)
			}
		}
	}
	return s
}

// line runs one line of a script and returns what it says.
func (e *treeEnv) line(f []string) string {
	has := func(word string) bool { return slices.Contains(f, word) }
	switch f[0] {
	case "as":
		e.cred = cluster.Cred{}
		ids := strings.Split(f[1], ":")
		for i, s := range ids {
			n, _ := strconv.ParseUint(s, 10, 32)
			switch i {
			case 0:
				e.cred.UID = uint32(n)
			case 1:
				e.cred.GID = uint32(n)
			default:
				e.cred.GIDs = append(e.cred.GIDs, uint32(n))
			}
		}
		return ""
	case "mkdir", "mkfile", "symlink", "fifo", "char":
		return e.create(f)
	case "ln":
		ino, err := e.walk(f[1])
		if err != nil {
			return err.Error()
		}
		return e.link(ino, f[2])
	case "lnino":
		n, _ := strconv.ParseUint(f[1], 10, 64)
		return e.link(cluster.Ino(n), f[2])
	case "rm":
		dir, name := e.split(f[1])
		r, err := do(e, Remove{Cred: e.cred, Dir: dir, Name: name}, DecodeRemoveResult)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("ok nlink=%d, %s", r.Attr.Nlink, e.change(r.Dir))
	case "mv":
		c := Rename{Cred: e.cred}
		c.FromDir, c.FromName = e.split(f[1])
		c.ToDir, c.ToName = e.split(f[2])
		r, err := do(e, c, DecodeRenameResult)
		if err != nil {
			return err.Error()
		}
		s := "ok, from " + e.change(r.From) + ", to " + e.change(r.To)
		if r.Replaced != 0 {
			s += fmt.Sprintf(", replaced #%d", r.Replaced)
		}
		return s
	case "set":
		ino, err := e.walk(f[1])
		if err != nil {
			return err.Error()
		}
		return e.attr(SetAttr{Cred: e.cred, Ino: ino, Attr: parseSet(e.tb, f[2:]), Open: has("open")})
	case "setino":
		n, _ := strconv.ParseUint(f[1], 10, 64)
		return e.attr(SetAttr{Cred: e.cred, Ino: cluster.Ino(n), Attr: parseSet(e.tb, f[2:]), Open: has("open")})
	case "class":
		ino, _ := e.walk(f[1])
		n, _ := strconv.Atoi(f[3])
		c := cluster.Class{Copies: uint8(n)}
		if f[2] == "relaxed" {
			c.Consistency = cluster.Relaxed
		}
		return e.attr(SetClass{Cred: e.cred, Ino: ino, Class: c})
	case "touch":
		var c Touch
		n, _ := strconv.ParseInt(f[1], 10, 64)
		c.Atime = cluster.Time(n)
		for _, p := range f[2:] {
			ino, _ := e.walk(p)
			c.Inos = append(c.Inos, ino)
		}
		_, err := e.apply(c)
		return okOr(err)
	case "setx", "rmx", "getx", "lsx":
		return e.xattr(f)
	default:
		return e.look(f)
	}
}

// look runs the lines that only read.
func (e *treeEnv) look(f []string) string {
	if f[0] == "usage" {
		return fmt.Sprintf("%+v", e.view.Usage())
	}
	ino, err := e.walk(f[1])
	if err != nil {
		return err.Error()
	}
	switch f[0] {
	case "stat":
		a, ok := e.view.Inode(ino)
		if !ok {
			return "gone"
		}
		return e.stat(&a)
	case "showclass":
		a, _ := e.view.Inode(ino)
		return fmt.Sprintf("%v copies=%d", a.Class.Consistency, a.Class.Copies)
	case "readlink":
		s, err := e.view.Readlink(ino)
		if err != nil {
			return err.Error()
		}
		return s
	case "ls":
		var names []string
		e.view.ReadDir(ino, 0, func(d *Dirent) bool {
			names = append(names, d.Name)
			return true
		})
		slices.Sort(names)
		n, _ := loadInode(e.view, ino)
		return fmt.Sprintf("%d entries: %s", n.Entries, strings.Join(names, " "))
	}
	e.tb.Fatalf("unknown line %q", f)
	return ""
}

func okOr(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}

func (e *treeEnv) create(f []string) string {
	e.gen++
	c := Create{Cred: e.cred, Gen: e.gen, How: Guarded, Attr: parseSet(e.tb, f[2:])}
	c.Dir, c.Name = e.split(f[1])
	c.Type = map[string]cluster.FileType{
		"mkdir": cluster.TypeDirectory, "mkfile": cluster.TypeRegular, "symlink": cluster.TypeSymlink,
		"fifo": cluster.TypeFIFO, "char": cluster.TypeChar,
	}[f[0]]
	for _, arg := range f[2:] {
		switch k, v, _ := strings.Cut(arg, "="); k {
		case "unchecked":
			c.How = Unchecked
		case "excl":
			c.How = Exclusive
			c.Verifier, _ = strconv.ParseUint(v, 10, 64)
		case "to":
			c.Target = v
		case "dev":
			c.Major, c.Minor = 1, 3
		}
	}
	r, err := do(e, c, DecodeCreateResult)
	if err != nil {
		return err.Error()
	}
	how := "found"
	if r.Created {
		how = "created"
	}
	return fmt.Sprintf("%s %s, set %#x, %s", how, e.stat(&r.Attr), r.Set, e.change(r.Dir))
}

func (e *treeEnv) link(ino cluster.Ino, path string) string {
	dir, name := e.split(path)
	r, err := do(e, Link{Cred: e.cred, Ino: ino, Dir: dir, Name: name}, DecodeLinkResult)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("ok nlink=%d, %s", r.Attr.Nlink, e.change(r.Dir))
}

func (e *treeEnv) attr(b fsm.Body) string {
	r, err := do(e, b, DecodeAttrResult)
	if err != nil {
		return err.Error()
	}
	return e.stat(&r.Attr)
}

func (e *treeEnv) xattr(f []string) string {
	ino, err := e.walk(f[1])
	if err != nil {
		return err.Error()
	}
	switch f[0] {
	case "setx":
		c := SetXattr{Cred: e.cred, Ino: ino, Name: f[2], Value: []byte(f[3])}
		if n, ok := strings.CutPrefix(f[3], "LONG"); ok {
			count, _ := strconv.Atoi(n)
			c.Value = make([]byte, count)
		}
		if slices.Contains(f, "create") {
			c.How = Guarded
		}
		if slices.Contains(f, "replace") {
			c.How = Exclusive
		}
		r, err := do(e, c, DecodeXattrResult)
		if err != nil {
			return err.Error()
		}
		return "ok, " + e.change(r.Change)
	case "rmx":
		r, err := do(e, RemoveXattr{Cred: e.cred, Ino: ino, Name: f[2]}, DecodeXattrResult)
		if err != nil {
			return err.Error()
		}
		return "ok, " + e.change(r.Change)
	case "getx":
		v, err := e.view.Xattr(ino, f[2])
		if err != nil {
			return err.Error()
		}
		return string(v)
	}
	names, err := e.view.Xattrs(ino)
	if err != nil {
		return err.Error()
	}
	return strings.Join(names, " ")
}

// TestTree runs the scripts in testdata/tree: each line is run, and its answer
// put behind it. Lines that begin with "as" say who runs the next ones, as
// UID:GID:GROUP….
func TestTree(t *testing.T) {
	datadriven.Walk(t, "testdata/tree", func(t *testing.T, path string) {
		e := newTree(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var b strings.Builder
			for line := range strings.Lines(d.Input) {
				line = strings.TrimSpace(line)
				out := e.line(strings.Fields(line))
				if out == "" {
					fmt.Fprintln(&b, line)
					continue
				}
				fmt.Fprintf(&b, "%s: %s\n", line, out)
			}
			return b.String()
		})
	})
}
