package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/member"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fake is a Backend that records what it was asked.
type fake struct {
	Repairing
	asked string
	err   error // of every call
	check func(ctx context.Context, report func(CheckEvent)) (CheckSummary, error)
	wait  bool // calls last until their context ends
	began chan struct{}
	ended chan struct{}
}

func (f *fake) call(ctx context.Context, format string, args ...any) error {
	f.asked = fmt.Sprintf(format, args...)
	if f.wait {
		close(f.began)
		<-ctx.Done()
		close(f.ended)
		return ctx.Err()
	}
	return f.err
}

func (f *fake) Status() Status {
	return Status{Version: "v1", Serving: []string{"127.0.0.1:2049"}, Cluster: member.Status{Self: "n1", Problems: []string{}}}
}
func (f *fake) Init(ctx context.Context, r InitRequest) error { return f.call(ctx, "init %+v", r) }
func (f *fake) Join(ctx context.Context, r JoinRequest) error { return f.call(ctx, "join %+v", r) }
func (f *fake) Volumes(ctx context.Context) ([]Volume, error) {
	return []Volume{{Name: "main", ID: 1}}, f.call(ctx, "volumes")
}

func (f *fake) CreateVolume(ctx context.Context, name string, c Class) (Volume, error) {
	return Volume{Name: name, ID: 2, Copies: c.Copies}, f.call(ctx, "create %s %+v", name, c)
}

func (f *fake) Class(ctx context.Context, path string) (Class, error) {
	return Class{Path: path, Consistency: "strict", Copies: 3}, f.call(ctx, "class %s", path)
}

func (f *fake) SetClass(ctx context.Context, c Class) (Class, error) {
	return c, f.call(ctx, "set class %+v", c)
}

func (f *fake) Addresses(ctx context.Context) ([]member.IdentityStatus, error) {
	return []member.IdentityStatus{{ID: 2, Address: "10.0.0.50/24"}}, f.call(ctx, "addresses")
}

func (f *fake) AddAddress(ctx context.Context, r AddressRequest) error {
	return f.call(ctx, "add %+v", r)
}

func (f *fake) MoveAddress(ctx context.Context, r AddressRequest) error {
	return f.call(ctx, "move %+v", r)
}

func (f *fake) RemoveAddress(ctx context.Context, r AddressRequest) error {
	return f.call(ctx, "remove %+v", r)
}

func (f *fake) Drain(ctx context.Context, r DrainRequest) error { return f.call(ctx, "drain %+v", r) }

func (f *fake) Check(ctx context.Context, req CheckRequest, report func(CheckEvent)) (CheckSummary, error) {
	f.asked = fmt.Sprintf("check %+v", req)
	return f.check(ctx, report)
}

// serve starts a server of b and returns a client of it.
func serve(t *testing.T, b Backend) (*Client, *Server) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	s, err := Listen(path, b, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return Dial(path), s
}

