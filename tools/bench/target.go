package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
)

// dialTimeout is how long connecting to a server may take.
const dialTimeout = 10 * time.Second

// pageSize is how large a reply to READDIR may be.
const pageSize = 64 << 10

// helpers is how many operations are under way in what isn't measured.
const helpers = 16

// A target is a server under measurement: the connection to it, and what has
// been made on it.
type target struct {
	cfg     *Config
	server  Server
	content *content
	c       *client.Client
	stopped func() bool // no new work is to be begun

	parent client.FH // the directory to work in
	name   string    // of ours in it
	home   client.FH // ours

	files []*client.File // each job's; nil: there are none
	flat  *flatDir       // the large directory; nil: there is none
	tree  *tree          // the small files; nil: there are none

	answered atomic.Int64 // operations that the server has answered
}

// connect makes a client and finds the directory to work in.
func connect(ctx context.Context, cfg *Config, s Server, data *content, stopped func() bool) (*target, error) {
	t := &target{cfg: cfg, server: s, content: data, stopped: stopped}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	// The client tries again for as long as it may: a server that isn't there
	// is noticed here, at once.
	var d net.Dialer
	probe, err := d.DialContext(ctx, "tcp", s.Addr)
	if err != nil {
		return nil, t.explain("connecting", err)
	}
	_ = probe.Close()
	t.c, err = client.Dial(ctx, s.Addr, client.Options{
		Minor: cfg.Minor, Conns: cfg.Conns, Slots: min(max(cfg.Jobs*cfg.Depth, helpers), maxWorker),
		MaxIO: max(cfg.Block, cfg.RandomBlock, cfg.SmallSize, 1<<20), UID: cfg.UID, GID: cfg.GID,
	})
	if err != nil {
		return nil, t.explain("making a session", err)
	}
	if err := t.begin(ctx); err != nil {
		return nil, errors.Join(err, t.c.Close(ctx))
	}
	return t, nil
}

// begin makes our directory.
func (t *target) begin(ctx context.Context) (err error) {
	if t.parent, err = t.c.Walk(ctx, t.server.Dir); err != nil {
		return t.explain("looking up /"+t.server.Dir, err)
	}
	a, err := t.c.Getattr(ctx, t.parent, proto.AttrType, proto.AttrMaxread, proto.AttrMaxwrite)
	if err != nil {
		return t.explain("looking at /"+t.server.Dir, err)
	}
	if a.Type != proto.TypeDir {
		return t.explain("looking at /"+t.server.Dir, proto.ErrNotdir)
	}
	for _, l := range []struct {
		attr int
		most uint64
	}{{proto.AttrMaxread, a.MaxRead}, {proto.AttrMaxwrite, a.MaxWrite}} {
		if n := max(t.cfg.Block, t.cfg.RandomBlock); a.Has(l.attr) && uint64(n) > l.most {
			return fmt.Errorf("%s takes READs of %d bytes and WRITEs of %d at most: give a smaller --block", t.server, a.MaxRead, a.MaxWrite)
		}
	}
	name := fmt.Sprintf("hawser-bench-%016x", rand.Uint64())
	t.home, err = t.c.Mkdir(ctx, t.parent, name, 0o755)
	if err != nil {
		return t.suggest(ctx, t.explain("making a directory in /"+t.server.Dir, err))
	}
	t.name = name
	return nil
}

// suggest adds to err which directories there are, if the root was not the right one.
func (t *target) suggest(ctx context.Context, err error) error {
	if t.server.Dir != "" {
		return err
	}
	all, listErr := t.c.ReadAllDir(ctx, t.parent, proto.AttrType)
	if listErr != nil {
		return err
	}
	var names []string
	for _, e := range all {
		if e.Attrs.Type == proto.TypeDir && len(names) < 10 {
			names = append(names, e.Name)
		}
	}
	if len(names) == 0 {
		return err
	}
	return fmt.Errorf("%w; there are: %s", err, strings.Join(names, ", "))
}

