package state

import (
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

func delegating() *Manager {
	m := newManager()
	m.cfg.MaxDelegations = 3
	return m
}

// delegate grants c a delegation of f, or says why not.
func delegate(m *Manager, c *Client, f vfs.File, now cluster.Time) (*Delegation, uint32) {
	other := m.NewOther(c, KindDelegation, proto.ShareAccessRead, nil, f, []byte{byte(salt.Add(1))})
	d, why := m.Offer(c, f, &vfs.Attr{Change: 1}, 7, other, now)
	if d == nil || m.Grant(d) {
		return d, why
	}
	return nil, proto.WNDContention
}

var theFile, another = vfs.File{Volume: 1, Ino: 5}, vfs.File{Volume: 1, Ino: 6}

// A file is delegated unless something speaks against it.
func TestOffer(t *testing.T) {
	const now = 100 * second
	for name, c := range map[string]struct {
		prepare func(m *Manager, a, b *Client)
		why     uint32 // 0: it is
	}{
		"quiet":            {func(*Manager, *Client, *Client) {}, 0},
		"read by another":  {func(m *Manager, _, b *Client) { mustOpen(t, m, b, 1, 0) }, 0},
		"delegated":        {func(m *Manager, _, b *Client) { delegate(m, b, theFile, now) }, 0},
		"written":          {func(m *Manager, _, b *Client) { mustOpen(t, m, b, 2, 0) }, proto.WNDContention},
		"written by it":    {func(m *Manager, a, _ *Client) { mustOpen(t, m, a, 2, 0) }, proto.WNDContention},
		"reading denied":   {func(m *Manager, _, b *Client) { mustOpen(t, m, b, 1, 1) }, proto.WNDContention},
		"delegated to it":  {func(m *Manager, a, _ *Client) { delegate(m, a, theFile, now) }, proto.WNDContention},
		"recalled lately":  {func(m *Manager, _, b *Client) { delegate(m, b, theFile, 80*second); m.Recall(theFile, nil, 80*second) }, proto.WNDContention},
		"recalled once":    {func(m *Manager, _, b *Client) { delegate(m, b, theFile, 60*second); m.Recall(theFile, nil, 60*second) }, 0},
		"many":             {func(m *Manager, a, _ *Client) { many(m, a, 3) }, proto.WNDResource},
		"not so many":      {func(m *Manager, a, _ *Client) { many(m, a, 2) }, 0},
		"another's are":    {func(m *Manager, _, b *Client) { many(m, b, 3) }, 0},
		"switched off":     {func(m *Manager, _, _ *Client) { m.cfg.MaxDelegations = 0 }, proto.WNDResource},
		"client gone":      {func(m *Manager, a, _ *Client) { m.mu.Lock(); m.remove(a); m.mu.Unlock() }, proto.WNDResource},
		"earlier are lost": {func(_ *Manager, a, _ *Client) { a.lost.Store(true) }, proto.WNDResource},
	} {
		m := delegating()
		a, _ := confirm(t, m, 0, "a")
		b, _ := confirm(t, m, 0, "b")
		c.prepare(m, a, b)
		d, why := delegate(m, a, theFile, now)
		if why != c.why || (d != nil) != (why == 0) {
			t.Errorf("%s: %v, why %d, want %d", name, d, why, c.why)
		}
	}
}

func mustOpen(t *testing.T, m *Manager, c *Client, access, deny uint32) {
	t.Helper()
	if _, st := open(m, c, "o", theFile, access, deny); st != proto.OK {
		t.Fatal(st)
	}
}

func many(m *Manager, c *Client, n int) {
	for i := range n {
		delegate(m, c, vfs.File{Volume: 2, Ino: vfs.Ino(i)}, 0)
	}
}

// What a delegation stateid is good for, in each of its phases.
func TestDelegationStateid(t *testing.T) {
	const now = 100 * second
	type want struct {
		test, read, write, claim, claimWrite, ret, free proto.Status
	}
	const (
		ok, bad, mode, held, rev = proto.OK, proto.ErrBadStateid, proto.ErrOpenmode, proto.ErrLocksHeld, proto.ErrDelegRevoked
	)
	live := want{ok, ok, mode, ok, mode, ok, held}
	none := want{bad, bad, bad, bad, bad, bad, bad}
	for name, c := range map[string]struct {
		sid func(m *Manager, c *Client, d *Delegation) Stateid
		want
	}{
		"granted":  {func(_ *Manager, _ *Client, d *Delegation) Stateid { return d.Stateid() }, live},
		"seqid 0":  {func(_ *Manager, _ *Client, d *Delegation) Stateid { return Stateid{Other: d.other} }, live},
		"seqid 2":  {func(_ *Manager, _ *Client, d *Delegation) Stateid { return Stateid{2, d.other} }, none},
		"recalled": {func(m *Manager, _ *Client, d *Delegation) Stateid { m.Recall(theFile, nil, now); return d.Stateid() }, live},
		"revoked": {func(m *Manager, _ *Client, d *Delegation) Stateid {
			m.Recall(theFile, nil, now)
			m.Recalls(now + 10*second)
			return d.Stateid()
		}, want{rev, rev, rev, rev, rev, rev, ok}},
		"returned": {func(m *Manager, c *Client, d *Delegation) Stateid {
			m.Return(c, d.Stateid(), theFile)
			return d.Stateid()
		}, none},
		"made up": {func(_ *Manager, c *Client, _ *Delegation) Stateid {
			return Stateid{1, vfs.StateID{0x51, 0, byte(c.Slot), 9}}
		}, none},
		"an open's": {func(m *Manager, c *Client, _ *Delegation) Stateid { s, _ := open(m, c, "o", theFile, 1, 0); return s }, want{ok, ok, mode, bad, bad, bad, held}},
		"another file's": {func(m *Manager, c *Client, _ *Delegation) Stateid {
			d, _ := delegate(m, c, another, now)
			return d.Stateid()
		}, want{ok, bad, bad, bad, bad, bad, held}},
		"of before a take-over": {func(m *Manager, c *Client, _ *Delegation) Stateid {
			c.loaded = true
			return Stateid{1, m.NewOther(c, KindDelegation, 1, nil, theFile, []byte("before"))}
		}, want{rev, rev, rev, ok, mode, ok, ok}},
		"of before, of another file": {func(m *Manager, c *Client, _ *Delegation) Stateid {
			c.loaded = true
			return Stateid{1, m.NewOther(c, KindDelegation, 1, nil, another, []byte("before"))}
		}, want{rev, bad, bad, bad, bad, bad, ok}},
	} {
		for what, do := range map[string]func(m *Manager, c *Client, s Stateid) (st, want proto.Status){
			"TEST_STATEID": func(m *Manager, cl *Client, s Stateid) (_, _ proto.Status) { return m.Test(cl, s), c.test },
			"READ": func(m *Manager, cl *Client, s Stateid) (_, _ proto.Status) {
				_, st := m.CheckIO(cl, s, theFile, proto.ShareAccessRead, 7)
				return st, c.read
			},
			"WRITE": func(m *Manager, cl *Client, s Stateid) (_, _ proto.Status) {
				_, st := m.CheckIO(cl, s, theFile, proto.ShareAccessWrite, 7)
				return st, c.write
			},
			"CLAIM_DELEGATE_CUR": func(m *Manager, cl *Client, s Stateid) (_, _ proto.Status) {
				_, st := m.Claim(cl, s, theFile, proto.ShareAccessRead, 7)
				return st, c.claim
			},
			"CLAIM_DELEGATE_CUR to write": func(m *Manager, cl *Client, s Stateid) (_, _ proto.Status) {
				_, st := m.Claim(cl, s, theFile, proto.ShareAccessBoth, 7)
				return st, c.claimWrite
			},
			"DELEGRETURN": func(m *Manager, cl *Client, s Stateid) (_, _ proto.Status) {
				_, st := m.Return(cl, s, theFile)
				return st, c.ret
			},
			"FREE_STATEID": func(m *Manager, cl *Client, s Stateid) (_, _ proto.Status) {
				_, _, st := m.Free(cl, s)
				return st, c.free
			},
		} {
			m := delegating()
			cl, _ := confirm(t, m, now, "a")
			d, _ := delegate(m, cl, theFile, now)
			if st, want := do(m, cl, c.sid(m, cl, d)); st != want {
				t.Errorf("%s of what is %s: %v, want %v", what, name, st, want)
			}
		}
	}
}

// Another user of the client than the one who opened the file must be permitted himself.
func TestDelegationUser(t *testing.T) {
	m := delegating()
	c, _ := confirm(t, m, 0, "a")
	d, _ := delegate(m, c, theFile, 0)
	for uid, want := range map[uint32]bool{7: false, 8: true} {
		if other, st := m.CheckIO(c, d.Stateid(), theFile, proto.ShareAccessRead, uid); other != want || st != proto.OK {
			t.Errorf("user %d reads: %v %v", uid, other, st)
		}
		if other, st := m.Claim(c, d.Stateid(), theFile, proto.ShareAccessRead, uid); other != want || st != proto.OK {
			t.Errorf("user %d opens: %v %v", uid, other, st)
		}
	}
	c.loaded = true
	lost := Stateid{1, m.NewOther(c, KindDelegation, 1, nil, another, []byte("before"))}
	if other, st := m.Claim(c, lost, another, proto.ShareAccessRead, 7); !other || st != proto.OK {
		t.Errorf("a delegation that has ended: whose it was is not known, but %v %v", other, st)
	}
}

// A change recalls the delegations that are in its way: those of others, once.
func TestRecall(t *testing.T) {
	m := delegating()
	a, _ := confirm(t, m, 0, "a")
	b, _ := confirm(t, m, 0, "b")
	da, _ := delegate(m, a, theFile, 0)
	if fresh, ended := m.Recall(theFile, a, 0); fresh || ended != nil {
		t.Fatal("its holder's own change is in nobody's way")
	}
	if fresh, ended := m.Recall(another, nil, 0); fresh || ended != nil {
		t.Fatal("another file is not delegated")
	}
	delegate(m, b, theFile, 0)
	fresh, ended := m.Recall(theFile, a, 0)
	if !fresh || ended == nil {
		t.Fatal("b's is recalled")
	}
	if fresh, again := m.Recall(theFile, a, 0); fresh || again == nil {
		t.Fatal("it is recalled already, and in the way still")
	}
	tell, _ := m.Recalls(0)
	if len(tell) != 1 || tell[0].Client() != b || tell[0].File() != theFile {
		t.Fatal(tell)
	}
	if again, _ := m.Recalls(0); len(again) != 0 {
		t.Fatal("b is being told, and again")
	}
	m.Told(tell[0], true, proto.OK, 0)
	if again, _ := m.Recalls(5 * second); len(again) != 0 {
		t.Fatal("b has been told, and again")
	}
	if held, st := m.Return(b, tell[0].Stateid(), theFile); !held || st != proto.OK {
		t.Fatal(held, st)
	}
	select {
	case <-ended:
	default:
		t.Fatal("it was returned, and whoever waits is not told")
	}
	if _, ended := m.Recall(theFile, a, 0); ended != nil {
		t.Fatal("b's is in the way still")
	}
	if st := m.Test(a, da.Stateid()); st != proto.OK {
		t.Fatal(st)
	}
}

// While a file is delegated to a client, that is shown what it was granted on, whatever others
// change; its own changes it is shown.
func TestShown(t *testing.T) {
	m := delegating()
	a, _ := confirm(t, m, 0, "a")
	b, _ := confirm(t, m, 0, "b")
	shown := func(when string, c *Client, want bool) {
		t.Helper()
		if s := m.Shown(c, theFile); (s != nil) != want || want && s.Change != 1 {
			t.Errorf("%s: %s is shown %+v", when, c.Owner, s)
		}
	}
	shown("before", a, false)
	d, _ := delegate(m, a, theFile, 0)
	shown("granted", a, true)
	shown("granted", b, false)
	m.Recall(theFile, b, 0)
	shown("recalled", a, true)
	m.Return(a, d.Stateid(), theFile)
	shown("returned", a, false)
	delegate(m, a, theFile, 100*second)
	m.Recall(theFile, a, 100*second)
	shown("changed by itself", a, false)
}

// What changes while a delegation is being offered withdraws it.
func TestRecallOffer(t *testing.T) {
	m := delegating()
	a, _ := confirm(t, m, 0, "a")
	d, _ := m.Offer(a, theFile, &vfs.Attr{}, 7, m.NewOther(a, KindDelegation, 1, nil, theFile, nil), 0)
	fresh, ended := m.Recall(theFile, nil, 0)
	if fresh || ended == nil {
		t.Fatal("the client is not to be told of what it does not have; whoever changes the file waits until it certainly does not")
	}
	if m.Grant(d) || m.Delegated() {
		t.Fatal("granted")
	}
	<-ended
}

// A client that is not reached, or does not know of the delegation yet, is told again.
func TestTold(t *testing.T) {
	for name, c := range map[string]struct {
		reached bool
		st      proto.Status
		gone    int // after so many times; 0: never
	}{
		"not reached": {false, proto.OK, 0},
		"delayed":     {true, proto.ErrDelay, 0},
		"unknown":     {true, proto.ErrBadStateid, maxRefusals},
		"no file":     {true, proto.ErrBadhandle, maxRefusals},
	} {
		m := delegating()
		m.cfg.Lease = 100 * second
		a, _ := confirm(t, m, 0, "a")
		delegate(m, a, theFile, 0)
		m.Recall(theFile, nil, 0)
		for i := 1; i < 10; i++ {
			now := cluster.Time(i) * retell
			if i > 1 {
				if early, _ := m.Recalls(now - 1); len(early) > 0 {
					t.Fatalf("%s: told again at once", name)
				}
			}
			tell, _ := m.Recalls(now)
			if len(tell) != 1 {
				t.Fatalf("%s: told %d times only", name, i-1)
			}
			if gone := m.Told(tell[0], c.reached, c.st, now); gone != (i == c.gone) {
				t.Fatalf("%s: gone after %d times: %v", name, i, gone)
			} else if gone {
				break
			}
		}
		if m.Delegated() != (c.gone == 0) {
			t.Errorf("%s: delegated: %v", name, m.Delegated())
		}
	}
}

// One client is told of few recalls at a time, so that others hear of theirs.
func TestTellingIsBounded(t *testing.T) {
	m := delegating()
	m.cfg.MaxDelegations = 100
	a, _ := confirm(t, m, 0, "a")
	b, _ := confirm(t, m, 0, "b")
	many(m, a, 100)
	for i := range 100 {
		m.Recall(vfs.File{Volume: 2, Ino: vfs.Ino(i)}, nil, 0)
	}
	delegate(m, b, theFile, 0)
	m.Recall(theFile, nil, 0)
	tell, _ := m.Recalls(0)
	if len(tell) != maxTelling+1 {
		t.Fatalf("%d at a time", len(tell))
	}
	for _, d := range tell {
		m.Told(d, true, proto.OK, 0)
	}
	if tell, _ := m.Recalls(0); len(tell) != maxTelling {
		t.Fatalf("then %d", len(tell))
	}
}

// What is not returned within the lease time is revoked, and the client hears of it until
// it has freed it. That of a client whose lease has ended is revoked at once.
func TestRevoke(t *testing.T) {
	m := delegating()
	a, s := confirm(t, m, 0, "a")
	delegate(m, a, theFile, 0)
	_, ended := func() (bool, <-chan struct{}) { return m.Recall(theFile, nil, 5*second) }()
	a.Renew(14 * second)
	if _, revoked := m.Recalls(15*second - 1); len(revoked) > 0 || a.Revoked() {
		t.Fatal("within the lease time")
	}
	_, revoked := m.Recalls(15 * second)
	if len(revoked) != 1 || revoked[0] != theFile || m.Delegated() {
		t.Fatal("not after the lease time")
	}
	<-ended
	var sid Stateid
	for id := range a.delegations {
		sid = Stateid{1, id}
	}
	for i := range uint32(3) {
		if f := m.Revoked(s, 0, i, 20*second); f != proto.Seq4StatusRecallableStateRevoked {
			t.Fatalf("flags %#x", f)
		}
	}
	if _, _, st := m.Free(a, sid); st != proto.OK || a.Revoked() {
		t.Fatal(st, "and still told")
	}

	delegate(m, a, another, 20*second)
	m.Recall(another, nil, 24*second+1)
	if _, revoked := m.Recalls(24*second + 1); len(revoked) != 1 {
		t.Fatal("its lease has ended: who waits for it waits in vain")
	}
}

// A client that is dropped leaves nothing, and its files are not needed for it any more;
// what was revoked before is not counted twice. One that has a delegation is busy.
func TestDelegationsOfGone(t *testing.T) {
	m := delegating()
	a, s := confirm(t, m, 0, "a")
	delegate(m, a, theFile, 0)
	delegate(m, a, another, 0)
	m.Recall(another, nil, 0)
	m.DestroySession(&s.ID)
	if _, st := m.DestroyClientid(a.ID); st != proto.ErrClientidBusy {
		t.Fatal(st)
	}
	a.Renew(9 * second)
	if _, revoked := m.Recalls(10 * second); len(revoked) != 1 {
		t.Fatal(revoked)
	}
	m.Recall(theFile, nil, 10*second)
	gone := m.Expire(1000 * second)
	if len(gone) != 1 || len(gone[0].Files) != 1 || gone[0].Files[0] != theFile || m.Delegated() {
		t.Fatal(gone)
	}
	if tell, _ := m.Recalls(1000 * second); len(tell) > 0 {
		t.Fatal("recalled of nobody")
	}
}

// After a take-over, a client that may have had delegations hears that they have ended,
// until it certainly has heard it; it gets none before. Others hear nothing, and
// their records are as programs without delegations know them.
func TestDelegationsLost(t *testing.T) {
	old := delegating()
	a, _ := confirm(t, old, 0, "a")
	confirm(t, old, 0, "b")
	old.SetDelegating(a)
	var records []vfs.ClientRecord
	for _, c := range []*Client{old.Client(a.ID), old.confirmed[clientName{owner: "b"}]} {
		r, _ := old.Record(c.ID)
		if want := map[*Client]byte{a: recordVersion}[c]; r.Bytes[3] != max(want, recordPlain) {
			t.Errorf("%s: version %d", c.Owner, r.Bytes[3])
		}
		records = append(records, vfs.ClientRecord{ID: r.ID, Record: r.Bytes})
	}
	m := delegating()
	if err := m.Load(0, records); err != nil {
		t.Fatal(err)
	}
	if m.confirmed[clientName{owner: "b"}].Revoked() {
		t.Error("b has lost nothing")
	}
	a = m.Client(a.ID)
	s := m.Sessions(a)[0]
	told := func(slot, seq uint32, now cluster.Time, want bool) {
		t.Helper()
		if got := a.Revoked() && m.Revoked(s, slot, seq, now) != 0; got != want {
			t.Errorf("slot %d, sequence %d: told %v", slot, seq, got)
		}
	}
	told(0, 7, second, true)
	told(1, 3, second, true) // the first reply may not have come
	if d, _ := delegate(m, a, theFile, 0); d != nil {
		t.Error("a gets one before it knows what became of the others")
	}
	clock := cluster.Time(second)
	now := func() cluster.Time { return clock }
	if !a.Hides(now) {
		t.Error("a is shown what has changed before it knows")
	}
	told(0, 8, second, false)
	if !a.Hides(now) {
		t.Error("a is shown what has changed while it is finding out")
	}
	if clock += hideFor; a.Hides(now) || a.Hides(nil) {
		t.Error("a is not shown what has changed")
	}
	if d, _ := delegate(m, a, theFile, 0); d == nil {
		t.Error("a gets none any more")
	}
	if again, changed := m.Record(a.ID); changed {
		t.Error("recorded again", again)
	}
}
