package client

import (
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// An Offload is how an asynchronous copy has ended.
type Offload struct {
	Status proto.Status
	Count  uint64 // bytes that were copied
	// If Status is OK:
	Committed uint32
	Verifier  uint64
}

// offload is CB_OFFLOAD (RFC 7862 §16.1).
func (s *callbackService) offload(d *xdr.Decoder) proto.Status {
	d.Opaque(proto.FHSize)
	id := getStateid(d)
	o := Offload{Status: proto.Status(d.Uint32())}
	if o.Status == proto.OK {
		for range d.Count(1, 16) {
			getStateid(d)
		}
		o.Count, o.Committed, o.Verifier = d.Uint64(), d.Uint32(), d.Uint64()
	} else {
		o.Count = d.Uint64()
	}
	if d.Err() != nil {
		return proto.ErrBadxdr
	}
	id.Seqid = 0
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offloads[id] = o
	close(s.ended)
	s.ended = make(chan struct{})
	return proto.OK
}
