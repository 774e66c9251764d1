// Package nfsd is the NFS front-end of a node: the listeners, the programs that
// are served on them, and their orderly end.
package nfsd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hawserfs/hawser/nfsd/ids"
	"github.com/hawserfs/hawser/nfsd/oncrpc"
)

// recordOverhead is what a message may have beyond the data of a READ or WRITE:
// the RPC header, the credential and the other operations of the COMPOUND.
const recordOverhead = 64 << 10

// A Config says where a front-end listens and what it serves. Zero fields mean
// the defaults, which are those of oncrpc.Config.
type Config struct {
	// Listen has host:port of each address; there must be one. If it has none
	// that stands for all of the machine's, the server listens on floating
	// addresses too, on the port of the first, while it serves them.
	Listen []string
	// Programs are NFSv4 and what else is served, on all but floating addresses.
	Programs []oncrpc.Program
	Groups   *ids.Groups // looks users' groups up; nil: as clients send them

	MaxIO         int           // bytes of data in a READ or WRITE (default 1 MiB)
	MaxConns      int           // connections
	MaxInFlight   int           // calls being served on one connection
	RequestMemory int           // bytes of requests being served
	ReplyMemory   int           // bytes of replies not yet written
	IdleTimeout   time.Duration // after which a connection without calls is closed

	Logger *slog.Logger
}

// A Server is a front-end.
type Server struct {
	rpc    *oncrpc.Server
	lns    []net.Listener
	logger *slog.Logger
	groups *ids.Groups
	routes routes

	wg sync.WaitGroup // listeners of floating addresses
}

// keepAlive notices within two minutes a client that is gone without a word.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 20 * time.Second, Count: 3}

// Listen binds all addresses of cfg. Nothing is served until Serve is called;
// clients that connect meanwhile wait.
func Listen(cfg Config) (*Server, error) {
	if len(cfg.Listen) == 0 {
		return nil, errors.New("nfsd: no address to listen on: name at least one host:port")
	}
	if len(cfg.Programs) == 0 {
		return nil, errors.New("nfsd: no program to serve")
	}
	if cfg.MaxIO == 0 {
		cfg.MaxIO = 1 << 20
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{logger: cfg.Logger, groups: cfg.Groups}
	s.routes.init(s.handlers(cfg.Programs))
	programs := append([]oncrpc.Program(nil), cfg.Programs...)
	for i := range programs {
		programs[i].Handler = &router{&s.routes, i}
	}
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	for _, addr := range cfg.Listen {
		ln, err := lc.Listen(context.Background(), "tcp", addr)
		if err != nil {
			s.closeListeners()
			return nil, fmt.Errorf("nfsd: listening for NFS clients on %s: %w", addr, err)
		}
		s.lns = append(s.lns, ln)
	}
	s.rpc = oncrpc.NewServer(oncrpc.Config{
		Programs:      programs,
		MaxRecord:     cfg.MaxIO + recordOverhead,
		MaxInFlight:   cfg.MaxInFlight,
		RequestMemory: cfg.RequestMemory,
		ReplyMemory:   cfg.ReplyMemory,
		MaxConns:      cfg.MaxConns,
		IdleTimeout:   cfg.IdleTimeout,
		Accepted:      s.routes.accepted,
		Logger:        cfg.Logger,
	})
	return s, nil
}

func (s *Server) closeListeners() {
	for _, ln := range s.lns {
		_ = ln.Close()
	}
}

// Addrs returns the addresses that are listened on, in the order of Config.Listen.
func (s *Server) Addrs() []net.Addr {
	all := make([]net.Addr, len(s.lns))
	for i, ln := range s.lns {
		all[i] = ln.Addr()
	}
	return all
}

// Serve serves clients until Shutdown or Close, and then returns nil.
func (s *Server) Serve() error {
	errs := make([]error, len(s.lns))
	var wg sync.WaitGroup
	for i, ln := range s.lns {
		s.logger.Info("serving NFS", "addr", ln.Addr())
		wg.Go(func() {
			errs[i] = s.rpc.Serve(ln)
			if errs[i] != nil {
				s.logger.Error("no longer serving NFS on this address", "addr", ln.Addr(), "err", errs[i])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Shutdown stops taking calls, lets those under way end and be answered, and
// closes everything; at once when ctx ends, whose error it then returns.
func (s *Server) Shutdown(ctx context.Context) error {
	defer s.wg.Wait()
	defer s.closeListeners() // those that were never served
	return s.rpc.Shutdown(ctx)
}

// Close closes everything at once.
func (s *Server) Close() {
	s.rpc.Close()
	s.closeListeners()
	s.wg.Wait()
}

// Stats returns the numbers of the RPC layer.
func (s *Server) Stats() oncrpc.Stats { return s.rpc.Stats() }
