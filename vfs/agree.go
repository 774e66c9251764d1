package vfs

import (
	"context"
	"errors"
	"fmt"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
)

// again makes the error of an operation that the group did not answer.
func again(doing string, err error) error {
	switch e, ok := errors.AsType[cluster.Errno](err); {
	case ok && e != cluster.EFENCED && e != cluster.ERETRY:
		return e
	}
	return fmt.Errorf("vfs: %s: %v: %w", doing, err, cluster.EAGAIN)
}

// strict makes what this node has applied good for a linearizable read by r.
func (m *mount) strict(r *Request) error {
	a := r.on(m.ID)
	if !a.strict {
		begin := int64(m.sys.cfg.Now())
		index, err := m.Group.ReadIndex(r.ctx)
		if err != nil {
			return again("agreeing on a read", err)
		}
		m.contact.Store(begin)
		a.index, a.strict, a.here = max(a.index, index), true, false
	}
	return m.wait(r.ctx, a)
}

// settleOwn makes what this node has applied good for a read that sees what
// this front-end and r itself have done.
func (m *mount) settleOwn(r *Request) error {
	a := r.on(m.ID)
	if own := m.own.Load(); own > a.index {
		a.index, a.here = own, false
	}
	return m.wait(r.ctx, a)
}

// relaxed makes what this node has applied good for a read that may be a
// little old, but not older than what this front-end or r itself has done.
func (m *mount) relaxed(r *Request) error {
	a := r.on(m.ID)
	if own := m.own.Load(); own > a.index {
		a.index, a.here = own, false
	}
	if !a.strict && (r.fresh || int64(m.sys.cfg.Now())-m.contact.Load() > int64(m.sys.cfg.Stale)) {
		return m.strict(r)
	}
	return m.wait(r.ctx, a)
}

func (m *mount) wait(ctx context.Context, a *agreed) error {
	if a.here {
		return nil
	}
	if m.Group.Applied() < a.index {
		if err := m.Group.WaitApplied(ctx, a.index); err != nil {
			return again("waiting for an index", err)
		}
	}
	a.here = true
	return nil
}

// peek returns an inode as this node has it.
func (m *mount) peek(f File) (Attr, bool) {
	a, ok := m.View.Inode(f.Ino)
	return a, ok && a.Gen == f.Gen
}

// inode returns the attributes of f as r must see them, as they are stored:
// those of a relaxed file may be a little old. ESTALE if it is gone.
func (m *mount) inode(r *Request, f File) (Attr, error) {
	a, ok := m.peek(f)
	// What is not here may have been made a moment ago.
	wait := m.strict
	if ok && a.Class.Consistency == cluster.Relaxed {
		wait = m.relaxed
	}
	if g := r.on(m.ID); g.here && (g.strict || ok && a.Class.Consistency == cluster.Relaxed && !r.fresh) {
		wait = nil
	}
	if wait != nil {
		if err := wait(r); err != nil {
			return Attr{}, err
		}
		if a, ok = m.peek(f); !ok {
			if err := m.strict(r); err != nil {
				return Attr{}, err
			}
			a, ok = m.peek(f)
		}
	}
	if !ok || a.Nlink == 0 && !m.open(&a) {
		return Attr{}, cluster.ESTALE
	}
	return a, nil
}

// open reports whether a file without a name is there for its clients still: it
// is open here, an open of it is recorded, or a front-end that is gone may have
// had it open. If not, it is about to be freed.
func (m *mount) open(a *Attr) bool {
	open := a.Type != cluster.TypeRegular || m.opens.has(a.Ino)
	if !open {
		m.View.States(a.Ino, func(st *volume.State) bool {
			open = !m.drops.has(a.Ino, st.Other)
			return !open
		})
	}
	return open || m.View.HeldOver(a.Ino)
}

// attr is inode, or what r's own last command left behind.
func (m *mount) attr(r *Request, f File) (Attr, error) {
	if a := r.remembered(m.ID, f.Ino); a != nil && a.Gen == f.Gen {
		return *a, nil
	}
	return m.inode(r, f)
}

// changeShift makes room in the change attribute for the writes held here.
const changeShift = 16

// show returns stored attributes as clients see them: with what is held here.
// h must have been got before a was read, so that what is not held any more is
// in a: otherwise the file would be seen going back.
func (m *mount) show(a Attr, h *heldFile) Attr {
	a.Change <<= changeShift
	if h != nil {
		h.overlay(&a, m.View)
	}
	return a
}

// shown returns f's attributes as r's user sees them.
func (m *mount) shown(r *Request, f File) (Attr, error) {
	h := m.held.get(f.Ino, false)
	defer m.held.put(h)
	a, err := m.attr(r, f)
	if err != nil {
		return Attr{}, err
	}
	return m.show(a, h), nil
}

// showInfo returns a change of a directory as clients see it.
func showInfo(c ChangeInfo) ChangeInfo {
	return ChangeInfo{Before: c.Before << changeShift, After: c.After << changeShift}
}

func (m *mount) file(a *Attr) File { return File{Volume: m.ID, Ino: a.Ino, Gen: a.Gen} }
