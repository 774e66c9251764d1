package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
)

// A Server answers administration requests on a Unix socket.
type Server struct {
	http *http.Server
	stop context.CancelFunc // ends the requests under way
	done chan struct{}

	mu     sync.Mutex // of closed
	closed bool
	active sync.WaitGroup // requests
}

// maxRequest bounds a request's body, in bytes.
const maxRequest = 64 << 10

// Listen serves backend on the Unix socket at path, which only the node's own
// user may open. A socket that an earlier process left behind is replaced; one
// that is in use is not.
func Listen(path string, backend Backend, log *slog.Logger) (*Server, error) {
	if c, err := net.Dial("unix", path); err == nil {
		return nil, errors.Join(fmt.Errorf("a hawser server runs already with the admin socket %s: stop it first", path), c.Close())
	}
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("admin socket: %s is there and is no socket: set listen.admin to another path", path)
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("admin socket: a stale one is in the way: %w: remove it, or set listen.admin to another path", err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{
		stop: stop,
		http: &http.Server{
			ReadHeaderTimeout: 10 * time.Second,
			BaseContext:       func(net.Listener) context.Context { return ctx },
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		},
		done: make(chan struct{}),
	}
	s.http.Handler = s.tracked(routes(backend))
	go func() {
		defer close(s.done)
		if err := s.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the admin API ended", "err", err)
		}
	}()
	return s, nil
}

// tracked counts the requests under way: http.Server's Close does not wait for
// them, and they must not outlive what the backend is made of.
func (s *Server) tracked(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		closed := s.closed
		if !closed {
			s.active.Add(1)
		}
		s.mu.Unlock()
		if closed {
			answer(w, nil, fmt.Errorf("the server is stopping: %w", cluster.EAGAIN))
			return
		}
		defer s.active.Done()
		h.ServeHTTP(w, r)
	})
}

// stopTimeout is how long Close waits for clients to take their answers.
const stopTimeout = 2 * time.Second

// Close ends the requests under way and waits until the backend is done with
// them.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close() // a client that takes no answer
	}
	s.active.Wait()
	<-s.done
	return err
}

func routes(b Backend) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { answer(w, b.Status(), nil) })
	mux.HandleFunc("POST /v1/cluster/init", done(b.Init))
	mux.HandleFunc("POST /v1/cluster/join", done(b.Join))
	mux.HandleFunc("GET /v1/volumes", func(w http.ResponseWriter, r *http.Request) {
		list, err := b.Volumes(r.Context())
		answer(w, list, err)
	})
	mux.HandleFunc("POST /v1/volumes", func(w http.ResponseWriter, r *http.Request) {
		req, err := read[Volume](w, r)
		var v Volume
		if err == nil {
			v, err = b.CreateVolume(r.Context(), req.Name, Class{Consistency: req.Consistency, Copies: req.Copies})
		}
		answer(w, v, err)
	})
	mux.HandleFunc("GET /v1/class", func(w http.ResponseWriter, r *http.Request) {
		c, err := b.Class(r.Context(), r.URL.Query().Get("path"))
		answer(w, c, err)
	})
	mux.HandleFunc("PUT /v1/class", func(w http.ResponseWriter, r *http.Request) {
		c, err := read[Class](w, r)
		if err == nil {
			c, err = b.SetClass(r.Context(), c)
		}
		answer(w, c, err)
	})
	mux.HandleFunc("GET /v1/addresses", func(w http.ResponseWriter, r *http.Request) {
		list, err := b.Addresses(r.Context())
		answer(w, list, err)
	})
	mux.HandleFunc("POST /v1/addresses", done(b.AddAddress))
	mux.HandleFunc("POST /v1/addresses/move", done(b.MoveAddress))
	mux.HandleFunc("POST /v1/addresses/remove", done(b.RemoveAddress))
	mux.HandleFunc("POST /v1/addresses/drain", done(b.Drain))
	scrubRoutes(mux, b)
	repairRoutes(mux, b)
	// Profiles, for `go tool pprof` and curl on the socket.
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("POST /v1/check", func(w http.ResponseWriter, r *http.Request) {
		req, err := read[CheckRequest](w, r)
		if err != nil {
			answer(w, nil, err)
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		out, flush := json.NewEncoder(w), http.NewResponseController(w)
		send := func(e CheckEvent) {
			// A client that went away ends the request's context, which ends the check.
			_ = out.Encode(e)
			_ = flush.Flush()
		}
		summary, err := b.Check(r.Context(), req, send)
		if err != nil {
			send(CheckEvent{Error: err.Error()})
			return
		}
		send(CheckEvent{Done: &summary})
	})
	return mux
}

// done handles requests that are answered with nothing but that it is done.
func done[T any](do func(context.Context, T) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		req, err := read[T](w, r)
		if err == nil {
			err = do(r.Context(), req)
		}
		answer(w, struct{}{}, err)
	}
}

// failure is the body of an answer that is an error.
type failure struct {
	Error string `json:"error"`
}

func read[T any](w http.ResponseWriter, r *http.Request) (v T, err error) {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return v, fmt.Errorf("malformed request: %w: %w", err, cluster.EINVAL)
	}
	return v, nil
}

func answer(w http.ResponseWriter, v any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(statusOf(err))
		v = failure{err.Error()}
	}
	// The client may have gone; there is nobody to tell.
	_ = json.NewEncoder(w).Encode(v)
}

func statusOf(err error) int {
	var e cluster.Errno
	if !errors.As(err, &e) {
		return http.StatusInternalServerError
	}
	switch e {
	case cluster.ENOENT:
		return http.StatusNotFound
	case cluster.EEXIST:
		return http.StatusConflict
	case cluster.EINVAL, cluster.EBADNAME, cluster.ENAMETOOLONG, cluster.ENOTDIR:
		return http.StatusBadRequest
	case cluster.EAGAIN:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
