package oncrpc

import (
	"io"
	"net"
	"syscall"
)

// A source reads from a connection ahead of what is asked for, through a
// buffer that it holds only while there is something in it.
type source struct {
	nc   net.Conn
	raw  syscall.RawConn // nil: not to be had from this kind of connection
	buf  *buffer
	r, w int // buf.b[r:w] was read and not consumed

	// What attempt left behind; attempt is kept since a method value allocates.
	attempt func(fd uintptr) bool
	n       int
	err     error
	small   [16]byte // where the first bytes go without raw
}

// init makes s read from nc.
func (s *source) init(nc net.Conn) {
	s.nc = nc
	if sc, ok := nc.(syscall.Conn); ok {
		s.raw, _ = sc.SyscallConn()
	}
	s.attempt = s.tryRead
}

// buffered returns how many bytes were read and not consumed.
func (s *source) buffered() int { return s.w - s.r }

// peek returns the next n bytes (n <= readSize), which must be buffered.
func (s *source) peek(n int) []byte { return s.buf.b[s.r : s.r+n] }

// fill reads until n bytes (n <= readSize) are buffered.
func (s *source) fill(n int) error {
	for s.buffered() < n {
		if s.buffered() == 0 {
			if err := s.first(); err != nil {
				return err
			}
			continue
		}
		if s.r > 0 && len(s.buf.b)-s.r < n {
			s.w = copy(s.buf.b, s.buf.b[s.r:s.w])
			s.r = 0
		}
		m, err := s.nc.Read(s.buf.b[s.w:])
		s.w += m
		if m == 0 && err != nil {
			return err
		}
	}
	return nil
}

// first waits for bytes without holding a buffer, then reads into one.
func (s *source) first() error {
	s.release()
	if s.raw == nil {
		n, err := s.nc.Read(s.small[:])
		if n == 0 {
			if err == nil {
				err = io.ErrNoProgress
			}
			return err
		}
		s.buf = getReadBuffer()
		s.r, s.w = 0, copy(s.buf.b, s.small[:n])
		return nil
	}
	s.n, s.err = 0, nil
	if err := s.raw.Read(s.attempt); err != nil {
		return err
	}
	if s.err != nil {
		return s.err
	}
	s.r, s.w = 0, s.n
	return nil
}

// tryRead reads without waiting. It reports false if there is nothing to read yet.
func (s *source) tryRead(fd uintptr) bool {
	b := getReadBuffer()
	for {
		n, err := syscall.Read(int(fd), b.b)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			b.free()
			return false
		case err != nil:
			b.free()
			s.err = err
		case n == 0:
			b.free()
			s.err = io.EOF
		default:
			s.buf, s.n = b, n
		}
		return true
	}
}

// read fills p, with what is buffered first.
func (s *source) read(p []byte) error {
	n := copy(p, s.buf.b[s.r:s.w])
	s.r += n
	if n == len(p) {
		return nil
	}
	_, err := io.ReadFull(s.nc, p[n:])
	return err
}

// skip consumes n bytes.
func (s *source) skip(n int) error {
	for {
		m := min(n, s.buffered())
		s.r += m
		n -= m
		if n == 0 {
			return nil
		}
		if err := s.fill(1); err != nil {
			return err
		}
	}
}

// release gives the buffer back. It must be empty, or of no more use.
func (s *source) release() {
	s.buf.free()
	s.buf, s.r, s.w = nil, 0, 0
}
