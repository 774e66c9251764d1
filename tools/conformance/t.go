package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// A T is a case that runs.
type T struct {
	context.Context
	Dir client.FH // the case's own, that everybody may write to

	env     *env
	r       *Result
	name    string
	clients []*client.Client
	names   int
}

// Minor returns the minor version.
func (t *T) Minor() uint32 { return t.env.minor }

// Fatalf ends the case: the rule does not hold.
func (t *T) Fatalf(format string, args ...any) {
	t.r.Outcome = Failed
	t.r.Message = fmt.Sprintf(format, args...)
	panic(errStop)
}

// Skipf ends the case: the server does not have what the rule is about.
func (t *T) Skipf(format string, args ...any) {
	t.r.Outcome = Skipped
	t.r.Message = fmt.Sprintf(format, args...)
	panic(errStop)
}

// cleanup ends the clients and removes the directory.
func (t *T) cleanup() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, c := range t.clients {
		_ = c.Close(ctx)
		_ = c.Abort()
	}
	_ = removeAll(ctx, t.env.admin, t.env.top, t.name)
}

// Client returns a new client, with an identity of its own.
func (t *T) Client() *client.Client { return t.ClientAs(nil) }

// Other returns a new client of another user, who is not root.
func (t *T) Other() *client.Client {
	return t.ClientAs(func(o *client.Options) { o.UID, o.GID = t.env.cfg.Other, t.env.cfg.Other })
}

// Kill ends a client without a word to the server.
func (t *T) Kill(c *client.Client) {
	_ = c.Abort()
	t.clients = slices.DeleteFunc(t.clients, func(x *client.Client) bool { return x == c })
}

// ClientAs returns a new client with changed options.
func (t *T) ClientAs(change func(*client.Options)) *client.Client {
	c, err := client.Dial(t, t.env.cfg.Addr, t.env.options(change))
	if err != nil {
		t.Fatalf("a new client: %v", err)
	}
	t.clients = append(t.clients, c)
	return c
}

// Raw returns a client that has no client id and no session yet.
func (t *T) Raw(change func(*client.Options)) *client.Client {
	c := client.DialRaw(t.env.cfg.Addr, t.env.options(change))
	t.clients = append(t.clients, c)
	return c
}

// Name returns a name that nothing in the case's directory has.
func (t *T) Name() string {
	t.names++
	return fmt.Sprintf("name-%d", t.names)
}

// Ok ends the case if err is not nil.
func (t *T) Ok(err error, what string) {
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Is ends the case unless err is one of the statuses; proto.OK stands for no error.
func (t *T) Is(err error, what string, want ...proto.Status) {
	if got := t.status(err, what); !slices.Contains(want, got) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// status returns the status that err is of.
func (t *T) status(err error, what string) proto.Status {
	var st proto.Status
	if err != nil && !errors.As(err, &st) {
		t.Fatalf("%s: %v", what, err)
	}
	return st
}

// Do sends a compound in the session, or without one in 4.0.
func (t *T) Do(c *client.Client, ops *client.Compound) *client.Results {
	r, err := c.Do(t, ops)
	t.Ok(err, "COMPOUND")
	return r
}

// Want sends a compound whose last operation must have one of the statuses; those before
// must succeed.
func (t *T) Want(c *client.Client, what string, ops *client.Compound, want ...proto.Status) {
	r := t.Do(c, ops)
	defer r.Release()
	t.ends(r, what, ops, want...)
}

// ends checks the status of the last operation.
func (t *T) ends(r *client.Results, what string, ops *client.Compound, want ...proto.Status) {
	if r.N != ops.Len() {
		t.Fatalf("%s: %d of %d operations were executed, the last one: %v", what, r.N, ops.Len(), r.Status)
	}
	if !slices.Contains(want, r.Status) {
		t.Fatalf("%s: got %v, want %v", what, r.Status, want)
	}
}

// Get sends a compound, which must succeed, and hands the decoder at the result of the
// last operation to get; those before have results that are no more than a status.
func (t *T) Get(c *client.Client, what string, ops *client.Compound, get func(*xdr.Decoder), done ...proto.Op) {
	r := t.Do(c, ops)
	defer r.Release()
	d, err := r.OK(done...)
	t.Ok(err, what)
	if get != nil {
		get(d)
	}
	t.Ok(d.Err(), what+": the result")
}

// RawWant is Want for a compound outside of a session.
func (t *T) RawWant(c *client.Client, what string, ops *client.Compound, want ...proto.Status) {
	r, err := c.Raw(t, 0, t.Minor(), ops)
	t.Ok(err, what)
	defer r.Release()
	t.ends(r, what, ops, want...)
}

// Create makes a file with contents, and returns its handle.
func (t *T) Create(c *client.Client, name string, contents string) client.FH {
	f, err := c.CreateFile(t, t.Dir, name, 0o666)
	t.Ok(err, "creating "+name)
	t.Ok(f.WriteAll(t, 0, []byte(contents)), "writing "+name)
	t.Ok(f.Close(t), "closing "+name)
	t.Ok(c.Setattr(t, f.FH(), client.Stateid{}, &client.SetAttr{Mode: client.Ptr(uint32(0o666))}), "SETATTR of "+name)
	return f.FH()
}

// Open opens a file of the case's directory.
func (t *T) Open(c *client.Client, name string, how client.OpenHow) *client.File {
	f, _, err := c.Open(t, t.Dir, name, &how)
	t.Ok(err, "opening "+name)
	return f
}

// Make creates and opens a new file for reading and writing.
func (t *T) Make(c *client.Client) *client.File {
	f, err := c.CreateFile(t, t.Dir, t.Name(), 0o666)
	t.Ok(err, "creating a file")
	return f
}

// Attrs returns attributes.
func (t *T) Attrs(c *client.Client, fh client.FH, attrs ...int) client.Attrs {
	a, err := c.Getattr(t, fh, attrs...)
	t.Ok(err, "GETATTR")
	return a
}

// Contents reads a file.
func (t *T) Contents(c *client.Client, name string) string {
	f := t.Open(c, name, client.OpenHow{Access: proto.ShareAccessRead})
	p, err := f.ReadAll(t)
	t.Ok(err, "reading "+name)
	t.Ok(f.Close(t), "closing "+name)
	return string(p)
}

// Equal ends the case unless got is want.
func Equal[V comparable](t *T, what string, got, want V) {
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}
