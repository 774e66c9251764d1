package state

import (
	"testing"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// client40 makes a confirmed client of NFSv4.0.
func client40(t *testing.T, m *Manager, name string) *Client {
	t.Helper()
	id, _, _, st := m.SetClientID(0, &SetClientIDArgs{ID: []byte(name), Verifier: 1, Confirm: 7, Callback: Callback{5, "tcp", "127.0.0.1.3.4", 9}})
	if st != proto.OK {
		t.Fatal(st)
	}
	if _, _, st := m.ConfirmClientID(0, id, 7, Principal{}); st != proto.OK {
		t.Fatal(st)
	}
	c, st := m.Client40(id, 0)
	if st != proto.OK {
		t.Fatal(st)
	}
	return c
}

// TestOwnerNumbers checks which numbers an owner's request may have (RFC 7530
// §9.1.3, §9.1.7, §9.1.9).
func TestOwnerNumbers(t *testing.T) {
	m := newManager()
	c := client40(t, m, "a")
	for _, x := range []struct {
		name      string
		last      uint32
		op        proto.Op // of the last request
		seq       uint32
		now       proto.Op
		confirmed bool
		want      Verdict
	}{
		{"the next", 5, proto.OpOpen, 6, proto.OpClose, true, Execute},
		{"the same again", 5, proto.OpClose, 5, proto.OpClose, true, Again},
		{"the same for another operation", 5, proto.OpOpen, 5, proto.OpClose, true, BadSeqid},
		{"one left out", 5, proto.OpOpen, 7, proto.OpClose, true, BadSeqid},
		{"an older one", 5, proto.OpOpen, 4, proto.OpOpen, true, BadSeqid},
		{"0 is left out after the last one", ^uint32(0), proto.OpOpen, 1, proto.OpClose, true, Execute},
		{"Linux does not leave it out", ^uint32(0), proto.OpOpen, 0, proto.OpClose, true, Execute},
		{"an OPEN instead of one that was not confirmed", 5, proto.OpOpen, 40, proto.OpOpen, false, Execute},
		{"something else instead of it", 5, proto.OpOpen, 40, proto.OpOpenConfirm, false, BadSeqid},
	} {
		o := newOwner(c, "o")
		if o.Check(x.now, x.seq) != Execute {
			t.Errorf("%s: the first number is not as good as any", x.name)
		}
		o.Record(x.op, x.last, Reply{Status: proto.OK})
		o.confirmed = x.confirmed
		if got := o.Check(x.now, x.seq); got != x.want {
			t.Errorf("%s: %d after %d is %d, want %d", x.name, x.seq, x.last, got, x.want)
		}
	}
}

// TestOwnerKeepsLastReply checks that a reply is kept, and that errors that use no
// number up leave the one before (RFC 7530 §9.1.7).
func TestOwnerKeepsLastReply(t *testing.T) {
	m := newManager()
	o := newOwner(client40(t, m, "a"), "o")
	o.Record(proto.OpLock, 3, Reply{Status: proto.ErrDenied, Body: []byte("who")})
	for _, st := range []proto.Status{
		proto.ErrStaleClientid, proto.ErrStaleStateid, proto.ErrBadStateid, proto.ErrBadSeqid,
		proto.ErrBadxdr, proto.ErrResource, proto.ErrNofilehandle, proto.ErrMoved,
	} {
		o.Record(proto.OpLock, 4, Reply{Status: st})
		if o.Check(proto.OpLock, 3) != Again || o.Check(proto.OpLock, 4) != Execute {
			t.Fatalf("%v has used a number up", st)
		}
	}
	if r := o.Last(); r.Status != proto.ErrDenied || string(r.Body) != "who" {
		t.Fatalf("%+v", r)
	}
}

// TestRecord40 takes a client over: it is the same, and its owners go on with any number.
func TestRecord40(t *testing.T) {
	m := newManager()
	m.cfg.Extend = ExtendV40
	c := client40(t, m, "a")
	r, changed := m.Record(c.ID)
	if !changed {
		t.Fatal("a confirmed client has nothing to record")
	}
	cfg := m.cfg
	cfg.Epoch++
	n := New(cfg)
	if err := n.Load(0, []vfs.ClientRecord{{ID: r.ID, Record: r.Bytes}}); err != nil {
		t.Fatal(err)
	}
	d, st := n.Client40(c.ID, 0)
	if st != proto.OK || !d.Loaded() || n.Callback40(d) != m.Callback40(c) {
		t.Fatal(st, d, n.Callback40(d))
	}
	if _, _, st := n.ConfirmClientID(0, c.ID, 7, Principal{}); st != proto.OK {
		t.Fatalf("SETCLIENTID_CONFIRM again: %v", st)
	}
	o, st := n.OpenOwner(d, []byte("o"), 0)
	if st != proto.OK || !o.Confirmed() || o.Check(proto.OpClose, 77) != Execute {
		t.Fatal(st, o)
	}
	if err := n.Load(0, []vfs.ClientRecord{{ID: r.ID + 1, Record: append(r.Bytes[:len(r.Bytes)-4:len(r.Bytes)-4], 1, 2, 3, 4, 5, 6, 7, 8)}}); err == nil {
		t.Fatal("a damaged record was taken")
	}
}

// TestNamesOfMinorVersions has one machine be a client of NFSv4.0 and of a later minor
// version under one name, verifier and principal: they are two, and stay two.
func TestNamesOfMinorVersions(t *testing.T) {
	m := newManager()
	m.cfg.Extend = ExtendV40
	old := client40(t, m, "a")
	x, gone, st := m.ExchangeID(0, ExchangeArgs{Owner: []byte("a"), Verifier: 1, Minor: 2})
	if st != proto.OK || x.ClientID == old.ID || x.Confirmed || len(gone) != 0 {
		t.Fatal(st, x, gone)
	}
	if r, gone := m.CreateSession(0, CreateSessionArgs{ClientID: x.ClientID, Sequence: x.Sequence, Fore: asks}); r.Status != proto.OK || len(gone) != 0 {
		t.Fatal(r.Status, gone)
	}
	// Each finds itself again, also after a take-over, and neither ends the other.
	var records []vfs.ClientRecord
	for _, id := range []uint64{old.ID, x.ClientID} {
		r, _ := m.Record(id)
		records = append(records, vfs.ClientRecord{ID: r.ID, Record: r.Bytes})
	}
	cfg := m.cfg
	cfg.Epoch++
	next := New(cfg)
	if err := next.Load(0, records); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Manager{m, next} {
		id, _, gone, st := m.SetClientID(0, &SetClientIDArgs{ID: []byte("a"), Verifier: 1, Confirm: 8})
		if st != proto.OK || id != old.ID || len(gone) != 0 {
			t.Fatal(st, id, gone)
		}
		id, _, gone, st = m.SetClientID(0, &SetClientIDArgs{ID: []byte("a"), Verifier: 2, Confirm: 9})
		if st != proto.OK || len(gone) != 0 {
			t.Fatal(st, gone)
		}
		if _, gone, st := m.ConfirmClientID(0, id, 9, Principal{}); st != proto.OK || len(gone) != 1 || gone[0].Sessions != nil {
			t.Fatal(st, gone)
		}
		if y, _, st := m.ExchangeID(0, ExchangeArgs{Owner: []byte("a"), Verifier: 1, Minor: 2}); st != proto.OK || y.ClientID != x.ClientID || !y.Confirmed {
			t.Fatal(st, y)
		}
		if n := m.Client(id).LockName(); n == m.Client(x.ClientID).LockName() {
			t.Fatalf("the lock-owners of both are those of %q", n)
		}
	}
}

// TestReclaim40 lets a client of NFSv4.0, which does not say when it is done, reclaim
// within a lease of a take-over (RFC 7530 §9.6.2).
func TestReclaim40(t *testing.T) {
	m := newManager()
	m.cfg.Extend = ExtendV40
	c := client40(t, m, "a")
	if m.MayReclaim(c, 0) {
		t.Error("without a take-over")
	}
	r, _ := m.Record(c.ID)
	n := New(m.cfg)
	if err := n.Load(5*second, []vfs.ClientRecord{{ID: r.ID, Record: r.Bytes}}); err != nil {
		t.Fatal(err)
	}
	c = n.Client(c.ID)
	if !n.MayReclaim(c, 15*second) || n.MayReclaim(c, 15*second+1) {
		t.Error("not within a lease, or after it")
	}
}

// TestIDsThatAreGone tells ids that were given from others.
func TestIDsThatAreGone(t *testing.T) {
	m := newManager()
	c := client40(t, m, "a")
	sid, o := openAs(t, m, c, "o", 5)
	o.Leave()
	if gone := m.ExpireClient(c.ID, m.cfg.Lease+1); len(gone) != 1 {
		t.Fatal(gone)
	}
	if _, st := m.Client40(c.ID, 0); st != proto.ErrExpired {
		t.Errorf("an expired client id: %v", st)
	}
	if _, st := m.Client40(c.ID+1, 0); st != proto.ErrStaleClientid {
		t.Errorf("a client id that was not given yet: %v", st)
	}
	if _, st := m.Client40(0, 0); st != proto.ErrStaleClientid {
		t.Errorf("no client id: %v", st)
	}
	if _, st := m.Holder40(sid, 0); st != proto.ErrExpired {
		t.Errorf("a stateid of an expired client: %v", st)
	}
	sid.Other = vfs.StateID{0, 0, 0, 1}
	if _, st := m.Holder40(sid, 0); st != proto.ErrStaleStateid {
		t.Errorf("a stateid that this cluster did not make: %v", st)
	}
	if _, st := m.Holder40(Anonymous, 0); st != proto.ErrBadStateid {
		t.Errorf("a special stateid: %v", st)
	}
}

// openAs opens a file for an open-owner.
func openAs(t *testing.T, m *Manager, c *Client, owner string, ino vfs.Ino) (Stateid, *Owner) {
	t.Helper()
	o, st := m.OpenOwner(c, []byte(owner), 0)
	if st != proto.OK {
		t.Fatal(st)
	}
	a := &OpenArgs{Owner: []byte(owner), File: vfs.File{Volume: 1, Ino: ino}, Access: 1}
	a.Other = m.NewOther(c, KindOpen, 1, a.Owner, a.File, []byte(owner))
	r, st := m.Open(c, a, false)
	if st != proto.OK {
		t.Fatal(st)
	}
	m.Opened(o, r.Stateid)
	return r.Stateid, o
}

// TestSweepOwners drops owners without opens after two leases, and cancels what was
// not confirmed after one; what is in use stays.
func TestSweepOwners(t *testing.T) {
	m := newManager()
	c := client40(t, m, "a")
	sid, pending := openAs(t, m, c, "pending", 5)
	pending.Leave()
	held, used := openAs(t, m, c, "used", 6)
	if _, st := m.ConfirmOpen(used, held, vfs.File{Volume: 1, Ino: 6}); st != proto.OK {
		t.Fatal(st)
	}
	used.Leave()
	idle, _ := m.OpenOwner(c, []byte("idle"), 0)
	idle.Leave()
	if _, st := m.OpenOwner(c, []byte("busy"), 0); st != proto.OK { // and does not leave
		t.Fatal(st)
	}
	now := m.cfg.Lease + 1
	if stray := m.SweepOwners(now); len(stray) != 1 || stray[0].Other != sid.Other {
		t.Fatalf("%+v", stray)
	} else if stray[0].Owner.Leave(); len(c.v40().opens) != 4 {
		t.Fatalf("%d owners are left after a lease", len(c.v40().opens))
	}
	m.SweepOwners(2*m.cfg.Lease + 1)
	for name, want := range map[string]bool{"pending": true, "used": true, "idle": false, "busy": true} {
		if got := c.v40().opens[name] != nil; got != want {
			t.Errorf("%s is there: %v", name, got)
		}
	}
}

// TestModes checks what an open can be downgraded to.
func TestModes(t *testing.T) {
	s := mode(1, 0) | mode(2, 0) | mode(3, 2)
	for _, x := range []struct {
		access, deny uint32
		want         bool
	}{{1, 0, true}, {2, 0, true}, {3, 0, true}, {3, 2, true}, {1, 2, false}, {2, 2, false}, {3, 1, false}} {
		if got := s.make(x.access, x.deny); got != x.want {
			t.Errorf("to access %d, deny %d: %v", x.access, x.deny, got)
		}
	}
	if s = s.within(1, 0); s.make(3, 0) || !s.make(1, 0) {
		t.Error("what was given up can be had again")
	}
}

// TestOwnerOfBefore takes a client over that has files open: a stateid from before has
// the owner that has opened anew, whichever of the two is used first, and for each file.
// Otherwise, the numbers of one would go on without the other.
func TestOwnerOfBefore(t *testing.T) {
	for _, nameFirst := range []bool{true, false} {
		m := newManager()
		m.cfg.Extend = ExtendV40
		c := client40(t, m, "a")
		var sids []Stateid
		for ino := range vfs.Ino(3) {
			sid, o := openAs(t, m, c, "o", ino+10)
			o.Leave()
			sids = append(sids, sid)
		}
		r, _ := m.Record(c.ID)
		cfg := m.cfg
		cfg.Epoch++
		n := New(cfg)
		if err := n.Load(0, []vfs.ClientRecord{{ID: r.ID, Record: r.Bytes}}); err != nil {
			t.Fatal(err)
		}
		d, st := n.Client40(c.ID, 0)
		if st != proto.OK {
			t.Fatal(st)
		}
		owners := make(map[*Owner]bool)
		name := func() {
			o, st := n.OpenOwner(d, []byte("o"), 0)
			if st != proto.OK {
				t.Fatal(st)
			}
			owners[o] = true
			o.Leave()
		}
		if nameFirst {
			name()
		}
		for i, sid := range sids {
			d.mu.Lock()
			n.revive(d, sid.Other, vfs.File{Volume: 1, Ino: vfs.Ino(i) + 10})
			d.mu.Unlock()
			o, st := n.OwnerOf(d, sid, 0)
			if st != proto.OK {
				t.Fatal(st)
			}
			owners[o] = true
			o.Leave()
			if i == 0 {
				name()
			}
		}
		if len(owners) != 1 {
			t.Errorf("there are %d owners, name first: %v", len(owners), nameFirst)
		}
	}
}
