package vfstest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

var xattrTests = map[string]func(*T){
	"xattrs": testXattrs,
}

func testXattrs(t *T) {
	f := t.make(Alice, t.Dir, "f", cluster.TypeRegular, 0o640).File
	for i, s := range []struct {
		cred  vfs.Cred
		name  string
		value string
		how   vfs.CreateHow
		want  vfs.Errno
	}{
		{Alice, "a", "1", vfs.Exclusive, cluster.ENODATA},
		{Alice, "a", "1", vfs.Guarded, cluster.OK},
		{Alice, "a", "2", vfs.Guarded, cluster.EEXIST},
		{Alice, "a", "2", vfs.Exclusive, cluster.OK},
		{Root, "empty", "", vfs.Unchecked, cluster.OK},
		{Alice, "big", strings.Repeat("x", vfs.MaxXattr), vfs.Unchecked, cluster.OK},
		{Alice, "bigger", strings.Repeat("x", vfs.MaxXattr+1), vfs.Unchecked, cluster.EFBIG},
		{Bob, "b", "1", vfs.Unchecked, cluster.EACCES},
		{Alice, strings.Repeat("n", 256), "1", vfs.Unchecked, cluster.ENAMETOOLONG},
		{Alice, "", "1", vfs.Unchecked, cluster.EINVAL},
	} {
		before := t.attr(f)
		ci, err := t.FS.Setxattr(req(s.cred), f, s.name, []byte(s.value), s.how)
		t.result(fmt.Sprintf("setxattr %d", i), err, s.want)
		if err != nil {
			continue
		}
		if ci.Before != before.Change || ci.After != t.attr(f).Change || ci.After <= ci.Before {
			t.Errorf("%d: %+v", i, ci)
		}
		got, err := t.FS.Getxattr(req(Bob), f, s.name)
		if s.cred.UID != 0 && (err != nil || string(got) != s.value) {
			t.Errorf("%d: %d bytes, %v", i, len(got), err)
		}
	}
	names, err := t.FS.Listxattr(req(Alice), f)
	slices.Sort(names)
	if err != nil || !slices.Equal(names, []string{"a", "big", "empty"}) {
		t.Errorf("%v, %v", names, err)
	}
	_, err = t.FS.Listxattr(req(Carol), f)
	t.fails(err, cluster.EACCES)
	_, err = t.FS.Removexattr(req(Bob), f, "a")
	t.fails(err, cluster.EACCES)
	_, err = t.FS.Removexattr(req(Alice), f, "a")
	t.ok(err)
	_, err = t.FS.Removexattr(req(Alice), f, "a")
	t.fails(err, cluster.ENODATA)
	_, err = t.FS.Getxattr(req(Alice), f, "a")
	t.fails(err, cluster.ENODATA)
	// With data that is not committed.
	t.write(f, 0, []byte("x"), vfs.Unstable)
	before := t.attr(f)
	ci, err := t.FS.Setxattr(req(Root), f, "x", nil, vfs.Unchecked)
	t.ok(err)
	if ci.Before < before.Change || ci.After != t.attr(f).Change {
		t.Errorf("%+v after %d", ci, before.Change)
	}
	if _, err := t.FS.Setxattr(req(Root), t.Dir, "on-dir", []byte("v"), vfs.Unchecked); err != nil {
		t.Error(err)
	}
	p := t.make(Root, t.Dir, "p", cluster.TypeFIFO, 0o666).File
	_, err = t.FS.Setxattr(req(Root), p, "x", nil, vfs.Unchecked)
	t.fails(err, cluster.EPERM)
}
