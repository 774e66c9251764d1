package nfsd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
)

// handlers returns the handlers of programs, with groups looked up.
func (s *Server) handlers(programs []oncrpc.Program) []oncrpc.Handler {
	all := make([]oncrpc.Handler, len(programs))
	for i := range programs {
		all[i] = programs[i].Handler
		if s.groups != nil {
			all[i] = s.groups.Handler(all[i])
		}
	}
	return all
}

// ServeAddress has connections to a floating address served by handlers, one
// for each of Config.Programs, from now on. The address need not be on an
// interface yet. What served it before is dropped, as by RefuseAddress.
func (s *Server) ServeAddress(addr netip.Addr, handlers ...oncrpc.Handler) error {
	if len(handlers) != len(s.routes.own.handlers) {
		return fmt.Errorf("nfsd: %d handlers for %d programs", len(handlers), len(s.routes.own.handlers))
	}
	programs := make([]oncrpc.Program, len(handlers))
	for i, h := range handlers {
		programs[i].Handler = h
	}
	s.RefuseAddress(addr)
	x := newService(s.handlers(programs))
	if !s.covers(addr) {
		var err error
		if x.ln, err = s.listenFloating(addr); err != nil {
			return err
		}
	}
	if old := s.routes.set(addr, x); old != nil {
		s.end(old) // another call has been faster
	}
	if x.ln != nil {
		s.wg.Go(func() {
			if err := s.rpc.Serve(x.ln); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, oncrpc.ErrClosed) {
				s.logger.Error("no longer serving NFS on a floating address", "addr", x.ln.Addr(), "err", err)
			}
		})
	}
	return nil
}

// RefuseAddress says that a floating address is not served here, or no more:
// its connections are closed at once, no reply is sent on them any more, and a
// connection that is made to it is not taken for one of another address.
func (s *Server) RefuseAddress(addr netip.Addr) {
	if old := s.routes.set(addr, nil); old != nil {
		s.end(old)
	}
}

// ForgetAddress says that an address is no floating one any more.
func (s *Server) ForgetAddress(addr netip.Addr) {
	s.RefuseAddress(addr)
	s.routes.mu.Lock()
	defer s.routes.mu.Unlock()
	delete(s.routes.floating, addr)
}

func (s *Server) end(x *service) {
	if x.ln != nil {
		_ = x.ln.Close()
	}
	s.routes.drop(x)
}

// Clients returns the client ends of the connections to a floating address that
// have made a call; those of all other addresses for the zero Addr.
func (s *Server) Clients(addr netip.Addr) (all []netip.AddrPort) {
	s.routes.mu.Lock()
	defer s.routes.mu.Unlock()
	x := s.routes.own
	if addr.IsValid() {
		if x = s.routes.floating[addr]; x == nil {
			return nil
		}
	}
	for c := range x.conns {
		all = append(all, addrPort(c.RemoteAddr()))
	}
	return all
}

// Port returns the port on which floating addresses are served.
func (s *Server) Port() uint16 { return addrPort(s.lns[0].Addr()).Port() }

// covers reports whether one of Config.Listen takes connections to all
// addresses, and so to this one.
func (s *Server) covers(addr netip.Addr) bool {
	for _, ln := range s.lns {
		p := addrPort(ln.Addr())
		// An IPv6 socket for all addresses takes IPv4 too.
		t, ok := ln.Addr().(*net.TCPAddr)
		all6 := ok && t.IP.To4() == nil
		if p.Addr().IsUnspecified() && (all6 || addr.Is4()) && p.Port() == s.Port() {
			return true
		}
	}
	return false
}

// listenFloating listens on an address that need not be here yet: a client
// must not find the address without anybody who listens.
func (s *Server) listenFloating(addr netip.Addr) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive, Control: func(_, _ string, c syscall.RawConn) error {
		var fault error
		err := c.Control(func(fd uintptr) {
			level, option := unix.SOL_IP, unix.IP_FREEBIND
			if addr.Is6() {
				level, option = unix.SOL_IPV6, unix.IPV6_FREEBIND
			}
			fault = unix.SetsockoptInt(int(fd), level, option, 1)
		})
		return errors.Join(err, fault)
	}}
	at := netip.AddrPortFrom(addr, s.Port()).String()
	ln, err := lc.Listen(context.Background(), "tcp", at)
	if err != nil {
		return nil, fmt.Errorf("nfsd: listening for NFS clients on the floating address %s: %w", at, err)
	}
	return ln, nil
}
