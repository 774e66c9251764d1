package state

import (
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

var (
	alice = Principal{Flavor: 1, UID: 1}
	bob   = Principal{Flavor: 1, UID: 2}
)

// known is the records of owner "a" that a Manager has before a request.
type known struct {
	confirmed   bool // verifier 1, alice
	sessionless bool // it has no session any more
	open        bool // it has a file open
	unconfirmed bool // verifier 9, bob if it is alone
}

// prepare makes the records, and returns the ids of the confirmed and the unconfirmed one.
func prepare(t *testing.T, m *Manager, k known) (conf, unconf uint64) {
	t.Helper()
	exchange := func(verifier uint64, p Principal) ExchangeResult {
		x, _, st := m.ExchangeID(0, ExchangeArgs{Owner: []byte("a"), Verifier: verifier, Principal: p})
		if st != proto.OK {
			t.Fatal(st)
		}
		return x
	}
	if k.confirmed {
		x := exchange(1, alice)
		r, _ := m.CreateSession(0, CreateSessionArgs{ClientID: x.ClientID, Sequence: x.Sequence, Fore: asks, Principal: alice})
		if r.Status != proto.OK {
			t.Fatal(r.Status)
		}
		conf = x.ClientID
		if k.open {
			c := m.Session(&r.ID).Client
			if _, st := open(m, c, "o", vfs.File{Ino: 5}, 1, 0); st != proto.OK {
				t.Fatal(st)
			}
		}
		if k.sessionless {
			m.DestroySession(&r.ID)
		}
	}
	if k.unconfirmed {
		p := bob
		if k.confirmed {
			p = alice
		}
		unconf = exchange(9, p).ClientID
	}
	return conf, unconf
}

// The cases of EXCHANGE_ID by what records there are: RFC 8881 §18.35.4, numbered as there.
func TestExchangeIDCases(t *testing.T) {
	// What becomes of the records.
	const (
		none = iota // there is none
		kept        // that of before
		made        // a new one
	)
	type id int
	const (
		noID id = iota
		confID
		newID
	)
	cases := []struct {
		name      string
		known     known
		at        cluster.Time
		verifier  uint64
		principal Principal
		update    bool
		want      proto.Status
		id        id
		conf      int
		unconf    int
		gone      bool // the confirmed record's state is given up
	}{
		{"1 new owner", known{}, 0, 1, alice, false, proto.OK, newID, none, made, false},

		{"2 again", known{confirmed: true}, 0, 1, alice, false, proto.OK, confID, kept, none, false},
		{"2 again, without a session", known{confirmed: true, sessionless: true}, 0, 1, alice, false, proto.OK, confID, kept, none, false},
		{"2 again, late", known{confirmed: true}, 99 * second, 1, alice, false, proto.OK, confID, kept, none, false},
		{"2 again, a new incarnation waiting", known{confirmed: true, unconfirmed: true}, 0, 1, alice, false, proto.OK, confID, kept, kept, false},

		{"3 collision with a session", known{confirmed: true}, 0, 1, bob, false, proto.ErrClidInuse, noID, kept, none, false},
		{"3 collision, another verifier", known{confirmed: true}, 0, 2, bob, false, proto.ErrClidInuse, noID, kept, none, false},
		{"3 collision with an open", known{confirmed: true, open: true, sessionless: true}, 0, 1, bob, false, proto.ErrClidInuse, noID, kept, none, false},
		{"3 collision, an unconfirmed record too", known{confirmed: true, unconfirmed: true}, 0, 1, bob, false, proto.ErrClidInuse, noID, kept, kept, false},
		{"3 collision without state", known{confirmed: true, sessionless: true}, 0, 1, bob, false, proto.OK, newID, none, made, true},
		{"3 collision, lease expired", known{confirmed: true, open: true}, 11 * second, 1, bob, false, proto.OK, newID, none, made, true},

		{"4 unconfirmed, the same", known{unconfirmed: true}, 0, 9, bob, false, proto.OK, newID, none, made, false},
		{"4 unconfirmed, another verifier", known{unconfirmed: true}, 0, 8, bob, false, proto.OK, newID, none, made, false},
		{"4 unconfirmed, another principal", known{unconfirmed: true}, 0, 9, alice, false, proto.OK, newID, none, made, false},

		{"5 restart", known{confirmed: true, open: true}, 0, 2, alice, false, proto.OK, newID, kept, made, false},
		{"5 restart, lease expired", known{confirmed: true}, 11 * second, 2, alice, false, proto.OK, newID, kept, made, false},
		{"5 restart twice", known{confirmed: true, unconfirmed: true}, 0, 2, alice, false, proto.OK, newID, kept, made, false},

		{"6 update", known{confirmed: true}, 0, 1, alice, true, proto.OK, confID, kept, none, false},
		{"6 update, a new incarnation waiting", known{confirmed: true, unconfirmed: true}, 0, 1, alice, true, proto.OK, confID, kept, kept, false},

		{"7 update of nothing", known{}, 0, 1, alice, true, proto.ErrNoent, noID, none, none, false},
		{"7 update of what is unconfirmed", known{unconfirmed: true}, 0, 9, bob, true, proto.ErrNoent, noID, none, kept, false},

		{"8 update, wrong verifier", known{confirmed: true}, 0, 2, alice, true, proto.ErrNotSame, noID, kept, none, false},
		{"8 update, wrong verifier and principal", known{confirmed: true}, 0, 2, bob, true, proto.ErrNotSame, noID, kept, none, false},

		{"9 update, wrong principal", known{confirmed: true}, 0, 1, bob, true, proto.ErrPerm, noID, kept, none, false},
		{"9 update, wrong principal, no state", known{confirmed: true, sessionless: true}, 99 * second, 1, bob, true, proto.ErrPerm, noID, kept, none, false},
	}
	for _, k := range cases {
		t.Run(k.name, func(t *testing.T) {
			m := newManager()
			conf, unconf := prepare(t, m, k.known)
			x, gone, st := m.ExchangeID(k.at, ExchangeArgs{
				Owner: []byte("a"), Verifier: k.verifier, Principal: k.principal, Update: k.update,
			})
			if st != k.want {
				t.Fatalf("%v, want %v", st, k.want)
			}
			switch k.id {
			case confID:
				if x.ClientID != conf || !x.Confirmed || x.Sequence != 2 {
					t.Errorf("%+v, want the confirmed client %d", x, conf)
				}
			case newID:
				if x.ClientID == conf || x.ClientID == unconf || x.Confirmed || x.Sequence != 1 {
					t.Errorf("%+v, want a new client, not %d or %d", x, conf, unconf)
				}
			}
			check := func(what string, c *Client, how int, before uint64) {
				t.Helper()
				switch {
				case how == none && c != nil, how != none && c == nil:
					t.Errorf("the %s record is %+v", what, c)
				case how == kept && c.ID != before, how == made && c.ID != x.ClientID:
					t.Errorf("the %s record is of client %d", what, c.ID)
				case how == made && (c.Verifier != k.verifier || c.Principal != k.principal):
					t.Errorf("the %s record is %+v", what, c)
				}
			}
			check("confirmed", m.confirmed[clientName{owner: "a"}], k.conf, conf)
			check("unconfirmed", m.unconfirmed[clientName{owner: "a"}], k.unconf, unconf)
			records := 0
			for _, how := range []int{k.conf, k.unconf} {
				if how != none {
					records++
				}
			}
			if len(m.clients) != records {
				t.Errorf("%d client ids are known, want %d", len(m.clients), records)
			}
			if k.gone != (len(gone) == 1) || k.gone && (gone[0].Record != conf) {
				t.Errorf("given up: %+v", gone)
			}
			if k.gone && k.known.open && len(gone[0].Files) != 1 {
				t.Errorf("files to close: %v", gone[0].Files)
			}
		})
	}
}

// The records collapse to one by CREATE_SESSION (RFC 8881 §18.35.4, item 5), and
// not before a session has been made.
func TestExchangeIDRestartConfirmed(t *testing.T) {
	m := newManager()
	conf, unconf := prepare(t, m, known{confirmed: true, open: true, unconfirmed: true})
	small := asks
	small.MaxRequest = 10
	r, gone := m.CreateSession(0, CreateSessionArgs{ClientID: unconf, Sequence: 1, Fore: small, Principal: alice})
	if r.Status != proto.ErrToosmall || len(gone) != 0 || m.confirmed[clientName{owner: "a"}].ID != conf || m.unconfirmed[clientName{owner: "a"}].ID != unconf {
		t.Fatal("a failed CREATE_SESSION changed records: ", r.Status, gone)
	}
	r, gone = m.CreateSession(0, CreateSessionArgs{ClientID: unconf, Sequence: 2, Fore: asks, Principal: alice})
	if r.Status != proto.OK || m.confirmed[clientName{owner: "a"}].ID != unconf || len(m.unconfirmed) != 0 || len(m.clients) != 1 {
		t.Fatal(r.Status, len(m.clients))
	}
	if len(gone) != 1 || gone[0].Client != conf || gone[0].Record != 0 || len(gone[0].Files) != 1 {
		t.Fatalf("%+v: the old incarnation's state goes, its name stays on record", gone)
	}
}

// An unconfirmed record goes after a lease (RFC 8881 §18.35.4); it was never on record.
func TestUnconfirmedExpires(t *testing.T) {
	m := newManager()
	conf, unconf := prepare(t, m, known{confirmed: true, unconfirmed: true})
	if gone := m.Expire(10 * second); len(gone) != 0 {
		t.Fatal(gone)
	}
	gone := m.Expire(11 * second)
	if len(gone) != 1 || gone[0].Client != 0 || gone[0].Record != 0 || m.clients[unconf] != nil || m.confirmed[clientName{owner: "a"}].ID != conf {
		t.Fatalf("%+v", gone)
	}
}
