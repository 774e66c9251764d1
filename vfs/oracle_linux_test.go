package vfs_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
	"github.com/hawserfs/hawser/vfs/memfs"
)

// oracleChecks is how many sequences of operations TestOracles tries; more are
// tried if HAWSER_ORACLE_CHECKS says so. HAWSER_ORACLE_SEED repeats a run.
const oracleChecks = 60

// TestOracles does the same operations on a System, on the naive file system
// in memory, and, as root, on a local file system. Results, attributes,
// listings and contents must be the same.
//
// The System's state machine is restarted from what a crash leaves of it, and
// restored from its own checkpoints; a second one gets the log in batches of
// random sizes, with crashes and snapshots of the first one between them, and
// must come to the same state.
func TestOracles(t *testing.T) {
	checks, seed := oracleChecks, rand.Uint64()
	env := func(name string, set func(string) error) {
		if s := os.Getenv(name); s != "" {
			if err := set(s); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	env("HAWSER_ORACLE_CHECKS", func(s string) (err error) { checks, err = strconv.Atoi(s); return err })
	env("HAWSER_ORACLE_SEED", func(s string) (err error) { seed, err = strconv.ParseUint(s, 10, 64); return err })
	if testing.Short() {
		checks = min(checks, 10)
	}
	t.Logf("HAWSER_ORACLE_SEED=%d HAWSER_ORACLE_CHECKS=%d", seed, checks)
	for name, value := range map[string]string{"rapid.seed": fmt.Sprint(seed), "rapid.checks": fmt.Sprint(checks), "rapid.nofailfile": "true", "rapid.shrinktime": "8s"} {
		f := flag.Lookup(name)
		old := f.Value.String()
		if err := f.Value.Set(value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := f.Value.Set(old); err != nil {
				t.Error(err)
			}
		})
	}
	if os.Getuid() != 0 {
		t.Log("NOT ROOT: the local file system is not compared")
	}
	// Credentials are the thread's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	rapid.Check(t, func(r *rapid.T) {
		o := newOracle(t, r)
		defer o.close()
		steps := rapid.IntRange(5, 120).Draw(r, "steps")
		for range steps {
			o.step()
		}
		o.compare()
	})
}

// An object is one thing that all file systems have.
type object struct {
	sys, mem vfs.File
	fd       int // the local one, without access
	typ      vfs.FileType
	opens    int
	gone     bool // its last name is gone

	sysChange, memChange uint64 // when they were compared last
}

// An oracle is the file systems compared.
type oracle struct {
	t     *testing.T
	r     *rapid.T
	clock cluster.Time
	relay *relay
	sys   *vfs.System
	mem   *memfs.FS
	local *local // nil: none

	class   cluster.Class
	objects []*object // the first one is the root
}

func newOracle(t *testing.T, r *rapid.T) *oracle {
	o := &oracle{t: t, r: r, clock: 1_700_000_000_000_000_000}
	o.class = rapid.SampledFrom([]cluster.Class{strict, relaxed}).Draw(r, "class")
	o.relay = newRelay(t, rapid.Uint64().Draw(r, "faults"), o.class)
	o.mem = memfs.New(memfs.Options{Class: o.class, RootMode: 0o755, Now: o.now})
	o.sys = o.relay.serve(o.now)
	root := &object{typ: cluster.TypeDirectory, fd: -1}
	for fs, f := range map[vfs.FS]*vfs.File{o.sys: &root.sys, o.mem: &root.mem} {
		if _, err := fs.ReadDir(o.req(vfs.Cred{}), vfs.Root, 0, false, func(d *vfs.Dirent) bool {
			*f = d.File
			return false
		}); err != nil {
			r.Fatal(err)
		}
	}
	if os.Getuid() == 0 {
		o.local = newLocal(r)
		root.fd = o.local.root
	}
	o.objects = []*object{root}
	return o
}

