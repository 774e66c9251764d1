package nfs4

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// The arguments of EXCHANGE_ID (RFC 8881 §18.35.1 and §18.35.3): what is refused,
// and that nothing but SP4_NONE is ever answered.
func TestExchangeIDArguments(t *testing.T) {
	none := func(e *xdr.Encoder) { e.Uint32(proto.SP4None) }
	mach := func(e *xdr.Encoder) { // a Linux client with a Kerberos ticket asks for that
		e.Uint32(proto.SP4MachCred)
		for range 2 {
			e.Uint32(2)
			e.Uint32(0)
			e.Uint32(1 << (proto.OpExchangeID - 32))
		}
	}
	ssv := func(hashes, ciphers, window uint32) op {
		return func(e *xdr.Encoder) {
			e.Uint32(proto.SP4SSV)
			e.Uint32(0)
			e.Uint32(0)
			for _, n := range []uint32{hashes, ciphers} {
				e.Uint32(n)
				for range n {
					e.String("oid")
				}
			}
			e.Uint32(window)
			e.Uint32(0)
		}
	}
	impl := func(n int) op {
		return func(e *xdr.Encoder) {
			e.Uint32(uint32(n))
			for range n {
				e.String("kernel.org")
				e.String("Linux 6.1")
				e.Int64(0)
				e.Uint32(0)
			}
		}
	}
	const usual = proto.ExchgIDFlagSuppMovedRefer | proto.ExchgIDFlagBindPrincStateid
	cases := []struct {
		name    string
		minor   uint32
		owner   string
		flags   uint32
		protect op
		impl    op
		want    proto.Status
	}{
		{"as Linux asks", 1, "a", usual, none, impl(1), proto.OK},
		{"for migration", 1, "a", usual | proto.ExchgIDFlagSuppMovedMigr, none, impl(1), proto.OK},
		{"as to a data server", 2, "a", usual | proto.ExchgIDFlagUsePNFSDS, none, impl(1), proto.OK},
		{"every role", 2, "a", proto.ExchgIDFlagMaskPNFS, none, impl(0), proto.OK},
		{"fence ops in 4.2", 2, "a", proto.ExchgIDFlagSuppFenceOps, none, impl(0), proto.OK},
		{"fence ops in 4.1", 1, "a", proto.ExchgIDFlagSuppFenceOps, none, impl(0), proto.ErrInval},
		{"CONFIRMED_R in a request", 1, "a", proto.ExchgIDFlagConfirmedR, none, impl(0), proto.ErrInval},
		{"unknown flag", 2, "a", 0x200, none, impl(0), proto.ErrInval},
		{"machine credential", 1, "a", usual, mach, impl(1), proto.OK},
		{"SSV", 1, "a", usual, ssv(1, 1, 1), impl(0), proto.ErrHashAlgUnsupp},
		{"SSV without hashes", 1, "a", usual, ssv(0, 1, 1), impl(0), proto.ErrInval},
		{"SSV without ciphers", 1, "a", usual, ssv(1, 0, 1), impl(0), proto.ErrInval},
		{"SSV without a window", 1, "a", usual, ssv(1, 1, 0), impl(0), proto.ErrInval},
		{"no such protection", 1, "a", usual, func(e *xdr.Encoder) { e.Uint32(3) }, impl(0), proto.ErrBadxdr},
		{"two implementations", 1, "a", usual, none, impl(2), proto.ErrBadxdr},
		{"largest owner", 1, strings.Repeat("x", proto.OpaqueLimit), usual, none, impl(0), proto.OK},
		{"owner too large", 1, strings.Repeat("x", proto.OpaqueLimit+1), usual, none, impl(0), proto.ErrBadxdr},
	}
	r := newRig(t, nil)
	w := r.dial()
	for _, k := range cases {
		t.Run(k.name, func(t *testing.T) {
			w.minor = k.minor
			rep := w.compound(func(e *xdr.Encoder) {
				e.Uint32(uint32(proto.OpExchangeID))
				e.Uint64(1)
				e.String(k.owner)
				e.Uint32(k.flags)
				k.protect(e)
				k.impl(e)
			})
			rep.is(k.want)
			if k.want != proto.OK {
				return
			}
			d := rep.ok(proto.OpExchangeID)
			d.Uint64()
			d.Uint32()
			if flags, how := d.Uint32(), d.Uint32(); flags != proto.ExchgIDFlagUseNonPNFS || how != proto.SP4None {
				t.Errorf("flags %#x, protection %d", flags, how)
			}
			if minor, major, scope, ids := d.Uint64(), d.String(1024), d.String(1024), d.Uint32(); minor != 0 ||
				major != "owner" || scope != "scope" || ids != 0 || d.Remaining() != 0 {
				t.Errorf("server %d %q %q %d, %d bytes left", minor, major, scope, ids, d.Remaining())
			}
		})
	}
}

