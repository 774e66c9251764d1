package client

import (
	"context"
	"fmt"
	"strings"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// A ChangeInfo is a change_info4: a directory's change attribute around an operation.
type ChangeInfo struct {
	Atomic        bool
	Before, After uint64
}

func getChangeInfo(d *xdr.Decoder) ChangeInfo {
	return ChangeInfo{Atomic: d.Bool(), Before: d.Uint64(), After: d.Uint64()}
}

// run sends ops and hands the results to get.
func (c *Client) run(ctx context.Context, ops *Compound, get func(*Results) error) error {
	r, err := c.Do(ctx, ops)
	if err != nil {
		return err
	}
	defer r.Release()
	if err := get(r); err != nil {
		return err
	}
	if err := r.reply.Results.Err(); err != nil {
		return fmt.Errorf("nfs: malformed results: %w", err)
	}
	return nil
}

// one sends ops, checks that the operations done succeeded, of which only the
// last one's result has more than a status, and hands the decoder at that to
// get, which may be nil.
func (c *Client) one(ctx context.Context, ops *Compound, get func(*xdr.Decoder) error, done ...proto.Op) error {
	return c.run(ctx, ops, func(r *Results) error {
		d, err := r.OK(done...)
		if err != nil || get == nil {
			return err
		}
		return get(d)
	})
}

// Root returns the server's root.
func (c *Client) Root(ctx context.Context) (fh FH, err error) {
	err = c.one(ctx, NewCompound().Plain(proto.OpPutrootfh, proto.OpGetfh), func(d *xdr.Decoder) error {
		fh = getFH(d)
		return nil
	}, proto.OpPutrootfh, proto.OpGetfh)
	return fh, err
}

// walkStep is how many names go into one compound.
const walkStep = 5

// Walk returns the handle of a path from the root, such as "main/dir/file".
// Symbolic links are not followed.
func (c *Client) Walk(ctx context.Context, path string) (FH, error) {
	fh, err := c.Root(ctx)
	names := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	for err == nil && len(names) > 0 {
		n := min(len(names), walkStep)
		ops := NewCompound().PutFH(fh)
		done := []proto.Op{proto.OpPutfh}
		for _, name := range names[:n] {
			ops.Lookup(name)
			done = append(done, proto.OpLookup)
		}
		ops.Plain(proto.OpGetfh)
		names = names[n:]
		err = c.one(ctx, ops, func(d *xdr.Decoder) error {
			fh = getFH(d)
			return nil
		}, append(done, proto.OpGetfh)...)
	}
	if err != nil {
		return nil, err
	}
	return fh, nil
}

// Lookup returns the handle and attributes of a name.
func (c *Client) Lookup(ctx context.Context, dir FH, name string) (fh FH, a Attrs, err error) {
	ops := NewCompound().PutFH(dir).Lookup(name).Plain(proto.OpGetfh).Getattr(StatAttrs...)
	err = c.run(ctx, ops, func(r *Results) error {
		d, err := r.OK(proto.OpPutfh, proto.OpLookup, proto.OpGetfh)
		if err != nil {
			return err
		}
		fh = getFH(d)
		if d, err = r.OK(proto.OpGetattr); err != nil {
			return err
		}
		return getAttrs(d, &a)
	})
	return fh, a, err
}

// Getattr returns attributes, by default StatAttrs.
func (c *Client) Getattr(ctx context.Context, fh FH, attrs ...int) (a Attrs, err error) {
	if len(attrs) == 0 {
		attrs = StatAttrs
	}
	err = c.one(ctx, NewCompound().PutFH(fh).Getattr(attrs...), func(d *xdr.Decoder) error {
		return getAttrs(d, &a)
	}, proto.OpPutfh, proto.OpGetattr)
	return a, err
}

// Setattr sets attributes under a stateid, the zero one for what needs no open file.
func (c *Client) Setattr(ctx context.Context, fh FH, s Stateid, set *SetAttr) error {
	return c.one(ctx, NewCompound().PutFH(fh).Setattr(s, set), func(d *xdr.Decoder) error {
		getBitmap(d)
		return nil
	}, proto.OpPutfh, proto.OpSetattr)
}

// Access returns which of the rights that the server knows are granted.
func (c *Client) Access(ctx context.Context, fh FH, rights uint32) (supported, granted uint32, err error) {
	err = c.one(ctx, NewCompound().PutFH(fh).Access(rights), func(d *xdr.Decoder) error {
		supported, granted = d.Uint32(), d.Uint32()
		return nil
	}, proto.OpPutfh, proto.OpAccess)
	return supported, granted, err
}

// create sends ops, which end with CREATE, and returns what that made.
func (c *Client) create(ctx context.Context, ops *Compound) (fh FH, err error) {
	err = c.run(ctx, ops.Plain(proto.OpGetfh), func(r *Results) error {
		d, err := r.OK(proto.OpPutfh, proto.OpCreate)
		if err != nil {
			return err
		}
		getChangeInfo(d)
		getBitmap(d)
		if d, err = r.OK(proto.OpGetfh); err != nil {
			return err
		}
		fh = getFH(d)
		return nil
	})
	return fh, err
}

// Mkdir makes a directory.
func (c *Client) Mkdir(ctx context.Context, dir FH, name string, mode uint32) (FH, error) {
	return c.create(ctx, NewCompound().PutFH(dir).Create(name, proto.TypeDir, "", 0, 0, &SetAttr{Mode: &mode}))
}

// Symlink makes a symbolic link.
func (c *Client) Symlink(ctx context.Context, dir FH, name, target string) (FH, error) {
	return c.create(ctx, NewCompound().PutFH(dir).Create(name, proto.TypeLnk, target, 0, 0, &SetAttr{Mode: Ptr(uint32(0o777))}))
}

// Mknod makes a FIFO, socket or device.
func (c *Client) Mknod(ctx context.Context, dir FH, name string, kind, mode, major, minor uint32) (FH, error) {
	return c.create(ctx, NewCompound().PutFH(dir).Create(name, kind, "", major, minor, &SetAttr{Mode: &mode}))
}

// Readlink returns a symbolic link's target.
func (c *Client) Readlink(ctx context.Context, fh FH) (target string, err error) {
	err = c.one(ctx, NewCompound().PutFH(fh).Plain(proto.OpReadlink), func(d *xdr.Decoder) error {
		target = d.String(1 << 16)
		return nil
	}, proto.OpPutfh, proto.OpReadlink)
	return target, err
}

// Remove removes a name.
func (c *Client) Remove(ctx context.Context, dir FH, name string) (ci ChangeInfo, err error) {
	err = c.one(ctx, NewCompound().PutFH(dir).Remove(name), func(d *xdr.Decoder) error {
		ci = getChangeInfo(d)
		return nil
	}, proto.OpPutfh, proto.OpRemove)
	return ci, err
}

// Rename renames.
func (c *Client) Rename(ctx context.Context, from FH, name string, to FH, newName string) (source, target ChangeInfo, err error) {
	ops := NewCompound().PutFH(from).Plain(proto.OpSavefh).PutFH(to).Rename(name, newName)
	err = c.one(ctx, ops, func(d *xdr.Decoder) error {
		source, target = getChangeInfo(d), getChangeInfo(d)
		return nil
	}, proto.OpPutfh, proto.OpSavefh, proto.OpPutfh, proto.OpRename)
	return source, target, err
}

// Link makes dir/name a hard link to fh.
func (c *Client) Link(ctx context.Context, fh, dir FH, name string) (ci ChangeInfo, err error) {
	ops := NewCompound().PutFH(fh).Plain(proto.OpSavefh).PutFH(dir).Link(name)
	err = c.one(ctx, ops, func(d *xdr.Decoder) error {
		ci = getChangeInfo(d)
		return nil
	}, proto.OpPutfh, proto.OpSavefh, proto.OpPutfh, proto.OpLink)
	return ci, err
}

// A Dirent is an entry of a directory.
type Dirent struct {
	Cookie uint64
	Name   string
	Attrs  Attrs
}

// Readdir returns the entries after a cookie that go into one reply of at most
// maxCount bytes, the verifier to go on with, and whether there are no more.
func (c *Client) Readdir(ctx context.Context, dir FH, cookie, verifier uint64, maxCount int, attrs ...int) (all []Dirent, next uint64, eof bool, err error) {
	ops := NewCompound().PutFH(dir).Readdir(cookie, verifier, maxCount, attrs...)
	err = c.one(ctx, ops, func(d *xdr.Decoder) error {
		next = d.Uint64()
		for d.Bool() {
			e := Dirent{Cookie: d.Uint64(), Name: d.String(1 << 16)}
			if err := getAttrs(d, &e.Attrs); err != nil {
				return err
			}
			all = append(all, e)
		}
		eof = d.Bool()
		return nil
	}, proto.OpPutfh, proto.OpReaddir)
	return all, next, eof, err
}

// ReadAllDir returns all entries of a directory.
func (c *Client) ReadAllDir(ctx context.Context, dir FH, attrs ...int) ([]Dirent, error) {
	var all []Dirent
	var cookie, verifier uint64
	for {
		part, next, eof, err := c.Readdir(ctx, dir, cookie, verifier, 64<<10, attrs...)
		if err != nil {
			return nil, err
		}
		all = append(all, part...)
		if eof {
			return all, nil
		}
		if len(part) == 0 {
			return nil, fmt.Errorf("nfs: READDIR returns neither an entry nor the end")
		}
		cookie, verifier = part[len(part)-1].Cookie, next
	}
}

// Getxattr returns an extended attribute's value.
func (c *Client) Getxattr(ctx context.Context, fh FH, name string) (value []byte, err error) {
	ops := NewCompound().PutFH(fh)
	ops.Op(proto.OpGetxattr).String(name)
	err = c.one(ctx, ops, func(d *xdr.Decoder) error {
		value = append([]byte{}, d.Opaque(1<<20)...)
		return nil
	}, proto.OpPutfh, proto.OpGetxattr)
	return value, err
}

// Setxattr sets an extended attribute; how is proto.Setxattr….
func (c *Client) Setxattr(ctx context.Context, fh FH, name string, value []byte, how uint32) error {
	ops := NewCompound().PutFH(fh).Cached(true)
	e := ops.Op(proto.OpSetxattr)
	e.Uint32(how)
	e.String(name)
	e.Opaque(value)
	return c.one(ctx, ops, nil, proto.OpPutfh, proto.OpSetxattr)
}

// Removexattr removes an extended attribute.
func (c *Client) Removexattr(ctx context.Context, fh FH, name string) error {
	ops := NewCompound().PutFH(fh).Cached(true)
	ops.Op(proto.OpRemovexattr).String(name)
	return c.one(ctx, ops, nil, proto.OpPutfh, proto.OpRemovexattr)
}

// Listxattr returns the names of the extended attributes.
func (c *Client) Listxattr(ctx context.Context, fh FH) (names []string, err error) {
	for cookie, eof := uint64(0), false; !eof && err == nil; {
		ops := NewCompound().PutFH(fh)
		e := ops.Op(proto.OpListxattrs)
		e.Uint64(cookie)
		e.Uint32(64 << 10)
		err = c.one(ctx, ops, func(d *xdr.Decoder) error {
			cookie = d.Uint64()
			for range d.Count(1<<16, 4) {
				names = append(names, d.String(1<<16))
			}
			eof = d.Bool()
			return nil
		}, proto.OpPutfh, proto.OpListxattrs)
	}
	return names, err
}