// parallel calls fn for 0 to n-1, several at a time, until one fails or the
// benchmark is stopped.
func (t *target) parallel(ctx context.Context, n int, fn func(ctx context.Context, i int) error) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range min(helpers, n) {
		g.Go(func() error {
			for {
				if t.stopped() {
					return nil // what is under way is not given up
				}
				i := int(next.Add(1) - 1)
				if i >= n {
					return nil
				}
				if err := fn(ctx, i); err != nil {
					return err
				}
				t.answered.Add(1)
			}
		})
	}
	err := g.Wait()
	if err == nil && t.stopped() {
		err = context.Canceled
	}
	return err
}

// end removes all that was made and gives the session back.
func (t *target) end(ctx context.Context) error {
	err := t.closeFiles(ctx)
	if t.name != "" {
		err = errors.Join(err, t.removeAll(ctx, t.parent, t.name, t.home))
	}
	if err != nil {
		err = fmt.Errorf("%w; remove /%s on %s by hand", t.explain("removing what was made", err), strings.TrimPrefix(t.server.Dir+"/"+t.name, "/"), t.server.Addr)
	}
	return errors.Join(err, t.c.Close(ctx))
}

// removeAll removes a directory and all in it.
func (t *target) removeAll(ctx context.Context, parent client.FH, name string, dir client.FH) error {
	// What was under way when the benchmark was stopped may still be made.
	for try := 0; ; try++ {
		if err := t.empty(ctx, dir); err != nil {
			return err
		}
		_, err := t.c.Remove(ctx, parent, name)
		switch {
		case err == nil, errors.Is(err, proto.ErrNoent):
			return nil
		case !errors.Is(err, proto.ErrNotempty) || try == 5:
			return err
		}
	}
}

// empty removes all that is in a directory, a page of it at a time.
func (t *target) empty(ctx context.Context, dir client.FH) error {
	for {
		page, _, eof, err := t.c.Readdir(ctx, dir, 0, 0, pageSize, proto.AttrType, proto.AttrFilehandle)
		if err != nil || len(page) == 0 {
			return err
		}
		err = t.everything(ctx, len(page), func(ctx context.Context, i int) error {
			e := &page[i]
			if e.Attrs.Type == proto.TypeDir {
				return t.removeAll(ctx, dir, e.Name, e.Attrs.Handle)
			}
			if _, err := t.c.Remove(ctx, dir, e.Name); err != nil && !errors.Is(err, proto.ErrNoent) {
				return err
			}
			return nil
		})
		if err != nil || eof {
			return err
		}
	}
}

// everything is parallel for work that is done also when the benchmark is stopped.
func (t *target) everything(ctx context.Context, n int, fn func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(helpers)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			err := fn(ctx, i)
			t.answered.Add(1)
			return err
		})
	}
	return g.Wait()
}

// advice says what to do about what a server or the network says.
var advice = []struct {
	err    error
	advice string
}{
	{syscall.ECONNREFUSED, "no NFS server listens there: start it, or give its port as HOST:PORT"},
	{syscall.EHOSTUNREACH, "check the address and the network"},
	{proto.ErrMinorVersMismatch, "the server does not speak this minor version: try --minor 1"},
	{proto.ErrNoent, "there is no such directory: name one that exists as HOST:PORT/DIR or with --dir"},
	{proto.ErrNotdir, "name a directory as HOST:PORT/DIR or with --dir"},
	{proto.ErrAccess, "choose another directory with --dir, or another user with --uid and --gid"},
	{proto.ErrPerm, "choose another directory with --dir, or another user with --uid and --gid"},
	{proto.ErrRofs, "nothing can be made there: name a directory as HOST:PORT/DIR or with --dir"},
	{proto.ErrNospc, "the server is full: make room, or use smaller --size and --files"},
	{proto.ErrDquot, "the user's quota is reached: raise it, or use smaller --size and --files"},
	{context.DeadlineExceeded, "the server does not answer: see whether it is well"},
}

// explain says which server an error is about, and what to do.
func (t *target) explain(doing string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	for _, a := range advice {
		if errors.Is(err, a.err) {
			return fmt.Errorf("%s: %s: %w: %s", t.server, doing, err, a.advice)
		}
	}
	return fmt.Errorf("%s: %s: %w", t.server, doing, err)
}