// now is a clock that only grows.
func (o *oracle) now() cluster.Time { return cluster.Time(time.Now().UnixNano()) }

func (o *oracle) req(c vfs.Cred) *vfs.Request { return vfs.NewRequest(context.Background(), c) }

func (o *oracle) close() {
	for _, x := range o.objects {
		if o.local != nil && x.fd != o.local.root {
			o.local.close(x.fd)
		}
	}
	if o.local != nil {
		o.local.remove()
	}
	o.relay.stop(o.sys)
	o.relay.close()
}

func errnoOf(err error) vfs.Errno {
	if err == nil {
		return cluster.OK
	}
	if e, ok := errors.AsType[cluster.Errno](err); ok {
		return e
	}
	return cluster.EINTERNAL
}

// agree fails the test if the results differ, and reports whether they are
// success. localErr is only looked at if there is a local file system.
func (o *oracle) agree(what string, sysErr, memErr, localErr error) bool {
	sys, mem := errnoOf(sysErr), errnoOf(memErr)
	o.r.Logf("%s: %v", what, sys)
	if sys != mem {
		o.r.Fatalf("%s: %v, in memory: %v", what, sys, memErr)
	}
	if o.local != nil && !errors.Is(localErr, errSkipped) {
		if l := errnoOf(localErr); l != sys {
			o.r.Fatalf("%s: %v, local file system: %v", what, sys, localErr)
		}
	}
	return sys == cluster.OK
}

var oracleUsers = []vfs.Cred{{}, {UID: 1000, GID: 100, GIDs: []uint32{200}}, {UID: 1001, GID: 100}, {UID: 1002, GID: 200}}

func (o *oracle) cred() vfs.Cred { return rapid.SampledFrom(oracleUsers).Draw(o.r, "user") }

// name draws one of few names, so that they meet.
func (o *oracle) name() string {
	return rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(o.r, "name")
}

