package client

import (
	"net"
	"testing"
	"time"
)

// TestSamePort takes the port of a connection that was lost for a moment: the next one is
// from there all the same.
func TestSamePort(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	nc, err := samePort(t.Context(), ln.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	before := nc.LocalAddr()
	_ = nc.(*net.TCPConn).SetLinger(0)
	_ = nc.Close()
	taken, err := net.Listen("tcp", before.String())
	if err != nil {
		t.Fatal(err)
	}
	release := time.AfterFunc(100*time.Millisecond, func() { _ = taken.Close() })
	defer release.Stop()
	nc, err = samePort(t.Context(), ln.Addr().String(), before)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if nc.LocalAddr().String() != before.String() {
		t.Errorf("the connection after that from %v is from %v", before, nc.LocalAddr())
	}
}
