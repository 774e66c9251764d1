package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// An owner is an open-owner or lock-owner of NFSv4.0: its requests are
// numbered (RFC 7530 §9.1.7), and there is one under way at a time.
type owner struct {
	mu  sync.Mutex
	seq uint32 // of the next request
}

// advances reports whether a request that was answered so has used its
// sequence number up (RFC 7530 §9.1.7).
func advances(st proto.Status) bool {
	switch st {
	case proto.ErrStaleClientid, proto.ErrStaleStateid, proto.ErrBadStateid, proto.ErrBadSeqid,
		proto.ErrBadxdr, proto.ErrResource, proto.ErrNofilehandle, proto.ErrMoved:
		return false
	}
	return true
}

// SeqAdvances reports whether a request of an NFSv4.0 owner that was answered so
// has used its sequence number up.
func SeqAdvances(st proto.Status) bool { return advances(st) }

// owner40 returns the owner of a kind, "open" or "lock", and a name.
func (c *Client) owner40(kind string, name []byte) *owner {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owners == nil {
		c.owners = make(map[string]*owner)
	}
	k := kind + "\x00" + string(name)
	o := c.owners[k]
	if o == nil {
		o = &owner{seq: 1}
		c.owners[k] = o
	}
	return o
}

// establish40 makes a client id: SETCLIENTID and SETCLIENTID_CONFIRM (RFC 7530 §16.33).
func (c *Client) establish40(ctx context.Context) error {
	ops := NewCompound().Setclientid(c.opt.Verifier, c.opt.Owner, c.opt.CallbackAddr)
	r, err := c.do40(ctx, ops)
	if err != nil {
		return err
	}
	d, err := r.OK(proto.OpSetclientid)
	if err != nil {
		r.Release()
		return err
	}
	id, verifier := d.Uint64(), d.Uint64()
	err = d.Err()
	r.Release()
	if err != nil {
		return err
	}
	r, err = c.do40(ctx, NewCompound().SetclientidConfirm(id, verifier))
	if err != nil {
		return err
	}
	defer r.Release()
	if _, err := r.OK(proto.OpSetclientidConfirm); err != nil {
		return err
	}
	c.mu.Lock()
	c.id = clientID{id: id}
	c.mu.Unlock()
	return nil
}

// do40 sends a compound of NFSv4.0, again with the same number after a lost
// connection, and with a new one, unless an owner's sequence has moved on with
// it, when it was answered DELAY or GRACE.
func (c *Client) do40(ctx context.Context, ops *Compound) (*Results, error) {
	for b := (backoff{}); ; {
		xid := c.xid.Add(1)
		var r *Results
		for {
			var err error
			if r, err = c.SendXID(ctx, int(xid)%len(c.conns), xid, ops); err == nil {
				break
			}
			if !lost(err) {
				return nil, err
			}
			c.stats.retries.Add(1)
			if werr := b.wait(ctx); werr != nil {
				return nil, err
			}
		}
		if c.opt.NoRetry || ops.sequenced || r.Status != proto.ErrDelay && r.Status != proto.ErrGrace {
			return r, nil
		}
		r.Release()
		c.stats.retries.Add(1)
		if err := b.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// SendXID sends a compound of NFSv4.0 once, over connection i, under a number of the
// caller's: the same number again is a retransmission.
func (c *Client) SendXID(ctx context.Context, i int, xid uint32, ops *Compound) (*Results, error) {
	cn, err := c.conns[i].get(ctx)
	if err != nil {
		return nil, err
	}
	reply, err := cn.Call(ctx, &oncrpc.Request{
		Program: proto.Program, Version: proto.Version, Procedure: proto.ProcCompound,
		Cred: c.cred, XID: xid,
		Encode: func(e *xdr.Encoder) { ops.appendTo(e, 0, nil) },
	})
	if err != nil {
		return nil, err
	}
	return parse(reply)
}

// samePort connects over TCP from the port that the connection before had, if that is
// still free: servers tell retransmissions by it, as they do for Linux.
func samePort(ctx context.Context, addr string, before net.Addr) (net.Conn, error) {
	d := net.Dialer{LocalAddr: before, Control: func(_, _ string, rc syscall.RawConn) error {
		var err error
		if cerr := rc.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		}); cerr != nil {
			return cerr
		}
		return err
	}}
	// Another program of this machine may have the port for a moment.
	for end := time.Now().Add(portWait); ; time.Sleep(10 * time.Millisecond) {
		nc, err := d.DialContext(ctx, "tcp", addr)
		switch {
		case err == nil || before == nil || ctx.Err() != nil:
			return nc, err
		case time.Now().Before(end) && (errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EADDRNOTAVAIL)):
			continue
		}
		var any net.Dialer
		return any.DialContext(ctx, "tcp", addr)
	}
}

// portWait is how long a port that is taken is waited for.
const portWait = 2 * time.Second

// Renew renews the lease of an NFSv4.0 client (RFC 7530 §16.29).
func (c *Client) Renew(ctx context.Context) error {
	return c.one(ctx, NewCompound().Renew(c.ID()), nil, proto.OpRenew)
}