// A client may send EXCHANGE_ID and CREATE_SESSION in a session it has already
// (RFC 8881 §18.35.3, §18.36.3).
func TestExchangeIDInSession(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	rep := s.do(exchangeID("a", 1, proto.ExchgIDFlagUpdConfirmedRecA), createSession(s.clientID, 2, linuxFore))
	d := rep.ok(proto.OpExchangeID)
	if id, _, flags := d.Uint64(), d.Uint32(), d.Uint32(); id != s.clientID || flags&proto.ExchgIDFlagConfirmedR == 0 {
		t.Fatal(id, flags)
	}
	rep.is(proto.OK)
	if _, n, _ := r.p.state.Counts(); n != 2 {
		t.Fatalf("%d sessions", n)
	}
}

// The parameters of CREATE_SESSION that the state does not see (RFC 8881 §18.36.3).
func TestCreateSessionArguments(t *testing.T) {
	callbacks := func(flavors ...oncrpc.Flavor) op {
		return func(e *xdr.Encoder) {
			e.Uint32(uint32(len(flavors)))
			for _, f := range flavors {
				e.Uint32(uint32(f))
				switch f {
				case oncrpc.AuthSysF:
					e.Uint32(0)
					e.String("host")
					e.Uint32(0)
					e.Uint32(0)
					e.Uint32(0)
				case oncrpc.RPCSecGSS:
					e.Uint32(1)
					e.String("ours")
					e.String("theirs")
				}
			}
		}
	}
	r := newRig(t, nil)
	w := r.dial()
	for _, k := range []struct {
		name string
		ird  int
		sec  op
		want proto.Status
	}{
		{"no callbacks", 0, callbacks(), proto.OK},
		{"AUTH_NONE", 0, callbacks(oncrpc.AuthNone), proto.OK},
		{"AUTH_SYS", 0, callbacks(oncrpc.AuthSysF), proto.OK},
		{"two", 1, callbacks(oncrpc.AuthSysF, oncrpc.AuthNone), proto.OK},
		{"a context that is not there", 0, callbacks(oncrpc.RPCSecGSS), proto.ErrNoent},
		{"a context that is not there, and what can be used", 0, callbacks(oncrpc.RPCSecGSS, oncrpc.AuthSysF), proto.OK},
		{"unknown flavor", 0, callbacks(oncrpc.Flavor(2)), proto.ErrBadxdr},
		{"two queue depths", 2, callbacks(), proto.ErrBadxdr},
	} {
		t.Run(k.name, func(t *testing.T) {
			x, _ := w.exchange(k.name, 1, 0)
			w.compound(func(e *xdr.Encoder) {
				e.Uint32(uint32(proto.OpCreateSession))
				e.Uint64(x.id)
				e.Uint32(x.seq)
				e.Uint32(proto.CreateSessionFlagConnBackChan)
				for range 2 {
					e.Uint32(512) // padding that a server may do without
					for _, n := range []uint32{8192, 8192, 1024, 8, 16} {
						e.Uint32(n)
					}
					e.Uint32(uint32(k.ird))
					for range k.ird {
						e.Uint32(1)
					}
				}
				e.Uint32(proto.CBProgram)
				k.sec(e)
			}).is(k.want)
		})
	}
}

// A CREATE_SESSION that fails leaves no client on record.
func TestFailedCreateSessionIsNotRecorded(t *testing.T) {
	store := newRegistry()
	r := newRig(t, store.with)
	w := r.dial()
	x, _ := w.exchange("a", 1, 0)
	small := linuxFore
	small.size = 100
	w.compound(createSession(x.id, x.seq, small)).is(proto.ErrToosmall)
	w.compound(createSession(x.id, x.seq+7, linuxFore)).is(proto.ErrSeqMisordered)
	w.cred = user(9)
	w.compound(createSession(x.id, x.seq+1, linuxFore)).is(proto.ErrClidInuse)
	if n := store.count(); n != 0 {
		t.Fatal(n)
	}
	w.cred = user(0)
	w.compound(createSession(x.id, x.seq+1, linuxFore)).is(proto.OK)
	if n := store.count(); n != 1 {
		t.Fatal(n)
	}
}

// A syncBuffer is what was logged since it was last taken.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.buf.String()
	b.buf.Reset()
	return s
}

// Trap 30: two clients with one name are named in the log: also when both are
// root, so that they look like one that restarts again and again.
func TestSameNameIsLogged(t *testing.T) {
	var log syncBuffer
	r := newRig(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	w := r.dial()
	r.mount(w, "twin", 1)
	w.cred = user(5)
	if _, st := w.exchange("twin", 1, 0); st != proto.ErrClidInuse {
		t.Fatal(st)
	}
	if l := log.take(); !strings.Contains(l, "client=twin") || !strings.Contains(l, "nfs4_unique_id") {
		t.Errorf("a refused name is not in the log: %s", l)
	}
	w.cred = user(0)
	r.mount(w, "twin", 2)
	if l := log.take(); strings.Contains(l, "nfs4_unique_id") || !strings.Contains(l, "client has restarted") {
		t.Errorf("a restart: %s", l)
	}
	other := r.dialFrom("127.0.0.2")
	r.mount(other, "twin", 3)
	if l := log.take(); !strings.Contains(l, "nfs4_unique_id") || !strings.Contains(l, "from=127.0.0.2 before=127.0.0.1") {
		t.Errorf("from another address: %s", l)
	}
}
