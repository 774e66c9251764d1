package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// A Range is a range of bytes to be locked.
type Range struct {
	Type   uint32 // proto.ReadLt or WriteLt
	Offset uint64
	Length uint64 // ^0: to the end, wherever that is
}

// A Denied is the error of a lock that conflicts with another.
type Denied struct {
	Range
	Client uint64
	Owner  []byte
}

// Error describes the lock that is in the way.
func (d *Denied) Error() string {
	return fmt.Sprintf("nfs: locked by %q: type %d at %d for %d", d.Owner, d.Type, d.Offset, d.Length)
}

// Unwrap returns NFS4ERR_DENIED.
func (d *Denied) Unwrap() error { return proto.ErrDenied }

func getDenied(d *xdr.Decoder) error {
	e := &Denied{}
	e.Offset, e.Length, e.Type = d.Uint64(), d.Uint64(), d.Uint32()
	e.Client = d.Uint64()
	e.Owner = append([]byte(nil), d.Opaque(proto.OpaqueLimit)...)
	if d.Err() != nil {
		return d.Err()
	}
	return e
}

// A lockState is what a lock owner has locked in a file.
type lockState struct {
	state Stateid
	held  []Range // as asked for; unlocking removes those that it covers
}

// Lock locks a range for an owner, without waiting: the error is a *Denied if
// another has it.
func (f *File) Lock(ctx context.Context, owner string, l Range) error {
	if f.c.opt.V40 {
		s, err := f.lock40(ctx, owner, l)
		if err == nil {
			f.locked(owner, s, l)
		}
		return err
	}
	return f.with(func(open Stateid) error {
		lock := f.lockStateid(owner)
		ops := NewCompound().PutFH(f.fh).Lock(f.c.ID(), &l, open, lock, []byte(owner), false)
		return f.c.run(ctx, ops, func(r *Results) error {
			s, err := lockResult(r)
			if err == nil {
				f.locked(owner, s, l)
			}
			return err
		})
	})
}

// pollLock is how often who waits for a lock asks, if he is not told.
const pollLock = 10 * time.Second

