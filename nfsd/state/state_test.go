package state

import (
	"math"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

const second = cluster.Time(1e9)

func newManager() *Manager {
	return New(Config{
		Identity: 1, Epoch: 3, Key: [32]byte{1}, Lease: 10 * second, Courtesy: 100 * second,
		Fore:       ChannelAttrs{MaxRequest: 1 << 20, MaxResponse: 1 << 20, MaxCached: 8192, MaxOps: 16, MaxRequests: 8},
		MaxClients: 3, MaxSessions: 2, MaxHoldings: 5,
	})
}

var asks = ChannelAttrs{MaxRequest: 4096, MaxResponse: 4096, MaxCached: 1024, MaxOps: 8, MaxRequests: 64}

func confirm(t *testing.T, m *Manager, now cluster.Time, owner string) (*Client, *Session) {
	t.Helper()
	x, _, st := m.ExchangeID(now, ExchangeArgs{Owner: []byte(owner), Verifier: 1})
	if st != proto.OK {
		t.Fatal(st)
	}
	r, _ := m.CreateSession(now, CreateSessionArgs{ClientID: x.ClientID, Sequence: x.Sequence, Fore: asks, Back: asks})
	if r.Status != proto.OK {
		t.Fatal(r.Status)
	}
	s := m.Session(&r.ID)
	return s.Client, s
}

// open opens f as an OPEN does, with what it has recorded.
func open(m *Manager, c *Client, owner string, f vfs.File, access, deny uint32) (Stateid, proto.Status) {
	a := &OpenArgs{Owner: []byte(owner), File: f, Access: access, Deny: deny}
	a.Other = m.NewOther(c, KindOpen, access, a.Owner, f, []byte{byte(salt.Add(1))})
	_, needed, st := m.PlanOpen(c, a)
	if st != proto.OK {
		return Stateid{}, st
	}
	r, st := m.Open(c, a, needed)
	return r.Stateid, st
}

var salt atomic.Uint32

// The tables are bounded: a lapsed client makes room, a live one does not.
func TestLimits(t *testing.T) {
	m := newManager()
	a, _ := confirm(t, m, 0, "a")
	confirm(t, m, 0, "b")
	confirm(t, m, 0, "c")
	if _, _, st := m.ExchangeID(5*second, ExchangeArgs{Owner: []byte("d")}); st != proto.ErrDelay {
		t.Fatal(st)
	}
	a.Renew(10 * second)
	_, gone, st := m.ExchangeID(15*second, ExchangeArgs{Owner: []byte("d")})
	if st != proto.OK || len(gone) != 2 || gone[0].Record == 0 {
		t.Fatal(st, gone)
	}
	for seq, want := range []proto.Status{proto.OK, proto.ErrNospc} {
		r, _ := m.CreateSession(15*second, CreateSessionArgs{ClientID: a.ID, Sequence: uint32(seq + 2), Fore: asks})
		if r.Status != want {
			t.Fatal(seq, r.Status)
		}
	}
	for i := range 6 {
		_, st := open(m, a, "o", vfs.File{Ino: vfs.Ino(i)}, 1, 0)
		if want := st == proto.OK; want != (i < 5) {
			t.Fatal(i, st)
		}
	}
}

func TestDestroyClientid(t *testing.T) {
	m := newManager()
	c, s := confirm(t, m, 0, "a")
	if _, st := m.DestroyClientid(c.ID); st != proto.ErrClientidBusy {
		t.Fatal(st)
	}
	if st := m.DestroySession(&s.ID); st != proto.OK {
		t.Fatal(st)
	}
	sid, _ := open(m, c, "o", vfs.File{Ino: 5}, 1, 0)
	if _, st := m.DestroyClientid(c.ID); st != proto.ErrClientidBusy {
		t.Fatal(st)
	}
	m.Close(c, sid, vfs.File{Ino: 5})
	if gone, st := m.DestroyClientid(c.ID); st != proto.OK || len(gone) != 1 || gone[0].Record == 0 {
		t.Fatal(st, gone)
	}
	if _, st := m.DestroyClientid(c.ID); st != proto.ErrStaleClientid {
		t.Fatal(st)
	}
}

// What a client that is gone still does finds nothing, and its locks are not recorded.
func TestGoneClient(t *testing.T) {
	m := newManager()
	c, _ := confirm(t, m, 0, "a")
	f := vfs.File{Ino: 5}
	sid, _ := open(m, c, "o", f, 3, 2)
	l, st := m.LockOpen(c, &LockArgs{Open: sid, File: f, Owner: []byte("p"), Digest: vfs.LockOwner{1}, Write: true})
	if st != proto.OK {
		t.Fatal(st)
	}
	gone := m.ExpireClient(c.ID, 11*second)
	if len(gone) != 1 || len(gone[0].Files) != 1 || gone[0].Files[0] != f {
		t.Fatal(gone)
	}
	if _, st := m.Locked(l, 0, 10); st != proto.ErrExpired {
		t.Fatal(st)
	}
	if _, st := open(m, c, "o", f, 1, 0); st != proto.ErrExpired {
		t.Fatal(st)
	}
	if _, st := m.CheckIO(c, sid, f, 1, 0); st != proto.ErrExpired {
		t.Fatal(st)
	}
	if !m.shares.possible(f, 0, 0, proto.ShareAccessWrite, 0) {
		t.Fatal("its reservation is still there")
	}
}

// A lock state that was refused its first lock leaves nothing behind.
func TestRefusedLock(t *testing.T) {
	m := newManager()
	c, _ := confirm(t, m, 0, "a")
	f := vfs.File{Ino: 5}
	sid, _ := open(m, c, "o", f, 3, 0)
	a := LockArgs{Open: sid, File: f, Owner: []byte("p"), Digest: vfs.LockOwner{1}, Write: true}
	for range 20 {
		l, st := m.LockOpen(c, &a)
		if st != proto.OK {
			t.Fatal(st)
		}
		m.Refused(l)
	}
	l, _ := m.LockOpen(c, &a)
	lid, _ := m.Locked(l, 3, 9)
	m.Refused(l) // another attempt by the same owner
	if st := m.Test(c, lid); st != proto.OK {
		t.Fatal(st)
	}
	ch, st := m.PlanClose(c, sid, f)
	if held := ch.Unlock; st != proto.OK || len(held) != 1 || held[0].Start != 3 || held[0].End != 9 {
		t.Fatal(st, ch)
	}
}

// The spans that a lock state holds are what a set of bytes would be.
func TestSpans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Bytes 0 to 15 stand for themselves, 16 to 31 for those at the very end.
		at := func(i int) uint64 {
			if i < 16 {
				return uint64(i)
			}
			return math.MaxUint64 - uint64(31-i)
		}
		var l Lock
		var model [32]bool
		for range rapid.IntRange(1, 30).Draw(t, "n") {
			i := rapid.IntRange(0, 31).Draw(t, "from")
			j := rapid.IntRange(i, 31).Draw(t, "to")
			take := rapid.Bool().Draw(t, "take")
			if take {
				l.add(span{at(i), at(j)})
			} else {
				l.sub(span{at(i), at(j)})
			}
			for k := i; k <= j; k++ {
				model[k] = take
			}
			for k, want := range model {
				got := false
				for _, s := range l.held {
					got = got || s.start <= at(k) && at(k) <= s.end
				}
				if got != want {
					t.Fatalf("byte %d: held %v, want %v: %v", k, got, want, l.held)
				}
			}
			for k := 1; k < len(l.held); k++ {
				if l.held[k-1].end >= l.held[k].start-1 {
					t.Fatalf("not apart: %v", l.held)
				}
			}
		}
	})
}

