package state

import (
	"strconv"
	"testing"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// A client has so many lock-owners and opens together, and is told to come back when it
// has fewer; what it has can still be locked by.
func TestLockOwnersAreBounded(t *testing.T) {
	m := newManager() // MaxHoldings is 5
	c, _ := confirm(t, m, 0, "a")
	f := vfs.File{Ino: 5}
	sid, st := open(m, c, "o", f, 3, 0)
	if st != proto.OK {
		t.Fatal(st)
	}
	lock := func(i int) proto.Status {
		n := strconv.Itoa(i)
		l, st := m.LockOpen(c, &LockArgs{Open: sid, File: f, Owner: []byte(n), Digest: vfs.LockOwner{byte(i)}, Write: true, Salt: []byte(n)})
		if st == proto.OK {
			_, st = m.Locked(l, uint64(i), uint64(i))
		}
		return st
	}
	for i := range 6 {
		want := proto.OK
		if i >= 4 {
			want = proto.ErrDelay
		}
		if st := lock(i); st != want {
			t.Fatalf("lock-owner %d: %v, want %v", i, st, want)
		}
	}
	if st := lock(2); st != proto.OK {
		t.Fatalf("a lock-owner that there is: %v", st)
	}
}

// NFSv4.0 has an error for owners without end: RESOURCE (RFC 7530 §13.1.10), which does
// not use up a number. A client that there is no room for waits.
func TestLimits40(t *testing.T) {
	m := newManager() // MaxClients is 3, MaxHoldings 5
	c := client40(t, m, "a")
	for i := range 12 {
		name, want := []byte(strconv.Itoa(i)), proto.OK
		if i >= 10 {
			want = proto.ErrResource
		}
		make := m.OpenOwner
		if i%2 == 1 {
			make = m.LockOwner
		}
		o, st := make(c, name, 0)
		if st != want {
			t.Fatalf("owner %d: %v, want %v", i, st, want)
		}
		if st == proto.OK {
			o.Leave()
		}
	}
	if o, st := m.OpenOwner(c, []byte("4"), 0); st != proto.OK {
		t.Fatalf("an owner that there is: %v", st)
	} else {
		o.Leave()
	}
	if Advances(proto.ErrResource) {
		t.Error("RESOURCE uses up a number")
	}

	client40(t, m, "b")
	set := func(name string) proto.Status {
		_, _, _, st := m.SetClientID(0, &SetClientIDArgs{ID: []byte(name), Verifier: 1, Confirm: 7})
		return st
	}
	for _, s := range []struct {
		name string
		want proto.Status
	}{{"c", proto.OK}, {"d", proto.ErrDelay}, {"b", proto.OK}} {
		if st := set(s.name); st != s.want {
			t.Errorf("SETCLIENTID of %q: %v, want %v", s.name, st, s.want)
		}
	}
}
