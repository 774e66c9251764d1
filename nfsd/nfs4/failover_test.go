package nfs4

import (
	"math"
	"testing"

	"github.com/hawserfs/hawser/nfsd/proto"
)

// There is no grace period: nothing is refused because others may reclaim. What a
// client holds already, it may reclaim, and nothing else (RFC 8881 §8.4.2).
func TestReclaim(t *testing.T) {
	reg := newRegistry()
	r := newRig(t, reg.with)
	s, n := r.newSession("a"), r.mount(r.dial(), "b", 1)
	root := s.root()
	o := s.mustOpen(root, openHow{create: true, name: "f", owner: "o"})
	if _, st := s.lock(o.fh, lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "p", sid: o.sid}); st != proto.OK {
		t.Fatal(st)
	}
	// Trap 3: b has not sent RECLAIM_COMPLETE.
	theirs := n.mustOpen(root, openHow{name: "f", owner: "o"})
	for _, k := range []struct {
		name string
		s    *sess
		how  openHow
		want proto.Status
	}{
		{"what it has", s, openHow{owner: "o", access: proto.ShareAccessBoth}, proto.OK},
		{"less", s, openHow{owner: "o", access: proto.ShareAccessRead}, proto.OK},
		{"a deny mode", s, openHow{owner: "o", access: proto.ShareAccessRead, deny: proto.ShareDenyWrite}, proto.ErrNoGrace},
		{"another owner", s, openHow{owner: "x"}, proto.ErrNoGrace},
		{"another client", n, openHow{owner: "o"}, proto.OK},
	} {
		k.how.claim = proto.ClaimPrevious
		if _, st := k.s.tryOpen(o.fh, k.how); st != k.want {
			t.Errorf("%s: %v, want %v", k.name, st, k.want)
		}
	}
	for _, k := range []struct {
		name string
		s    *sess
		l    lockArgs
		want proto.Status
	}{
		{"what it has", s, lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "p"}, proto.OK},
		{"a part", s, lockArgs{kind: proto.WriteLt, off: 3, len: 2, owner: "p"}, proto.OK},
		{"more", s, lockArgs{kind: proto.WriteLt, off: 0, len: 11, owner: "p"}, proto.ErrNoGrace},
		{"all", s, lockArgs{kind: proto.ReadLt, off: 0, len: math.MaxUint64, owner: "p"}, proto.ErrNoGrace},
		{"another owner", s, lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "q"}, proto.ErrNoGrace},
		{"another client", n, lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "p"}, proto.ErrNoGrace},
	} {
		k.l.reclaim, k.l.sid = true, o.sid
		k.l.sid.Seq = 0
		if k.s == n {
			k.l.sid = theirs.sid
			k.l.sid.Seq = 0
		}
		if _, st := k.s.lock(o.fh, k.l); st != k.want {
			t.Errorf("lock of %s: %v, want %v", k.name, st, k.want)
		}
	}
	s.do(reclaimComplete()).is(proto.ErrCompleteAlready)
}