func TestCalls(t *testing.T) {
	f := &fake{}
	c, _ := serve(t, f)
	ctx := t.Context()
	for _, x := range []struct {
		asked string
		call  func() (any, error)
		want  string
	}{
		{"init {Name:c Class:{Path: Consistency:relaxed Copies:2}}", func() (any, error) {
			return nil, c.Init(ctx, InitRequest{Name: "c", Class: Class{Consistency: "relaxed", Copies: 2}})
		}, "<nil>"},
		{"join {Address:a:1}", func() (any, error) { return nil, c.Join(ctx, JoinRequest{Address: "a:1"}) }, "<nil>"},
		{"volumes", func() (any, error) { return c.Volumes(ctx) }, "[{Name:main ID:1 Consistency: Copies:0 Files:0 Bytes:0}]"},
		{"create v {Path: Consistency: Copies:2}", func() (any, error) { return c.CreateVolume(ctx, Volume{Name: "v", Copies: 2}) }, "{Name:v ID:2 Consistency: Copies:2 Files:0 Bytes:0}"},
		{"class /main/a b&c", func() (any, error) { return c.Class(ctx, "/main/a b&c") }, "{Path:/main/a b&c Consistency:strict Copies:3}"},
		{"set class {Path:/main Consistency: Copies:1}", func() (any, error) { return c.SetClass(ctx, Class{Path: "/main", Copies: 1}) }, "{Path:/main Consistency: Copies:1}"},
		{"addresses", func() (any, error) {
			list, err := c.Addresses(ctx)
			return list[0].Address, err
		}, "10.0.0.50/24"},
		{"add {Address:10.0.0.50/24 Group:g Home:n1 Node:}", func() (any, error) {
			return nil, c.AddAddress(ctx, AddressRequest{Address: "10.0.0.50/24", Group: "g", Home: "n1"})
		}, "<nil>"},
		{"move {Address:10.0.0.50 Group: Home: Node:n2}", func() (any, error) {
			return nil, c.MoveAddress(ctx, AddressRequest{Address: "10.0.0.50", Node: "n2"})
		}, "<nil>"},
		{"remove {Address:10.0.0.50 Group: Home: Node:}", func() (any, error) {
			return nil, c.RemoveAddress(ctx, AddressRequest{Address: "10.0.0.50"})
		}, "<nil>"},
		{"drain {Node:n1 Drain:true}", func() (any, error) { return nil, c.Drain(ctx, DrainRequest{"n1", true}) }, "<nil>"},
	} {
		got, err := x.call()
		if err != nil || fmt.Sprintf("%+v", got) != x.want || f.asked != x.asked {
			t.Errorf("asked %q, got %+v, %v; want %q, %s", f.asked, got, err, x.asked, x.want)
		}
	}
	if st, err := c.Status(ctx); err != nil || st.Version != "v1" || st.Cluster.Self != "n1" || len(st.Serving) != 1 {
		t.Errorf("got %+v, %v", st, err)
	}
}

