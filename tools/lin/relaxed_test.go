package lin

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
)

// A courier writes files of the relaxed class through one node, and reads them
// through another one once they are closed.
type courier struct {
	t    *testing.T
	rng  *rand.Rand
	dir  client.FH
	addr [2]string // of the writer's and the reader's node
	name string    // of the file; another one after trouble
	seq  uint64
	c    [2]*client.Client

	closed, lost *atomic.Int64
}

// run works until stop is closed. When something is not answered in time it
// goes on with another file, since the old one may be written yet.
func (k *courier) run(stop <-chan struct{}) {
	defer k.drop()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		if k.name == "" {
			k.name = fmt.Sprintf("%s-%x", k.addr, k.rng.Uint64())
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if err := k.once(ctx); err != nil {
			if _, known := status(err); known && ctx.Err() == nil {
				k.t.Errorf("relaxed: %v", err)
			}
			k.drop()
			k.name = ""
			time.Sleep(20 * time.Millisecond)
		}
		cancel()
	}
}

func (k *courier) drop() {
	for i, c := range k.c {
		if c != nil {
			_ = c.Abort()
			k.c[i] = nil
		}
	}
}

func (k *courier) once(ctx context.Context) error {
	for i := range k.c {
		if k.c[i] == nil {
			c, err := client.Dial(ctx, k.addr[i], client.Options{Slots: 2})
			if err != nil {
				return err
			}
			k.c[i] = c
		}
	}
	f, err := k.c[0].CreateFile(ctx, k.dir, k.name, 0o666)
	if err != nil {
		return err
	}
	for kept := false; !kept; {
		if kept, err = k.write(ctx, f); err != nil {
			return err
		}
	}
	if err := f.Close(ctx); err != nil {
		return err
	}
	g, _, err := k.c[1].Open(ctx, k.dir, k.name, nil)
	if err != nil {
		return fmt.Errorf("opening what was closed elsewhere: %w", err)
	}
	for block := range uint64(blocks) {
		got, err := readToken(ctx, g, block)
		if err != nil {
			return err
		}
		if got != k.seq {
			k.t.Errorf("file %s, block %d: %d is read after %d was written and the file closed", k.name, block, got, k.seq)
		}
	}
	k.closed.Add(1)
	return g.Close(ctx)
}

// write writes all blocks and commits them. It reports false if the server
// says that it may have lost something.
func (k *courier) write(ctx context.Context, f *client.File) (kept bool, err error) {
	k.seq++
	p := bytes.Repeat(binary.BigEndian.AppendUint64(nil, k.seq), blockSize/8)
	var verifiers []uint64
	var wrong error
	order := k.rng.Perm(blocks)
	for _, block := range order {
		w, err := f.Write(ctx, uint64(block)*blockSize, p, proto.Unstable)
		if err != nil {
			return false, err
		}
		verifiers = append(verifiers, w.Verifier)
	}
	for _, block := range order {
		got, err := readToken(ctx, f, uint64(block))
		if err != nil {
			return false, err
		}
		if got != k.seq {
			wrong = fmt.Errorf("file %s, block %d: a client reads %d after it wrote %d", k.name, block, got, k.seq)
		}
	}
	v, err := f.Commit(ctx)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(verifiers, func(w uint64) bool { return w != v }) {
		k.lost.Add(1)
		return false, nil
	}
	if wrong != nil {
		k.t.Error(wrong)
	}
	return true, nil
}

func readToken(ctx context.Context, f *client.File, block uint64) (uint64, error) {
	p := make([]byte, blockSize)
	n, _, err := f.Read(ctx, block*blockSize, p)
	if err != nil {
		return 0, err
	}
	if n != blockSize {
		return 0, nil
	}
	if !bytes.Equal(p[8:], p[:blockSize-8]) {
		return 0, errors.New("a block has bytes of several writes")
	}
	return binary.BigEndian.Uint64(p), nil
}
