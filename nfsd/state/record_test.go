package state

import (
	"bytes"
	"errors"
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// next returns the Manager of whoever takes m's clients over.
func successor(m *Manager) *Manager {
	cfg := m.cfg
	cfg.Epoch++
	return New(cfg)
}

func records(t *testing.T, m *Manager) (all []vfs.ClientRecord) {
	t.Helper()
	for id := range m.clients {
		if r, ok := m.Record(id); ok {
			all = append(all, vfs.ClientRecord{ID: r.ID, Record: r.Bytes})
		}
	}
	return all
}

// A client's record has all that the next front-end needs.
func TestRecordRoundTrip(t *testing.T) {
	m := newManager()
	c, s := confirm(t, m, 0, "a")
	m.SetCallback(s, 77, CallbackCred{Sys: true, UID: 5, GID: 6, Machine: "host"})
	m.ReclaimComplete(c, false)
	r, _ := m.CreateSession(0, CreateSessionArgs{
		ClientID: c.ID, Sequence: 2, Fore: asks, Back: asks, Flags: proto.CreateSessionFlagConnBackChan,
	})
	if r.Status != proto.OK {
		t.Fatal(r.Status)
	}
	if _, _, st := m.ExchangeID(0, ExchangeArgs{Owner: []byte("unconfirmed")}); st != proto.OK {
		t.Fatal(st)
	}
	all := records(t, m)
	if len(all) != 1 {
		t.Fatalf("%d records", len(all))
	}
	n := successor(m)
	if err := n.Load(5, all); err != nil {
		t.Fatal(err)
	}
	now := n.Client(c.ID)
	if now.Owner != "a" || now.Verifier != 1 || now.Slot != c.Slot || !now.complete || now.seq != 2 || *now.cached != r || !now.Loaded() {
		t.Fatalf("%+v", now)
	}
	again := n.Session(&s.ID)
	if again.Fore != s.Fore || again.Back != s.Back || again.CBProgram != 77 || again.CBCred != s.CBCred || again.BackAsked {
		t.Fatalf("%+v", again)
	}
	if !n.Session(&r.ID).BackAsked || len(n.Sessions(now)) != 2 {
		t.Fatal("the second session")
	}
	// It is the same when it is recorded again, and later ones get other numbers.
	now.changes++
	if got := records(t, n); !bytes.Equal(got[0].Record, all[0].Record) {
		t.Fatal("it changes from front-end to front-end")
	}
	x, _, st := n.ExchangeID(5, ExchangeArgs{Owner: []byte("b")})
	if st != proto.OK || x.ClientID == c.ID || cluster.ClientIdentity(x.ClientID) != 1 || n.Client(x.ClientID).Slot == c.Slot {
		t.Fatalf("%v %#x", st, x.ClientID)
	}
	// The lease begins anew.
	if gone := n.Expire(5 + 10*second); len(gone) != 0 {
		t.Fatal(gone)
	}
	// Without a session that ends.
	without := n.RecordWithout(again)
	last := successor(n)
	if err := last.Load(5, []vfs.ClientRecord{{ID: without.ID, Record: without.Bytes}}); err != nil {
		t.Fatal(err)
	}
	if last.Session(&s.ID) != nil || last.Session(&r.ID) == nil {
		t.Fatal("the wrong session is left")
	}
}

// What can't be used is left out, and the rest is loaded.
func TestLoadDamaged(t *testing.T) {
	m := newManager()
	c, _ := confirm(t, m, 0, "a")
	good := records(t, m)[0]
	newer := bytes.Clone(good.Record)
	newer[3] = recordVersion + 1
	n := successor(m)
	err := n.Load(0, []vfs.ClientRecord{
		{ID: 9, Record: newer}, {ID: 10, Record: good.Record[:20]}, good, {ID: 11, Record: good.Record}, {ID: 12},
	})
	if !errors.Is(err, cluster.EVERSION) || !errors.Is(err, errRecord) {
		t.Fatal(err)
	}
	if got, sessions, _ := n.Counts(); got != 1 || sessions != 1 || n.Client(c.ID) == nil {
		t.Fatal(got, sessions)
	}
}

// After a take-over a slot takes whatever comes first, once, as what may have been
// executed; then it counts.
func TestSlotAfterTakeover(t *testing.T) {
	m := newManager()
	_, s := confirm(t, m, 0, "a")
	for _, first := range []uint32{0, 1, 7, 1 << 31} {
		n := successor(m)
		if err := n.Load(0, records(t, m)); err != nil {
			t.Fatal(err)
		}
		now := n.Session(&s.ID)
		if out, st, _, _ := now.Begin(0, first, Fingerprint{}); out != Maybe {
			t.Fatal(out, st)
		}
		now.End(0, []byte("x"), nil)
		if out, _, reply, _ := now.Begin(0, first, Fingerprint{}); out != Replay || string(reply) != "x" {
			t.Fatal(out)
		}
		if out, st, _, _ := now.Begin(0, first+2, Fingerprint{}); st != proto.ErrSeqMisordered {
			t.Fatal(out, st)
		}
		if out, st, _, _ := now.Begin(0, first+1, Fingerprint{}); out != Fresh {
			t.Fatal(out, st)
		}
	}
	if out, st, _, _ := s.Begin(0, 7, Fingerprint{}); st != proto.ErrSeqMisordered {
		t.Fatal("a slot that is new: ", out, st)
	}
}

// FuzzRecord decodes what may be in a store: what it takes, it encodes alike.
func FuzzRecord(f *testing.F) {
	m := newManager()
	x, _, _ := m.ExchangeID(0, ExchangeArgs{Owner: []byte("a"), Peer: "10.0.0.1"})
	m.CreateSession(0, CreateSessionArgs{ClientID: x.ClientID, Sequence: 1, Fore: asks, Back: asks})
	r, _ := m.Record(x.ClientID)
	f.Add(r.Bytes)
	f.Add([]byte{0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, sessions, ext, err := decode(1, b)
		if err != nil {
			return
		}
		if len(sessions) > maxRecordSessions || len(ext) > maxRecordExt {
			t.Fatal("too much")
		}
		c.sessions = map[SessionID]*Session{}
		for _, s := range sessions {
			c.sessions[s.ID] = s
		}
		c.ext = rawExt(ext)
		again := c.encode(nil)
		d, _, _, err := decode(1, again)
		if err != nil || d.Owner != c.Owner || d.seq != c.seq || d.complete != c.complete {
			t.Fatal(err)
		}
	})
}

type rawExt []byte

func (r rawExt) AppendRecord(b []byte) []byte { return append(b, r...) }