// A slot runs each sequence id once: requests come in any order, again and again.
func TestSlotModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &Session{slots: make([]slot, 1)}
		var last uint32
		busy, kept, unknown := false, false, false
		var buf [1]byte // where each reply is made
		type waiter struct {
			seq uint32
			ch  <-chan []byte
		}
		var parked []waiter
		reply := func(seq uint32) []byte { return []byte{byte(seq)} }
		for range 60 {
			if busy && rapid.IntRange(0, 2).Draw(t, "end") == 0 {
				kept = rapid.Bool().Draw(t, "keep")
				var keep []byte
				if kept {
					keep = append(buf[:0], reply(last)...)
				}
				s.End(0, keep, func() []byte { return reply(last) })
				buf[0]++ // it is used for the next one
				busy = false
				for _, w := range parked {
					got := <-w.ch
					if same := w.seq == last; same && (len(got) != 1 || got[0] != byte(last)) || !same && got != nil {
						t.Fatalf("waiter of %d got %v", w.seq, got)
					}
				}
				parked = nil
				continue
			}
			if busy && rapid.IntRange(0, 9).Draw(t, "give up") == 0 {
				s.GiveUp(0)
				busy, unknown = false, true
				for _, w := range parked {
					if got := <-w.ch; got != nil {
						t.Fatalf("waiter of %d got %v of a request without a reply", w.seq, got)
					}
				}
				parked = nil
				continue
			}
			seq := uint32(int(last) + rapid.IntRange(-1, 2).Draw(t, "seq"))
			if unknown {
				seq = max(1, seq)
			}
			out, st, got, ch := s.Begin(0, seq, Fingerprint{})
			switch {
			case unknown:
				if out != Maybe {
					t.Fatal(out, st)
				}
				last, busy, unknown = seq, true, false
			case seq == last+1 && !busy:
				if out != Fresh {
					t.Fatal(out, st)
				}
				last, busy = seq, true
			case busy && (seq == last || seq == last+1) && len(parked) < maxParked:
				if out != Park {
					t.Fatal(out, st)
				}
				parked = append(parked, waiter{seq, ch})
			case busy && (seq == last || seq == last+1):
				if out != Refuse || st != proto.ErrDelay {
					t.Fatal(out, st)
				}
			case seq == last && last != 0 && kept:
				if out != Replay || got[0] != byte(last) {
					t.Fatal(out, st)
				}
			case seq == last && last != 0:
				if out != Refuse || st != proto.ErrRetryUncachedRep {
					t.Fatal(out, st)
				}
			default:
				if out != Refuse || st != proto.ErrSeqMisordered {
					t.Fatal(out, st)
				}
			}
		}
	})
}

func TestSharesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s shares
		type open struct{ access, deny uint32 }
		opens := make([]open, 4)
		f := vfs.File{Volume: 1, Ino: 9}
		for range 40 {
			i := rapid.IntRange(0, 3).Draw(t, "i")
			want := open{uint32(rapid.IntRange(0, 3).Draw(t, "access")), uint32(rapid.IntRange(0, 3).Draw(t, "deny"))}
			if want.access == 0 {
				want.deny = 0
			}
			ok := true
			o := opens[i]
			if want.access&^o.access != 0 || want.deny&^o.deny != 0 {
				for j, x := range opens {
					ok = ok && (j == i || x.access&want.deny == 0 && x.deny&want.access == 0)
				}
			}
			if got := s.change(f, o.access, o.deny, want.access, want.deny); got != ok {
				t.Fatalf("%v: %d to %v: %v", opens, i, want, got)
			}
			if ok {
				opens[i] = want
			}
		}
		for _, o := range opens {
			s.change(f, o.access, o.deny, 0, 0)
		}
		if len(s.shards[s.shard(f)].m) != 0 {
			t.Fatal("something is left")
		}
	})
}
