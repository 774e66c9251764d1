package conformance

import (
	"fmt"
	"slices"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
)

const toEnd = ^uint64(0)

func rd(off, n uint64) client.Range { return client.Range{Type: proto.ReadLt, Offset: off, Length: n} }

func wr(off, n uint64) client.Range { return client.Range{Type: proto.WriteLt, Offset: off, Length: n} }

// two returns two clients, each with the same file open for reading and writing.
func (t *T) two() (a, b *client.File) {
	c, d := t.Client(), t.Client()
	t.Create(c, "locked", "")
	how := client.OpenHow{Access: proto.ShareAccessBoth}
	return t.Open(c, "locked", how), t.Open(d, "locked", how)
}

// free ends the case unless another could lock exactly the ranges.
func (t *T) free(c *client.Client, fh client.FH, want map[client.Range]bool) {
	for l, ok := range want {
		conflict, err := c.TestLock(t, fh, "tester", l)
		t.Ok(err, "LOCKT")
		if (conflict == nil) != ok {
			t.Fatalf("LOCKT of type %d at %d for %d: conflict %v", l.Type, l.Offset, l.Length, conflict)
		}
	}
}

var _ = register("lock",
	Case{"matrix", "RFC 7530 §16.10, RFC 8881 §18.10", All, func(t *T) {
		a, b := t.two()
		for _, first := range []client.Range{rd(10, 10), wr(10, 10)} {
			t.Ok(a.Lock(t, "a", first), "LOCK")
			for _, second := range []client.Range{
				rd(10, 10), wr(10, 10), rd(0, 10), wr(0, 10), rd(0, 11), wr(0, 11), wr(19, 1), rd(19, 1),
				wr(20, 5), wr(20, toEnd), wr(0, toEnd), rd(0, toEnd), wr(15, 1),
			} {
				over := second.Offset < 20 && (second.Length == toEnd || second.Offset+second.Length > 10)
				want := proto.OK
				if over && (first.Type == proto.WriteLt || second.Type == proto.WriteLt) {
					want = proto.ErrDenied
				}
				err := b.Lock(t, "b", second)
				t.Is(err, fmt.Sprintf("LOCK of type %d at %d for %d beside type %d at 10 for 10",
					second.Type, second.Offset, second.Length, first.Type), want)
				if err == nil {
					t.Ok(b.Unlock(t, "b", second), "LOCKU")
				}
			}
			t.Ok(a.Unlock(t, "a", first), "LOCKU")
		}
	}},
	Case{"denied-says-what-is-in-the-way", "RFC 7530 §16.10.4, RFC 8881 §18.10.3", All, func(t *T) {
		a, b := t.two()
		t.Ok(a.Lock(t, "a", wr(100, 50)), "LOCK")
		conflict, err := t.Client().TestLock(t, b.FH(), "b", wr(0, toEnd))
		t.Ok(err, "LOCKT")
		if conflict == nil {
			t.Fatalf("LOCKT finds no lock")
		}
		Equal(t, "the lock in the way", conflict.Range, wr(100, 50))
		if !slices.Equal(conflict.Owner, []byte("a")) {
			t.Fatalf("the owner is %q", conflict.Owner)
		}
		t.Is(b.Lock(t, "b", wr(0, toEnd)), "LOCK", proto.ErrDenied)
	}},
	Case{"own-locks-do-not-conflict", "RFC 7530 §16.11, RFC 8881 §18.11", All, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		t.Ok(f.Lock(t, "a", wr(0, 100)), "LOCK")
		conflict, err := c.TestLock(t, f.FH(), "a", wr(50, 100))
		t.Ok(err, "LOCKT by the owner")
		if conflict != nil {
			t.Fatalf("LOCKT by the owner: %v", conflict)
		}
		conflict, err = c.TestLock(t, f.FH(), "b", wr(50, 100))
		t.Ok(err, "LOCKT by another owner of the client")
		if conflict == nil {
			t.Fatalf("LOCKT by another owner of the client finds no lock")
		}
	}},
	Case{"splits", "RFC 7530 §16.12, RFC 8881 §18.12", All, func(t *T) {
		a, b := t.two()
		t.Ok(a.Lock(t, "a", wr(100, 100)), "LOCK")
		err := a.Unlock(t, "a", wr(125, 50))
		if t.status(err, "LOCKU") == proto.ErrLockRange {
			t.Skipf("locks can't be split, as the server may decide")
		}
		t.Ok(err, "LOCKU")
		t.free(t.Client(), b.FH(), map[client.Range]bool{
			wr(0, 100): true, wr(100, 25): false, wr(124, 1): false, wr(125, 50): true, wr(175, 1): false, wr(199, 1): false, wr(200, toEnd): true,
		})
	}},
	Case{"merges", "RFC 7530 §16.10, RFC 8881 §18.10", All, func(t *T) {
		a, b := t.two()
		t.Ok(a.Lock(t, "a", wr(25, 75)), "LOCK")
		t.Ok(a.Lock(t, "a", wr(50, 75)), "LOCK of what overlaps")
		conflict, err := t.Client().TestLock(t, b.FH(), "b", wr(0, toEnd))
		t.Ok(err, "LOCKT")
		if conflict == nil {
			t.Fatalf("LOCKT finds no lock")
		}
		t.free(t.Client(), b.FH(), map[client.Range]bool{wr(0, 25): true, wr(25, 1): false, wr(124, 1): false, wr(125, 1): true})
		t.Ok(a.Unlock(t, "a", wr(25, 100)), "LOCKU of both")
		t.free(t.Client(), b.FH(), map[client.Range]bool{wr(0, toEnd): true})
	}},
	Case{"upgrade-and-downgrade", "RFC 7530 §9.3, RFC 8881 §9.3", All, func(t *T) {
		a, b := t.two()
		t.Ok(a.Lock(t, "a", rd(0, 100)), "LOCK")
		t.free(t.Client(), b.FH(), map[client.Range]bool{rd(0, 100): true, wr(0, 100): false})
		err := a.Lock(t, "a", wr(20, 20))
		if t.status(err, "LOCK") == proto.ErrLockNotsupp {
			t.Skipf("locks can't be upgraded")
		}
		t.Ok(err, "LOCK that upgrades the middle")
		t.free(t.Client(), b.FH(), map[client.Range]bool{rd(0, 20): true, rd(20, 20): false, rd(40, 60): true})
		t.Ok(a.Lock(t, "a", rd(20, 20)), "LOCK that downgrades it")
		t.free(t.Client(), b.FH(), map[client.Range]bool{rd(0, 100): true, wr(0, 20): false, wr(39, 1): false})
	}},
	Case{"upgrade-that-conflicts", "RFC 7530 §9.3, RFC 8881 §9.3", All, func(t *T) {
		a, b := t.two()
		t.Ok(a.Lock(t, "a", rd(0, 10)), "LOCK")
		t.Ok(b.Lock(t, "b", rd(0, 10)), "LOCK")
		t.Is(a.Lock(t, "a", wr(0, 10)), "LOCK that upgrades", proto.ErrDenied)
		t.free(t.Client(), b.FH(), map[client.Range]bool{rd(0, 10): true, wr(0, 10): false})
	}},
	Case{"64-bit-ranges", "RFC 7530 §16.10, RFC 8881 §18.10", All, func(t *T) {
		a, b := t.two()
		t.Ok(a.Lock(t, "a", wr(1<<40, 1<<40)), "LOCK")
		t.free(t.Client(), b.FH(), map[client.Range]bool{wr(0, 1<<40): true, wr(1<<40, 1): false, wr(1<<41-1, 1): false, wr(1<<41, 1): true})
		t.Ok(a.Lock(t, "a", wr(1<<63, toEnd)), "LOCK to the end")
		t.free(t.Client(), b.FH(), map[client.Range]bool{wr(1<<62, 1): true, wr(1<<63, 1): false, wr(toEnd-1, 1): false})
	}},
	Case{"bad-ranges", "RFC 7530 §16.10, RFC 8881 §18.10", All, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		for _, l := range []client.Range{wr(5, 0), wr(100, toEnd-1), wr(toEnd, 2)} {
			what := fmt.Sprintf(" at %d for %d", l.Offset, l.Length)
			t.Is(f.Lock(t, "a", l), "LOCK"+what, proto.ErrInval)
			_, err := c.TestLock(t, f.FH(), "a", l)
			t.Is(err, "LOCKT"+what, proto.ErrInval)
		}
		t.Ok(f.Lock(t, "a", wr(0, 10)), "LOCK")
		t.Is(f.Unlock(t, "a", wr(5, 0)), "LOCKU of nothing", proto.ErrInval)
		t.Is(f.Unlock(t, "a", wr(100, toEnd-1)), "LOCKU past 2^64", proto.ErrInval)
	}},
	Case{"write-lock-of-an-open-for-reading", "RFC 7530 §16.10, RFC 8881 §18.10", All, func(t *T) {
		c := t.Client()
		t.Create(c, "x", "")
		f := t.Open(c, "x", client.OpenHow{Access: proto.ShareAccessRead})
		t.Is(f.Lock(t, "a", wr(0, 1)), "LOCK for writing", proto.ErrOpenmode, proto.OK)
		t.Ok(f.Lock(t, "b", rd(10, 1)), "LOCK for reading")
	}},
	Case{"stateid-moves-on", "RFC 7530 §9.1.4.2, RFC 8881 §8.2.2", All, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		t.Ok(f.Lock(t, "a", wr(0, 10)), "LOCK")
		one, _ := f.LockStateid("a")
		t.Ok(f.Lock(t, "a", wr(20, 10)), "LOCK")
		two, _ := f.LockStateid("a")
		Equal(t, "other", two.Other, one.Other)
		Equal(t, "seqid", two.Seqid, one.Seqid+1)
		t.Ok(f.Unlock(t, "a", wr(0, 100)), "LOCKU")
		three, _ := f.LockStateid("a")
		Equal(t, "seqid", three.Seqid, one.Seqid+2)
		if one.Other == f.Stateid().Other {
			t.Fatalf("the lock has the stateid of the open")
		}
		_, st := t.readWith(c, f.FH(), three)
		Equal(t, "READ with the lock's stateid", st, proto.OK)
	}},
	Case{"what-is-no-file", "RFC 7530 §16.11, RFC 8881 §18.11", All, func(t *T) {
		c := t.Client()
		_, err := c.TestLock(t, t.Dir, "a", rd(0, 1))
		t.Is(err, "LOCKT of a directory", proto.ErrIsdir)
		fh, err := c.Mknod(t, t.Dir, "fifo", proto.TypeFIFO, 0o666, 0, 0)
		t.Ok(err, "CREATE")
		want := []proto.Status{proto.ErrInval}
		if t.Minor() > 0 {
			want = append(want, proto.ErrWrongType)
		}
		_, err = c.TestLock(t, fh, "a", rd(0, 1))
		t.Is(err, "LOCKT of a FIFO", want...)
	}},
	Case{"bad-stateids", "RFC 7530 §16.10, RFC 8881 §18.10", All, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		l := wr(0, 1)
		want := []proto.Status{proto.ErrBadStateid}
		if t.Minor() == 0 {
			want = append(want, proto.ErrStaleStateid)
		}
		for _, s := range []client.Stateid{{}, bypass, made()} {
			t.Want(c, "LOCK of a new owner", compound().PutFH(f.FH()).LockSeq(c.ID(), &l, 3, s, nil, 1, []byte("o"), false), want...)
			t.Want(c, "LOCK of an owner there is", compound().PutFH(f.FH()).LockSeq(c.ID(), &l, 0, client.Stateid{}, &s, 1, nil, false), want...)
			t.Want(c, "LOCKU", compound().PutFH(f.FH()).UnlockSeq(&l, 1, s), want...)
		}
		s := f.Stateid()
		t.Want(c, "LOCKU with the open's stateid", compound().PutFH(f.FH()).UnlockSeq(&l, 3, s), proto.ErrBadStateid)
	}},
	Case{"gone-with-the-client", "RFC 7530 §16.34, RFC 8881 §18.36.4", All, func(t *T) {
		owner := []byte("conformance " + t.env.name + t.name)
		restart := func(v uint64) *client.Client {
			return t.ClientAs(func(o *client.Options) { o.Owner, o.Verifier = owner, v })
		}
		a := restart(1)
		t.Create(a, "x", "")
		f := t.Open(a, "x", client.OpenHow{Access: proto.ShareAccessBoth})
		t.Ok(f.Lock(t, "a", wr(0, toEnd)), "LOCK")
		b := t.Client()
		t.free(b, f.FH(), map[client.Range]bool{wr(0, 1): false})
		t.Kill(a)
		restart(2)
		t.free(b, f.FH(), map[client.Range]bool{wr(0, toEnd): true})
	}},
	Case{"reclaim-of-nothing", "RFC 7530 §16.10, RFC 8881 §18.10", All, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		l := wr(0, 1)
		t.Want(c, "LOCK that reclaims", compound().PutFH(f.FH()).LockSeq(c.ID(), &l, 3, f.Stateid(), nil, 1, []byte("o"), true),
			proto.ErrNoGrace, proto.ErrReclaimBad)
	}},
	Case{"waits-are-refused-at-once", "RFC 7530 §9.4, RFC 8881 §9.6", All, func(t *T) {
		a, b := t.two()
		t.Ok(a.Lock(t, "a", wr(0, 10)), "LOCK")
		l := client.Range{Type: proto.WritewLt, Offset: 0, Length: 10}
		t.Is(b.Lock(t, "b", l), "LOCK that would wait", proto.ErrDenied)
		t.Ok(a.Unlock(t, "a", wr(0, 10)), "LOCKU")
		t.Ok(b.Lock(t, "b", l), "LOCK afterwards")
	}},
)

// readWith does one READ and returns its status.
func (t *T) readWith(c *client.Client, fh client.FH, s client.Stateid) (string, proto.Status) {
	r := t.Do(c, compound().PutFH(fh).Read(s, 0, 10))
	defer r.Release()
	return "", r.Status
}