func TestErrors(t *testing.T) {
	f := &fake{err: fmt.Errorf("volume %q: %w", "x", cluster.EEXIST)}
	c, _ := serve(t, f)
	if _, err := c.CreateVolume(t.Context(), Volume{Name: "x"}); err == nil || err.Error() != `volume "x": file exists` {
		t.Errorf("got %v: want the backend's sentence", err)
	}
	raw := c.http
	for _, x := range []struct {
		err  error
		want int
	}{
		{cluster.ENOENT, 404},
		{cluster.EEXIST, 409},
		{cluster.EINVAL, 400},
		{cluster.EBADNAME, 400},
		{cluster.EAGAIN, 503},
		{cluster.EIO, 500},
		{errors.New("a plain one"), 500},
	} {
		f.err = fmt.Errorf("x: %w", x.err)
		r, err := raw.Get("http://hawser/v1/volumes")
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.StatusCode != x.want {
			t.Errorf("%v: got status %d, want %d", x.err, r.StatusCode, x.want)
		}
	}
	f.err = nil
	for _, x := range []struct{ method, path, body, want string }{
		{"POST", "/v1/volumes", `{"name": "x", "colour": "red"}`, `\"colour\"`},
		{"POST", "/v1/volumes", `{`, "malformed request"},
		{"POST", "/v1/check", ``, "malformed request"},
		{"POST", "/v1/cluster/join", `{"address": "` + strings.Repeat("a", maxRequest) + `"}`, "too large"},
		{"GET", "/v1/nothing", ``, "404"},
		{"DELETE", "/v1/volumes", ``, "Method Not Allowed"},
	} {
		req, err := http.NewRequest(x.method, "http://hawser"+x.path, strings.NewReader(x.body))
		if err != nil {
			t.Fatal(err)
		}
		r, err := raw.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		if err = errors.Join(err, r.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if r.StatusCode == 200 || !strings.Contains(string(text), x.want) {
			t.Errorf("%s %s %.40q: got %d %q, want %q", x.method, x.path, x.body, r.StatusCode, text, x.want)
		}
	}
}

func TestCheckStream(t *testing.T) {
	f := &fake{check: func(_ context.Context, report func(CheckEvent)) (CheckSummary, error) {
		report(CheckEvent{Progress: "half"})
		report(CheckEvent{Problem: "bad"})
		return CheckSummary{Volumes: 1, Problems: 1, Skipped: []cluster.StoreID{3}}, nil
	}}
	c, _ := serve(t, f)
	var got []string
	sum, err := c.Check(t.Context(), CheckRequest{Data: true}, func(e CheckEvent) { got = append(got, e.Progress+e.Problem) })
	if err != nil || fmt.Sprint(got) != "[half bad]" || sum.Problems != 1 || fmt.Sprint(sum.Skipped) != "[3]" || f.asked != "check {Data:true}" {
		t.Errorf("asked %q, got %v, %+v, %v", f.asked, got, sum, err)
	}
	f.check = func(_ context.Context, report func(CheckEvent)) (CheckSummary, error) {
		report(CheckEvent{Progress: "half"})
		return CheckSummary{}, errors.New("no majority")
	}
	if _, err := c.Check(t.Context(), CheckRequest{}, func(CheckEvent) {}); err == nil || err.Error() != "no majority" {
		t.Errorf("got %v: want the backend's sentence", err)
	}
}

// TestCheckCanceled: a client that goes away ends the check.
func TestCheckCanceled(t *testing.T) {
	ended := make(chan struct{})
	f := &fake{check: func(ctx context.Context, report func(CheckEvent)) (CheckSummary, error) {
		defer close(ended)
		report(CheckEvent{Progress: "begun"})
		<-ctx.Done()
		return CheckSummary{}, ctx.Err()
	}}
	c, _ := serve(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.Check(ctx, CheckRequest{}, func(CheckEvent) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the check goes on without its client")
	}
}

// TestClose: Close ends what is under way and waits until the backend is done
// with it.
func TestClose(t *testing.T) {
	f := &fake{wait: true, began: make(chan struct{}), ended: make(chan struct{})}
	c, s := serve(t, f)
	answer := make(chan error, 1)
	go func() { answer <- c.Join(t.Context(), JoinRequest{Address: "a:1"}) }()
	<-f.began
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-f.ended:
	default:
		t.Error("Close returned before the request had ended")
	}
	if err := <-answer; err == nil {
		t.Error("the client of an ended request got no error")
	}
	if err := c.Init(t.Context(), InitRequest{}); err == nil || !strings.Contains(err.Error(), "hawser server") {
		t.Errorf("after Close: %v", err)
	}
}

// TestCloseStuckClient: a client that reads nothing does not keep the server.
func TestCloseStuckClient(t *testing.T) {
	f := &fake{check: func(ctx context.Context, report func(CheckEvent)) (CheckSummary, error) {
		for ctx.Err() == nil {
			report(CheckEvent{Progress: strings.Repeat("x", 1<<16)})
		}
		return CheckSummary{}, ctx.Err()
	}}
	c, s := serve(t, f)
	conn, err := net.Dial("unix", c.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprint(conn, "POST /v1/check HTTP/1.1\r\nHost: hawser\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > stopTimeout+5*time.Second {
		t.Errorf("Close took %v", took)
	}
}

func TestListen(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	dir := t.TempDir()
	path := filepath.Join(dir, "s")

	// A socket that a killed process left.
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	_ = ln.Close()
	s, err := Listen(path, &fake{}, log)
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the socket's mode is %v, %v: want 0600", st.Mode(), err)
	}
	if _, err := Listen(path, &fake{}, log); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Errorf("a socket in use: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}

	file := filepath.Join(dir, "precious")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(file, &fake{}, log); err == nil || !strings.Contains(err.Error(), "listen.admin") {
		t.Errorf("a file in the socket's place: %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the file is gone: %v", err)
	}
}

func TestNobodyAnswers(t *testing.T) {
	_, err := Dial(filepath.Join(t.TempDir(), "s")).Status(t.Context())
	if err == nil || !strings.Contains(err.Error(), "start it with `hawser server`") {
		t.Errorf("got %v", err)
	}
	f := &fake{wait: true, began: make(chan struct{}), ended: make(chan struct{})}
	c, _ := serve(t, f)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Join(ctx, JoinRequest{}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "did not answer in time") {
		t.Errorf("got %v", err)
	}
}