// LockWait is Lock, but waits for the lock until ctx ends, as fcntl(F_SETLKW) does: it
// asks when the server says that the lock may be free, and now and then.
func (f *File) LockWait(ctx context.Context, owner string, l Range) error {
	want := l
	switch l.Type {
	case proto.ReadLt:
		want.Type = proto.ReadwLt
	case proto.WriteLt:
		want.Type = proto.WritewLt
	}
	told, done := f.c.cb.wait(f.fh, owner)
	defer done()
	t := time.NewTicker(pollLock)
	defer t.Stop()
	for {
		if err := f.Lock(ctx, owner, want); !errors.Is(err, proto.ErrDenied) {
			return err
		}
		select {
		case <-told:
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// locked remembers a lock that was granted.
func (f *File) locked(owner string, s Stateid, l Range) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ls := f.locks[owner]
	if ls == nil {
		ls = &lockState{}
		f.locks[owner] = ls
	}
	ls.state = s
	ls.held = append(ls.held, l)
}

// lockStateid returns the lock stateid of an owner, or nil if it has none yet.
func (f *File) lockStateid(owner string) *Stateid {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ls := f.locks[owner]; ls != nil {
		return Ptr(ls.state)
	}
	return nil
}

// lockResult takes the results of PUTFH and LOCK.
func lockResult(r *Results) (Stateid, error) {
	if _, err := r.OK(proto.OpPutfh); err != nil {
		return Stateid{}, err
	}
	d, status, err := r.Next(proto.OpLock)
	switch {
	case err != nil:
		return Stateid{}, err
	case status == proto.ErrDenied:
		return Stateid{}, getDenied(d)
	case status != proto.OK:
		return Stateid{}, &OpError{Op: proto.OpLock, Status: status}
	}
	return getStateid(d), nil
}

// Unlock unlocks a range for an owner that has locked something in the file.
func (f *File) Unlock(ctx context.Context, owner string, l Range) error {
	return f.with(func(Stateid) error {
		lock := f.lockStateid(owner)
		if lock == nil {
			return fmt.Errorf("nfs: %q has locked nothing", owner)
		}
		if f.c.opt.V40 {
			s, err := f.unlock40(ctx, owner, l, *lock)
			if err == nil {
				f.released(owner, s, l)
			}
			return err
		}
		ops := NewCompound().PutFH(f.fh).Unlock(&l, *lock)
		return f.c.one(ctx, ops, func(d *xdr.Decoder) error {
			f.released(owner, getStateid(d), l)
			return nil
		}, proto.OpPutfh, proto.OpLocku)
	})
}

// released remembers that a range was unlocked.
func (f *File) released(owner string, s Stateid, l Range) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ls := f.locks[owner]; ls != nil {
		ls.state = s
		ls.unlocked(l)
	}
}

// unlocked drops the ranges that l covers.
func (ls *lockState) unlocked(l Range) {
	ls.held = slices.DeleteFunc(ls.held, func(h Range) bool {
		return h.Offset >= l.Offset && (l.Length == ^uint64(0) ||
			h.Offset-l.Offset <= l.Length && h.Length <= l.Length-(h.Offset-l.Offset))
	})
}

// TestLock returns a lock that is in the way of another, or nil.
func (c *Client) TestLock(ctx context.Context, fh FH, owner string, l Range) (conflict *Denied, err error) {
	ops := NewCompound().PutFH(fh).TestLock(c.ID(), &l, []byte(owner))
	err = c.run(ctx, ops, func(r *Results) error {
		if _, err := r.OK(proto.OpPutfh); err != nil {
			return err
		}
		d, status, err := r.Next(proto.OpLockt)
		switch {
		case err != nil:
			return err
		case status == proto.ErrDenied:
			if err := getDenied(d); !errors.As(err, &conflict) {
				return err
			}
		case status != proto.OK:
			return &OpError{Op: proto.OpLockt, Status: status}
		}
		return nil
	})
	return conflict, err
}

// reclaim reclaims all open files and their locks in session s, after the
// server has lost them (RFC 8881 §8.4.2). A file that is gone is forgotten.
func (c *Client) reclaim(ctx context.Context, s *session) error {
	c.mu.Lock()
	files := make([]*File, 0, len(c.files))
	for f := range c.files {
		files = append(files, f)
	}
	c.mu.Unlock()
	for _, f := range files {
		err := f.reclaim(ctx, s)
		switch {
		case err == nil:
		case errors.Is(err, proto.ErrStale), errors.Is(err, proto.ErrNoGrace),
			errors.Is(err, proto.ErrReclaimBad), errors.Is(err, proto.ErrReclaimConflict):
			f.forget() // the next use of it says BAD_STATEID
		default:
			return err
		}
	}
	return nil
}

// reclaim reclaims one file and its locks.
func (f *File) reclaim(ctx context.Context, s *session) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	how := OpenHow{Access: f.how.Access, Deny: f.how.Deny, Owner: f.how.Owner, Claim: proto.ClaimPrevious}
	r, err := f.c.doOn(ctx, s, NewCompound().PutFH(f.fh).Open(f.c.ID(), "", &how))
	if err != nil {
		return err
	}
	defer r.Release()
	d, err := r.OK(proto.OpPutfh, proto.OpOpen)
	if err != nil {
		return err
	}
	if f.state, err = getOpen(d); err != nil {
		return err
	}
	for owner, ls := range f.locks {
		first := true
		for i := range ls.held {
			ops := NewCompound().PutFH(f.fh)
			if first {
				ops.Lock(f.c.ID(), &ls.held[i], f.state, nil, []byte(owner), true)
			} else {
				ops.Lock(f.c.ID(), &ls.held[i], Stateid{}, &ls.state, nil, true)
			}
			lr, err := f.c.doOn(ctx, s, ops)
			if err != nil {
				return err
			}
			ls.state, err = lockResult(lr)
			lr.Release()
			if err != nil {
				return err
			}
			first = false
		}
		if first {
			delete(f.locks, owner)
		}
	}
	return nil
}
