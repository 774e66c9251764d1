package volume

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// benchmarkApply applies the commands of next in batches, as a group with many
// proposers has them.
func benchmarkApply(b *testing.B, batch int, next func(e *dataEnv, i int) fsm.Body) {
	e := newDataSized(b, 64<<20)
	defer e.close()
	e.open("a", "n1")
	entries := make([]cluster.Entry, 0, batch)
	b.ReportAllocs()
	for i := 0; i < b.N; {
		b.StopTimer()
		entries = entries[:0]
		for ; i < b.N && len(entries) < batch; i++ {
			c := next(e, i)
			entries = append(entries, e.entry("a", c))
		}
		e.log = e.log[:0]
		b.StartTimer()
		for _, r := range e.m.Apply(entries) {
			if r[0]|r[1] != 0 {
				b.Fatalf("result %x", r)
			}
		}
	}
}

// benchFiles makes n files, once, and returns the one for step i.
func benchFiles(e *dataEnv, inos *[]cluster.Ino, n, i int) cluster.Ino {
	if len(*inos) == 0 {
		for k := range n {
			*inos = append(*inos, e.create(string([]byte{byte('a' + k/26/26%26), byte('a' + k/26%26), byte('a' + k%26)})))
		}
	}
	return (*inos)[i%n]
}

const benchBatch = 64

// BenchmarkAppendInline: 4 KiB writes that extend files.
func BenchmarkAppendInline(b *testing.B) {
	page := make([]byte, 4096)
	var inos []cluster.Ino
	benchmarkApply(b, benchBatch, func(e *dataEnv, i int) fsm.Body {
		ino := benchFiles(e, &inos, 100, i)
		return CommitExtents{Ino: ino, Extents: []NewExtent{inline(uint64(i/100)*4096, page)}}
	})
}

// BenchmarkOverwriteInline: 4 KiB writes at random places of a file.
func BenchmarkOverwriteInline(b *testing.B) {
	page := make([]byte, 4096)
	rnd := rand.New(rand.NewPCG(1, 2))
	var inos []cluster.Ino
	benchmarkApply(b, benchBatch, func(e *dataEnv, i int) fsm.Body {
		ino := benchFiles(e, &inos, 1, 0)
		return CommitExtents{Ino: ino, Extents: []NewExtent{inline(uint64(rnd.IntN(1000))*4096, page)}}
	})
}

// BenchmarkAppendLine: 100-byte writes that extend a file.
func BenchmarkAppendLine(b *testing.B) {
	line := make([]byte, 100)
	var inos []cluster.Ino
	benchmarkApply(b, benchBatch, func(e *dataEnv, i int) fsm.Body {
		ino := benchFiles(e, &inos, 1, 0)
		return CommitExtents{Ino: ino, Extents: []NewExtent{inline(uint64(i)*100, line)}}
	})
}

// BenchmarkAppendBlob: commits of 4 MiB blobs that extend files.
func BenchmarkAppendBlob(b *testing.B) {
	var inos []cluster.Ino
	var set ReplicaSet
	benchmarkApply(b, benchBatch, func(e *dataEnv, i int) fsm.Body {
		ino := benchFiles(e, &inos, 100, i)
		if set.ID == 0 || i == 0 {
			set = e.set(1, 2)
		}
		c := commitOf(ino, e.blob("a", set, cluster.MaxBlob))
		c.Extents[0].Off = uint64(i/100) * cluster.MaxBlob
		return c
	})
}

// BenchmarkOverwriteBlob: commits of blobs in place of others.
func BenchmarkOverwriteBlob(b *testing.B) {
	var inos []cluster.Ino
	var set ReplicaSet
	benchmarkApply(b, benchBatch, func(e *dataEnv, i int) fsm.Body {
		ino := benchFiles(e, &inos, 100, i)
		if set.ID == 0 || i == 0 {
			set = e.set(1, 2)
		}
		return commitOf(ino, e.blob("a", set, cluster.MaxBlob))
	})
}

// BenchmarkCreateOrigin: creates of files, without an origin, with one, and with an
// open that is recorded, too.
func BenchmarkCreateOrigin(b *testing.B) {
	for _, c := range []struct {
		name         string
		tagged, open bool
	}{{"plain", false, false}, {"tagged", true, false}, {"open", true, true}} {
		b.Run(c.name, func(b *testing.B) {
			benchmarkApply(b, benchBatch, func(e *dataEnv, i int) fsm.Body {
				e.origin = fsm.Origin{}
				if c.tagged {
					e.origin = fsm.Origin{Session: [16]byte{byte(i % 4), 1}, Slot: uint32(i / 4 % 16), Seq: uint32(i / 64), Ordered: true}
				}
				m := Create{Dir: cluster.RootIno, Name: strconv.Itoa(i), Type: cluster.TypeRegular, Gen: 1}
				if c.open {
					m.Open = &State{Other: StateID{byte(i), byte(i >> 8), byte(i >> 16)}, Client: uint64(i % 4), Access: ShareWrite, Owner: []byte("open id:12345678")}
				}
				return m
			})
		})
	}
}
