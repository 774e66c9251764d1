package nfs4

import (
	"hash/crc32"
	"net"
	"net/netip"
	"sync"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// NFSv4.0 has no sessions: what tells a retransmission from a new request is
// the connection's other end, the RPC's number, and what is asked (RFC 7530
// §16.33.5 and §16.34.5 count on such a cache). A client sends again only after
// it has lost its connection, and Linux then uses the same port, so the port is
// part of the key: the numbers of two connections of one machine may be alike.

const (
	replayShards = 16
	// maxReplays and maxReplayBytes bound the replies that a shard keeps:
	// 32 Ki replies and 32 MiB altogether.
	maxReplays     = 2048
	maxReplayBytes = 2 << 20
	// maxReplay is the largest reply that is kept, in bytes. Those to requests
	// that change something are small, unless they read as well.
	maxReplay = 8 << 10
	// replayAge is how long a reply can be asked for again: longer than a client
	// goes on trying to reconnect before it gives a request up.
	replayAge = cluster.Time(10 * 60 * 1e9)
	// replaySum is how much of a request its checksum is of, in bytes.
	replaySum = 1 << 10
)

// A replayKey names a request.
type replayKey struct {
	peer     netip.AddrPort
	xid, sum uint32
}

// A replay is a request that changes something, and its reply.
type replay struct {
	key    replayKey
	at     cluster.Time // when it ended
	busy   bool
	reply  []byte
	parked []chan []byte
}

// A replayCache answers retransmissions.
type replayCache struct {
	shards [replayShards]replayShard
}

type replayShard struct {
	mu    sync.Mutex
	m     map[replayKey]*replay
	ended []*replay // the oldest first
	bytes int
}

func (r *replayCache) shard(k replayKey) *replayShard {
	return &r.shards[(k.xid^k.sum)%replayShards]
}

// begin takes up a request. A retransmission gets the reply, or, while the first
// is being executed, a channel for it, on which nil means: begin again. Otherwise
// the caller executes the request, and ends the replay that it gets.
func (r *replayCache) begin(k replayKey, now cluster.Time) (reply []byte, wait <-chan []byte, fresh *replay) {
	s := r.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch x := s.m[k]; {
	case x == nil:
	case x.busy:
		ch := make(chan []byte, 1)
		x.parked = append(x.parked, ch)
		return nil, ch, nil
	case now-x.at <= replayAge:
		return x.reply, nil, nil
	}
	if s.m == nil {
		s.m = make(map[replayKey]*replay)
	}
	x := &replay{key: k, busy: true}
	s.m[k] = x
	return nil, nil, x
}

// awaited reports whether a retransmission waits for the reply.
func (r *replayCache) awaited(x *replay) bool {
	s := r.shard(x.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(x.parked) > 0
}

// end ends a request: reply is what a retransmission is sent from now on, nil if it has
// to be executed again. whole is what those that wait already are sent, nil likewise.
func (r *replayCache) end(x *replay, now cluster.Time, reply, whole []byte) {
	s := r.shard(x.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ch := range x.parked {
		ch <- whole
	}
	x.parked, x.busy = nil, false
	if reply == nil {
		delete(s.m, x.key)
		return
	}
	x.at, x.reply = now, append([]byte(nil), reply...)
	s.ended = append(s.ended, x)
	s.bytes += len(reply)
	drop := 0
	for len(s.ended)-drop > maxReplays || s.bytes > maxReplayBytes {
		old := s.ended[drop]
		s.ended[drop] = nil
		drop++
		s.bytes -= len(old.reply)
		if s.m[old.key] == old {
			delete(s.m, old.key)
		}
	}
	s.ended = s.ended[drop:]
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is of what a call asks for, and in whose name.
func checksum(call *oncrpc.Call, peer netip.AddrPort) uint32 {
	size := call.Args.Offset() + call.Args.Remaining()
	var e xdr.Encoder
	var room [64]byte
	e.Init(room[:0])
	e.Uint32(uint32(size))
	e.Uint32(uint32(peer.Port()))
	e.Uint32(uint32(call.Cred.Flavor))
	if a := call.Cred.Sys; a != nil {
		e.Uint32(a.UID)
		e.Uint32(a.GID)
	}
	sum := crc32.Update(0, castagnoli, e.Bytes())
	return crc32.Update(sum, castagnoli, call.Args.Between(0, min(size, replaySum)))
}

// peerOf returns a call's other end.
func peerOf(call *oncrpc.Call) netip.AddrPort {
	if call.Conn == nil {
		return netip.AddrPort{}
	}
	a, ok := call.Conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := a.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}