func (o *oracle) pick(what string, ok func(*object) bool) *object {
	var list []*object
	for _, x := range o.objects {
		if (!x.gone || x.opens > 0) && ok(x) {
			list = append(list, x)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[rapid.IntRange(0, len(list)-1).Draw(o.r, what)]
}

func isDir(x *object) bool  { return x.typ == cluster.TypeDirectory }
func isFile(x *object) bool { return x.typ == cluster.TypeRegular }
func any1(x *object) bool   { return true }

func (o *oracle) dir(what string) *object { return o.pick(what, isDir) }

// anywhere is mostly a directory.
func (o *oracle) anywhere(what string) *object {
	if rapid.IntRange(0, 15).Draw(o.r, "odd") == 0 {
		return o.pick(what, any1)
	}
	return o.dir(what)
}

// known returns the object that the memory file system knows as f.
func (o *oracle) known(f vfs.File) *object {
	for _, x := range o.objects {
		if x.mem == f {
			return x
		}
	}
	return nil
}

// refresh notes which objects have lost their last name.
func (o *oracle) refresh() {
	for _, x := range o.objects {
		a, err := o.mem.Getattr(o.req(vfs.Cred{}), x.mem)
		x.gone = err != nil || a.Nlink == 0
	}
}

func (o *oracle) step() {
	steps := []struct {
		weight int
		do     func()
	}{
		{10, o.create},
		{4, o.link},
		{6, o.unlink},
		{8, o.rename},
		{8, o.setattr},
		{8, o.write},
		{2, o.read},
		{3, o.punch},
		{2, o.allocate},
		{2, o.clone},
		{2, o.open},
		{2, o.shut},
		{3, o.lookup},
		{2, o.list},
		{3, o.xattr},
		{2, o.compare},
		{1, o.restart},
		{1, o.restore},
		{2, o.relayShadow},
	}
	total := 0
	for _, s := range steps {
		total += s.weight
	}
	at := rapid.IntRange(0, total-1).Draw(o.r, "step")
	for _, s := range steps {
		if at -= s.weight; at < 0 {
			s.do()
			return
		}
	}
}

func (o *oracle) create() {
	dir, name, cred := o.anywhere("dir"), o.name(), o.cred()
	args := vfs.CreateArgs{
		Type: rapid.SampledFrom([]vfs.FileType{
			cluster.TypeRegular, cluster.TypeRegular, cluster.TypeDirectory, cluster.TypeDirectory, cluster.TypeSymlink, cluster.TypeFIFO,
		}).Draw(o.r, "type"),
		How:  vfs.Guarded,
		Attr: vfs.SetAttr{Mask: cluster.SetMode, Mode: o.mode()},
	}
	switch args.Type {
	case cluster.TypeSymlink:
		args.Target = "to " + name
	case cluster.TypeRegular:
		args.How = rapid.SampledFrom([]vfs.CreateHow{vfs.Guarded, vfs.Unchecked}).Draw(o.r, "how")
		if rapid.Bool().Draw(o.r, "empty") {
			args.Attr.Mask |= cluster.SetSize
		}
	}
	s, sysErr := o.sys.Create(o.req(cred), dir.sys, name, args)
	m, memErr := o.mem.Create(o.req(cred), dir.mem, name, args)
	fd, localErr := o.local.create(cred, dir, name, &args)
	if !o.agree(fmt.Sprintf("create %q %+v by %d", name, args, cred.UID), sysErr, memErr, localErr) {
		return
	}
	if s.Created != m.Created {
		o.r.Fatalf("created: %v, in memory %v", s.Created, m.Created)
	}
	if x := o.known(m.File); x != nil {
		if x.sys != s.File || !o.local.same(x.fd, fd) {
			o.r.Fatalf("create of an existing name found another file")
		}
		o.local.close(fd)
		return
	}
	o.objects = append(o.objects, &object{sys: s.File, mem: m.File, fd: fd, typ: args.Type})
}

func (o *oracle) mode() uint32 {
	m := rapid.SampledFrom([]uint32{0o777, 0o755, 0o644, 0o640, 0o000, 0o070, 0o333, 0o555}).Draw(o.r, "mode")
	return m | rapid.SampledFrom([]uint32{0, 0, 0, 0o1000, 0o2000, 0o4000, 0o6000}).Draw(o.r, "set-id")
}

func (o *oracle) link() {
	x, dir, name, cred := o.pick("object", any1), o.anywhere("dir"), o.name(), o.cred()
	_, _, sysErr := o.sys.Link(o.req(cred), x.sys, dir.sys, name)
	_, _, memErr := o.mem.Link(o.req(cred), x.mem, dir.mem, name)
	localErr := o.local.link(cred, x, dir, name)
	if !o.agree(fmt.Sprintf("link to %q by %d", name, cred.UID), sysErr, memErr, localErr) {
		return
	}
	if o.local != nil && errors.Is(localErr, errSkipped) {
		if err := o.local.link(vfs.Cred{}, x, dir, name); err != nil {
			o.r.Fatal(err)
		}
	}
}

func (o *oracle) unlink() {
	dir, name, cred := o.anywhere("dir"), o.name(), o.cred()
	_, sysErr := o.sys.Remove(o.req(cred), dir.sys, name)
	_, memErr := o.mem.Remove(o.req(cred), dir.mem, name)
	if o.agree(fmt.Sprintf("remove %q by %d", name, cred.UID), sysErr, memErr, o.local.unlink(cred, dir, name)) {
		o.refresh()
	}
}

func (o *oracle) rename() {
	from, to, cred := o.anywhere("from"), o.anywhere("to"), o.cred()
	name, newName := o.name(), o.name()
	_, _, sysErr := o.sys.Rename(o.req(cred), from.sys, name, to.sys, newName)
	_, _, memErr := o.mem.Rename(o.req(cred), from.mem, name, to.mem, newName)
	if o.agree(fmt.Sprintf("rename %q to %q by %d", name, newName, cred.UID), sysErr, memErr, o.local.rename(cred, from, name, to, newName)) {
		o.refresh()
	}
}

func (o *oracle) setattr() {
	x, cred := o.pick("object", any1), o.cred()
	var set vfs.SetAttr
	set.Mask = rapid.SampledFrom([]vfs.SetMask{
		cluster.SetMode, cluster.SetMode, cluster.SetUID, cluster.SetGID, cluster.SetSize, cluster.SetMtime, cluster.SetMtimeNow,
	}).Draw(o.r, "mask")
	opened := false
	switch set.Mask {
	case cluster.SetMode:
		if x.typ == cluster.TypeSymlink {
			return // local ones have no mode of their own
		}
		set.Mode = o.mode()
	case cluster.SetUID:
		set.UID = rapid.SampledFrom([]uint32{0, 1000, 1001}).Draw(o.r, "uid")
	case cluster.SetGID:
		set.GID = rapid.SampledFrom([]uint32{0, 100, 200}).Draw(o.r, "gid")
	case cluster.SetSize:
		set.Size = o.offset()
		a, err := o.mem.Getattr(o.req(vfs.Cred{}), x.mem)
		if err != nil {
			o.r.Fatal(err)
		}
		opened = isFile(x) && a.Size != set.Size && rapid.Bool().Draw(o.r, "opened")
	case cluster.SetMtime:
		set.Mtime = cluster.Time(rapid.IntRange(1, 999).Draw(o.r, "mtime")) * 1e9
	}
	_, sysErr := o.sys.Setattr(o.req(cred), x.sys, set, opened)
	_, memErr := o.mem.Setattr(o.req(cred), x.mem, set, opened)
	o.agree(fmt.Sprintf("setattr %+v of %v by %d (opened %v)", set, x, cred.UID, opened), sysErr, memErr, o.local.setattr(cred, x, &set, opened))
}

func (o *oracle) offset() uint64 {
	return uint64(rapid.SampledFrom([]int{0, 1, 100, 4095, 4096, 8192, 12_000, 20_000, 40_000}).Draw(o.r, "offset"))
}

func (o *oracle) write() {
	x, cred := o.pick("file", isFile), o.cred()
	if x == nil {
		return
	}
	off, n := o.offset(), int(o.offset())
	p := bytes.Repeat([]byte{rapid.Byte().Draw(o.r, "byte") | 1}, n)
	how := rapid.SampledFrom([]vfs.Stability{vfs.Unstable, vfs.FileSync}).Draw(o.r, "stable")
	_, _, sysErr := o.sys.Write(o.req(cred), x.sys, off, bytes.Clone(p), how)
	_, _, memErr := o.mem.Write(o.req(cred), x.mem, off, p, how)
	o.agree("write", sysErr, memErr, o.local.write(cred, x, off, p))
}

func (o *oracle) read() {
	x := o.pick("file", isFile)
	if x == nil {
		return
	}
	off, n := o.offset(), 1+int(o.offset())
	s, m := o.content(o.sys, x.sys, off, n), o.content(o.mem, x.mem, off, n)
	if !bytes.Equal(s, m) {
		o.r.Fatalf("read %d at %d differs from memory", n, off)
	}
	if l, ok := o.local.read(x, off, n); ok && !bytes.Equal(s, l) {
		o.r.Fatalf("read %d at %d differs from the local file system", n, off)
	}
}

// content reads n bytes, or to the end.
func (o *oracle) content(fs vfs.FS, f vfs.File, off uint64, n int) []byte {
	got := []byte{}
	for len(got) < n {
		d, err := fs.Read(o.req(vfs.Cred{}), f, off+uint64(len(got)), n-len(got))
		if err != nil {
			o.r.Fatal(err)
		}
		for _, b := range d.Bufs {
			got = append(got, b...)
		}
		if d.Release != nil {
			d.Release()
		}
		if d.EOF || d.N == 0 {
			break
		}
	}
	return got
}

func (o *oracle) punch() {
	x, cred := o.pick("file", isFile), o.cred()
	if x == nil {
		return
	}
	off, n := o.offset(), 1+o.offset()
	sysErr := o.sys.Deallocate(o.req(cred), x.sys, off, n)
	memErr := o.mem.Deallocate(o.req(cred), x.mem, off, n)
	o.agree("deallocate", sysErr, memErr, o.local.punch(cred, x, off, n))
}

func (o *oracle) allocate() {
	x, cred := o.pick("file", isFile), o.cred()
	if x == nil {
		return
	}
	off, n := o.offset(), 1+o.offset()
	sysErr := o.sys.Allocate(o.req(cred), x.sys, off, n)
	memErr := o.mem.Allocate(o.req(cred), x.mem, off, n)
	o.agree("allocate", sysErr, memErr, o.local.allocate(cred, x, off, n))
}

func (o *oracle) clone() {
	src, dst := o.pick("source", isFile), o.pick("target", isFile)
	if src == nil {
		return
	}
	from, to, n := o.offset(), o.offset(), 1+o.offset()
	sysErr := o.sys.Clone(o.req(vfs.Cred{}), src.sys, from, dst.sys, to, n)
	memErr := o.mem.Clone(o.req(vfs.Cred{}), src.mem, from, dst.mem, to, n)
	if o.agree(fmt.Sprintf("clone %d at %d to %d", n, from, to), sysErr, memErr, errSkipped) {
		p := o.content(o.mem, dst.mem, to, int(n))
		if err := o.local.write(vfs.Cred{}, dst, to, p); err != nil {
			o.r.Fatal(err)
		}
	}
}

func (o *oracle) open() {
	x := o.pick("object", func(x *object) bool { return !x.gone })
	sysErr := o.sys.Open(o.req(vfs.Cred{}), x.sys)
	memErr := o.mem.Open(o.req(vfs.Cred{}), x.mem)
	if o.agree("open", sysErr, memErr, errSkipped) {
		x.opens++
	}
}

func (o *oracle) shut() {
	if x := o.pick("file", func(x *object) bool { return x.opens > 0 }); x != nil {
		o.closeOne(x)
	}
}

func (o *oracle) closeOne(x *object) {
	o.sys.Close(x.sys)
	o.mem.Close(x.mem)
	x.opens--
	o.refresh()
}

func (o *oracle) lookup() {
	dir, name, cred := o.anywhere("dir"), o.name(), o.cred()
	s, _, sysErr := o.sys.Lookup(o.req(cred), dir.sys, name)
	m, _, memErr := o.mem.Lookup(o.req(cred), dir.mem, name)
	fd, localErr := o.local.lookup(cred, dir, name)
	if !o.agree(fmt.Sprintf("lookup %q by %d", name, cred.UID), sysErr, memErr, localErr) {
		return
	}
	if x := o.known(m); x == nil || x.sys != s || !o.local.same(x.fd, fd) {
		o.r.Fatalf("lookup of %q found different files", name)
	}
	o.local.close(fd)
	const all = vfs.AccessRead | vfs.AccessLookup | vfs.AccessModify | vfs.AccessExtend | vfs.AccessDelete | vfs.AccessExecute
	sa, sysErr := o.sys.Access(o.req(cred), s, all)
	ma, memErr := o.mem.Access(o.req(cred), m, all)
	if o.agree("access", sysErr, memErr, errSkipped) && sa != ma {
		o.r.Fatalf("access of %d to %q: %x, in memory %x", cred.UID, name, sa, ma)
	}
}

func (o *oracle) names(fs vfs.FS, cred vfs.Cred, f vfs.File) (names map[string]vfs.File, err error) {
	names = map[string]vfs.File{}
	_, err = fs.ReadDir(o.req(cred), f, 0, false, func(d *vfs.Dirent) bool {
		names[d.Name] = d.File
		return true
	})
	return names, err
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (o *oracle) list() {
	dir, cred := o.anywhere("dir"), o.cred()
	s, sysErr := o.names(o.sys, cred, dir.sys)
	m, memErr := o.names(o.mem, cred, dir.mem)
	l, localErr := o.local.list(cred, dir)
	if !o.agree(fmt.Sprintf("readdir by %d", cred.UID), sysErr, memErr, localErr) {
		return
	}
	if !slices.Equal(sorted(s), sorted(m)) || o.local != nil && !slices.Equal(sorted(s), l) {
		o.r.Fatalf("names %v, in memory %v, local %v", sorted(s), sorted(m), l)
	}
}

func (o *oracle) xattr() {
	x, cred, name := o.pick("object", any1), o.cred(), o.name()
	if rapid.IntRange(0, 2).Draw(o.r, "remove") == 0 {
		_, sysErr := o.sys.Removexattr(o.req(cred), x.sys, name)
		_, memErr := o.mem.Removexattr(o.req(cred), x.mem, name)
		o.agree(fmt.Sprintf("removexattr of %v by %d", x, cred.UID), sysErr, memErr, o.local.removexattr(cred, x, name))
		return
	}
	value := bytes.Repeat([]byte{'x'}, rapid.SampledFrom([]int{0, 1, 100, 1000}).Draw(o.r, "value"))
	how := rapid.SampledFrom([]vfs.CreateHow{vfs.Unchecked, vfs.Guarded, vfs.Exclusive}).Draw(o.r, "how")
	_, sysErr := o.sys.Setxattr(o.req(cred), x.sys, name, value, how)
	_, memErr := o.mem.Setxattr(o.req(cred), x.mem, name, value, how)
	o.agree(fmt.Sprintf("setxattr %d of %v by %d", how, x, cred.UID), sysErr, memErr, o.local.setxattr(cred, x, name, value, how))
}

// restart stops the front-end, and has its state machine start from what a
// crash leaves. Nobody has files open after that.
func (o *oracle) restart() {
	for _, x := range o.objects {
		for x.opens > 0 {
			o.closeOne(x)
		}
	}
	o.relay.stop(o.sys)
	o.relay.crash(o.r)
	o.sys = o.relay.serve(o.now)
}

func (o *oracle) restore()     { o.relay.restore(o.r) }
func (o *oracle) relayShadow() { o.relay.shadowStep(o.r) }

// compare compares everything that is there.
func (o *oracle) compare() {
	for _, x := range o.objects {
		if x.gone && x.opens == 0 {
			continue
		}
		o.compareOne(x)
	}
	o.relay.compare(o.r)
}

// agedTime is before all times that a clock gives here: what was set, not touched.
const agedTime = cluster.Time(1_000_000_000_000_000_000)

func (o *oracle) compareOne(x *object) {
	root := o.req(vfs.Cred{})
	s, err := o.sys.Getattr(root, x.sys)
	if err != nil {
		o.r.Fatalf("getattr of %v: %v", x, err)
	}
	m, err := o.mem.Getattr(root, x.mem)
	if err != nil {
		o.r.Fatalf("getattr of %v in memory: %v", x, err)
	}
	show := func(a *vfs.Attr) string {
		size, mtime := a.Size, a.Mtime
		if a.Type == cluster.TypeDirectory {
			size = 0
		}
		if mtime > agedTime {
			mtime = agedTime
		}
		return fmt.Sprintf("type %d mode %o nlink %d owner %d:%d size %d mtime %d", a.Type, a.Mode, a.Nlink, a.UID, a.GID, size, mtime)
	}
	if show(&s) != show(&m) {
		o.r.Fatalf("attributes %s,\nin memory %s", show(&s), show(&m))
	}
	l, ok := o.local.attr(o.r, x)
	if program := cluster.ModeSetGID | 0o010; x.typ == cluster.TypeRegular && s.Mode&program == cluster.ModeSetGID {
		// Since 6.2 Linux also takes this bit, which means nothing without the
		// other, when who is not in the group changes the file.
		l.Mode |= cluster.ModeSetGID
	}
	if ok && show(&s) != show(&l) {
		o.r.Fatalf("attributes %s,\nlocally %s", show(&s), show(&l))
	}
	// Committing what was held makes it grow once more.
	moved, want := s.Change > x.sysChange, m.Change > x.memChange
	if x.memChange != 0 && moved != want && !(moved && o.class.Consistency == cluster.Relaxed) || s.Change < x.sysChange {
		o.r.Fatalf("change attribute of %v from %d to %d, in memory from %d to %d", x, x.sysChange, s.Change, x.memChange, m.Change)
	}
	x.sysChange, x.memChange = s.Change, m.Change
	switch x.typ {
	case cluster.TypeRegular:
		p := o.content(o.sys, x.sys, 0, int(s.Size)+10)
		if q := o.content(o.mem, x.mem, 0, int(m.Size)+10); !bytes.Equal(p, q) {
			o.r.Fatalf("content of %v differs from memory", x)
		}
		if q, ok := o.local.read(x, 0, int(m.Size)+10); ok && !bytes.Equal(p, q) {
			o.r.Fatalf("content of %v differs from the local file system", x)
		}
	case cluster.TypeSymlink:
		p, err := o.sys.Readlink(root, x.sys)
		q, err2 := o.mem.Readlink(root, x.mem)
		if l := o.local.readlink(x, q); p != q || l != q || err != nil || err2 != nil {
			o.r.Fatalf("link to %q, %v, in memory %q, %v, locally %q", p, err, q, err2, l)
		}
	case cluster.TypeDirectory:
		o.compareDir(x)
	}
	if x.typ == cluster.TypeRegular || x.typ == cluster.TypeDirectory {
		o.compareXattrs(x)
	}
}

func (o *oracle) compareDir(x *object) {
	s, err := o.names(o.sys, vfs.Cred{}, x.sys)
	m, err2 := o.names(o.mem, vfs.Cred{}, x.mem)
	l, err3 := o.local.list(vfs.Cred{}, x)
	if err != nil || err2 != nil || err3 != nil && !errors.Is(err3, errSkipped) {
		o.r.Fatal(err, err2, err3)
	}
	if !slices.Equal(sorted(s), sorted(m)) || o.local != nil && !slices.Equal(sorted(s), l) {
		o.r.Fatalf("names %v, in memory %v, local %v", sorted(s), sorted(m), l)
	}
	for name, f := range m {
		if k := o.known(f); k == nil || k.sys != s[name] || !o.local.has(o.r, x, name, k) {
			o.r.Fatalf("%q is not the same file everywhere", name)
		}
	}
}

func (o *oracle) compareXattrs(x *object) {
	root := o.req(vfs.Cred{})
	s, err := o.sys.Listxattr(root, x.sys)
	m, err2 := o.mem.Listxattr(root, x.mem)
	if err != nil || err2 != nil {
		o.r.Fatal(err, err2)
	}
	slices.Sort(s)
	slices.Sort(m)
	l := o.local.xattrs(o.r, x, m)
	if !slices.Equal(s, m) || !slices.Equal(s, l) {
		o.r.Fatalf("extended attributes %q, in memory %q, locally %q", s, m, l)
	}
	for _, name := range s {
		v, err := o.sys.Getxattr(root, x.sys, name)
		w, err2 := o.mem.Getxattr(root, x.mem, name)
		if !bytes.Equal(v, w) || err != nil || err2 != nil || !o.local.xattrIs(x, name, v) {
			o.r.Fatalf("extended attribute %s: %q, %v, in memory %q, %v", name, v, err, w, err2)
		}
	}
}