// numbered sends a request of an owner until it is answered with something else
// than DELAY or GRACE: make builds it for a sequence number, and take takes its results.
func (c *Client) numbered(ctx context.Context, o *owner, make func(seq uint32) *Compound, take func(*Results) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for b := (backoff{}); ; {
		r, err := c.do40(ctx, make(o.seq))
		if err != nil {
			return err
		}
		if advances(r.Status) {
			o.seq++
		}
		if c.opt.NoRetry || r.Status != proto.ErrDelay && r.Status != proto.ErrGrace {
			err = take(r)
			if derr := r.reply.Results.Err(); err == nil && derr != nil {
				err = fmt.Errorf("nfs: malformed results: %w", derr)
			}
			r.Release()
			return err
		}
		r.Release()
		c.stats.retries.Add(1)
		if err := b.wait(ctx); err != nil {
			return err
		}
	}
}

// open40 opens as open does, and confirms the owner if the server wants that.
func (c *Client) open40(ctx context.Context, at FH, name string, f *File, a *Attrs) error {
	o := c.owner40("open", f.how.Owner)
	var flags uint32
	err := c.numbered(ctx, o, func(seq uint32) *Compound {
		how := f.how
		how.Seqid = seq
		return NewCompound().PutFH(at).Open(c.ID(), name, &how).Plain(proto.OpGetfh).Getattr(StatAttrs...)
	}, func(r *Results) (err error) {
		d, err := r.OK(proto.OpPutfh, proto.OpOpen)
		if err != nil {
			return err
		}
		if f.state, flags, err = getOpenFlags(d); err != nil {
			return err
		}
		if d, err = r.OK(proto.OpGetfh); err != nil {
			return err
		}
		f.fh = getFH(d)
		if d, err = r.OK(proto.OpGetattr); err != nil {
			return err
		}
		return getAttrs(d, a)
	})
	if err != nil || flags&proto.OpenResultConfirm == 0 {
		return err
	}
	return c.numbered(ctx, o, func(seq uint32) *Compound {
		return NewCompound().PutFH(f.fh).OpenConfirm(f.state, seq)
	}, func(r *Results) error {
		d, err := r.OK(proto.OpPutfh, proto.OpOpenConfirm)
		if err != nil {
			return err
		}
		f.state = getStateid(d)
		return nil
	})
}

// close40 closes the file.
func (f *File) close40(ctx context.Context) error {
	return f.c.numbered(ctx, f.c.owner40("open", f.how.Owner), func(seq uint32) *Compound {
		return NewCompound().PutFH(f.fh).CloseSeq(seq, f.Stateid())
	}, func(r *Results) error {
		_, err := r.OK(proto.OpPutfh, proto.OpClose)
		return err
	})
}

// lock40 locks a range for an owner: the first lock of an owner in a file is
// numbered by the open-owner too.
func (f *File) lock40(ctx context.Context, name string, l Range) (s Stateid, err error) {
	take := func(r *Results) (err error) {
		s, err = lockResult(r)
		return err
	}
	lo := f.c.owner40("lock", []byte(name))
	if held := f.lockStateid(name); held != nil {
		err = f.c.numbered(ctx, lo, func(seq uint32) *Compound {
			return NewCompound().PutFH(f.fh).LockSeq(f.c.ID(), &l, 0, Stateid{}, held, seq, nil, false)
		}, take)
		return s, err
	}
	lo.mu.Lock()
	defer lo.mu.Unlock()
	err = f.c.numbered(ctx, f.c.owner40("open", f.how.Owner), func(seq uint32) *Compound {
		return NewCompound().PutFH(f.fh).LockSeq(f.c.ID(), &l, seq, f.Stateid(), nil, lo.seq, []byte(name), false)
	}, func(r *Results) error {
		if advances(r.Status) {
			lo.seq++
		}
		return take(r)
	})
	return s, err
}

// unlock40 unlocks a range for an owner.
func (f *File) unlock40(ctx context.Context, name string, l Range, held Stateid) (s Stateid, err error) {
	err = f.c.numbered(ctx, f.c.owner40("lock", []byte(name)), func(seq uint32) *Compound {
		return NewCompound().PutFH(f.fh).UnlockSeq(&l, seq, held)
	}, func(r *Results) error {
		d, err := r.OK(proto.OpPutfh, proto.OpLocku)
		if err == nil {
			s = getStateid(d)
		}
		return err
	})
	return s, err
}

// Downgrade reduces what an open-owner has open (OPEN_DOWNGRADE), in any minor version.
func (c *Client) Downgrade(ctx context.Context, f *File, owner []byte, access, deny uint32) error {
	take := func(r *Results) error {
		d, err := r.OK(proto.OpPutfh, proto.OpOpenDowngrade)
		if err != nil {
			return err
		}
		s := getStateid(d)
		f.mu.Lock()
		f.state = s
		f.how.Access, f.how.Deny = access, deny
		f.mu.Unlock()
		return nil
	}
	make := func(seq uint32) *Compound {
		return NewCompound().PutFH(f.fh).OpenDowngrade(f.Stateid(), seq, access, deny)
	}
	if c.opt.V40 {
		return c.numbered(ctx, c.owner40("open", owner), make, take)
	}
	return c.run(ctx, make(0), take)
}

// LockStateid returns the stateid of an owner's locks of the file, if it has any.
func (f *File) LockStateid(owner string) (Stateid, bool) {
	s := f.lockStateid(owner)
	if s == nil {
		return Stateid{}, false
	}
	return *s, true
}

// SamePort reports whether connection i is from the port that the one before it had.
func (c *Client) SamePort(i int) bool {
	l := c.conns[i]
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.same
}
