package oncrpc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A Config says what a Server serves and how much it lets its peers take.
// Zero fields mean the defaults.
type Config struct {
	Programs []Program

	MaxRecord     int           // bytes in a message (default 1 MiB + 64 KiB); more closes the connection
	MaxInFlight   int           // calls being served on one connection (default 128); more are not read yet
	RequestMemory int           // bytes of requests being served, all connections (default 256 MiB); more are not read yet
	ReplyMemory   int           // bytes of replies not yet written, all connections (default 1 GiB)
	MaxConns      int           // connections (default 16384); more are closed at once
	WriteTimeout  time.Duration // for the peer to take some replies (default 30 s)
	ReadTimeout   time.Duration // for the rest of a record that has begun to arrive (default 30 s)
	IdleTimeout   time.Duration // without a call (default 15 min; negative: none)

	// Accepted is called, if it is not nil, with each connection that Serve takes.
	Accepted func(net.Conn)
	Logger   *slog.Logger
}

// maxBatch is how much of replies goes into one write, and beyond how much of
// unwritten replies no call of a connection is begun.
const maxBatch = 4 << 20

// tickLen is the resolution of time-outs.
const tickLen = 250 * time.Millisecond

func (c *Config) defaults() {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	dur := func(p *time.Duration, v time.Duration) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.MaxRecord, 1<<20+64<<10)
	def(&c.MaxInFlight, 128)
	def(&c.RequestMemory, 256<<20)
	def(&c.ReplyMemory, 1<<30)
	def(&c.MaxConns, 16384)
	dur(&c.WriteTimeout, 30*time.Second)
	dur(&c.ReadTimeout, 30*time.Second)
	dur(&c.IdleTimeout, 15*time.Minute)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// A Server serves programs on connections. A client is one that serves its
// callbacks, on connections that it dialed.
type Server struct {
	cfg      Config
	programs map[uint32]*Program
	ctx      context.Context
	cancel   context.CancelFunc

	requests budget
	unsent   atomic.Int64 // bytes of replies not yet written
	tick     atomic.Int64 // coarse time: one more each tickLen
	nextID   atomic.Uint64
	stats    counters
	workers  workers

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	conns     map[*Conn]struct{}
	closed    bool
	wg        sync.WaitGroup // connections, Serve loops, the clock
	start     sync.Once
}

// NewServer returns a Server.
func NewServer(cfg Config) *Server {
	cfg.defaults()
	s := &Server{
		cfg:       cfg,
		programs:  make(map[uint32]*Program, len(cfg.Programs)),
		listeners: make(map[net.Listener]struct{}),
		conns:     make(map[*Conn]struct{}),
	}
	for i := range cfg.Programs {
		s.programs[cfg.Programs[i].Number] = &cfg.Programs[i]
	}
	s.requests.max = int64(cfg.RequestMemory)
	s.tick.Store(1)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Serve accepts connections from ln until the server is shut down, and then
// returns nil. It closes ln.
func (s *Server) Serve(ln net.Listener) error {
	defer func() { _ = ln.Close() }()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.listeners[ln] = struct{}{}
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, ln)
		s.mu.Unlock()
	}()
	var delay time.Duration
	for {
		nc, err := ln.Accept()
		if err != nil {
			s.mu.Lock()
			closed := s.closed
			s.mu.Unlock()
			if closed {
				return nil
			}
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			// Out of file descriptors, or a connection gone before it was
			// taken: it will pass.
			delay = min(max(2*delay, 5*time.Millisecond), time.Second)
			s.cfg.Logger.Warn("accept failed; trying again", "addr", ln.Addr(), "err", err, "delay", delay)
			select {
			case <-time.After(delay):
			case <-s.ctx.Done():
			}
			continue
		}
		delay = 0
		if s.cfg.Accepted != nil {
			s.cfg.Accepted(nc)
		}
		if _, err := s.Attach(nc); err != nil {
			s.stats.refused.Add(1)
			_ = nc.Close()
		}
	}
}

// Attach serves calls on nc, a connection made elsewhere, and returns it for
// calls in the other direction. If it fails, nc is still the caller's.
func (s *Server) Attach(nc net.Conn) (*Conn, error) {
	if tc, ok := nc.(*net.TCPConn); ok {
		_ = tc.SetNoDelay(true)
	}
	c := newConn(s, nc)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if len(s.conns) >= s.cfg.MaxConns {
		s.cfg.Logger.Warn("too many connections; closing the new one", "peer", nc.RemoteAddr(), "max", s.cfg.MaxConns)
		return nil, errors.New("oncrpc: too many connections")
	}
	s.start.Do(func() {
		s.wg.Add(1)
		go s.clock()
	})
	s.conns[c] = struct{}{}
	s.wg.Add(1)
	go c.readLoop()
	return c, nil
}

// forget drops a connection that has ended.
func (s *Server) forget(c *Conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.wg.Done()
}

// snapshot returns the connections.
func (s *Server) snapshot() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Conn, 0, len(s.conns))
	for c := range s.conns {
		all = append(all, c)
	}
	return all
}

// stop ends accepting.
func (s *Server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for ln := range s.listeners {
		_ = ln.Close()
	}
}

// Shutdown stops accepting connections and reading calls, lets the calls that
// are under way end and their replies be written, and closes everything. When
// ctx ends it closes at once and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	for _, c := range s.snapshot() {
		c.drain()
	}
	done := make(chan struct{})
	go func() {
		for _, c := range s.snapshot() {
			<-c.done
		}
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.Close()
	<-done
	return err
}

// Close closes all listeners and connections at once, ends the context of all
// calls, and waits for them.
func (s *Server) Close() {
	s.stop()
	s.cancel()
	for _, c := range s.snapshot() {
		c.close(ErrClosed)
	}
	s.wg.Wait()
	s.workers.close()
}

// clock advances the coarse time and applies the time-outs.
func (s *Server) clock() {
	defer s.wg.Done()
	t := time.NewTicker(tickLen)
	defer t.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-t.C:
		}
		now := s.tick.Add(1)
		s.expire(now)
		if now%trimEvery == 0 {
			s.workers.trim()
		}
	}
}

// ticks returns how many ticks are at least d.
func ticks(d time.Duration) int64 { return int64((d + tickLen - 1) / tickLen) }

// expire closes the connections whose time is up, and, if unwritten replies
// fill the memory kept for them, the one that holds most of it.
func (s *Server) expire(now int64) {
	write, read, idle := ticks(s.cfg.WriteTimeout), ticks(s.cfg.ReadTimeout), ticks(s.cfg.IdleTimeout)
	over := s.unsent.Load() > int64(s.cfg.ReplyMemory)
	var worst *Conn
	var most int
	for _, c := range s.snapshot() {
		stalled := c.writeSince.Load()
		switch since := c.readSince.Load(); {
		case stalled != 0 && now-stalled > write:
			c.close(errSlowWrite)
		case since != 0 && now-since > read:
			c.close(errSlowRead)
		case s.cfg.IdleTimeout > 0 && now-c.active.Load() > idle && c.isIdle():
			c.close(errIdle)
		case over && stalled != 0 && now-stalled >= 4:
			if n := c.unsentBytes(); n > most {
				worst, most = c, n
			}
		}
	}
	if worst != nil {
		worst.close(errOverloaded)
	}
}
