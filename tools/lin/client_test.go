package lin

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
)

const (
	blockSize = 4096
	files     = 2
	blocks    = 3
	dirs      = 2
)

// opTimeout is how long a client waits before it gives an operation up. Its
// outcome is unknown then.
const opTimeout = 2 * time.Second

// tokens numbers what is written.
var tokens atomic.Uint64

// A place is what the clients work on.
type place struct {
	dirs, files []client.FH
	stable      uint32 // of writes
}

// A worker is one client of one node. It does one operation at a time.
type worker struct {
	t    *testing.T
	id   int
	addr string
	rng  *rand.Rand
	rec  *Recorder
	at   *place
	c    *client.Client

	done, unknown *atomic.Int64
}

// connect makes a client, or reports false if it could not.
func (w *worker) connect() bool {
	if w.c != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	c, err := client.Dial(ctx, w.addr, client.Options{Slots: 2, NoRetry: true})
	if err != nil {
		time.Sleep(50 * time.Millisecond)
		return false
	}
	w.c = c
	return true
}

func (w *worker) drop() {
	if w.c != nil {
		_ = w.c.Abort()
		w.c = nil
	}
}

// status returns the NFS status that ended a compound, which is its outcome.
func status(err error) (proto.Status, bool) {
	if err == nil {
		return proto.OK, true
	}
	if e, ok := errors.AsType[*client.OpError](err); ok {
		return e.Status, true
	}
	return 0, false
}

// do sends a compound and records its outcome. get takes the results, and
// returns the output; a status that it does not know of says that nothing was done.
func (w *worker) do(input any, changes bool, ops *client.Compound, get func(*client.Results) (any, error)) {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	_, sessions, _ := w.c.Stats()
	call := w.rec.Now()
	output, err := func() (any, error) {
		r, err := w.c.Do(ctx, ops.Cached(changes))
		if err != nil {
			return nil, err
		}
		defer r.Release()
		return get(r)
	}()
	if _, now, _ := w.c.Stats(); changes && now != sessions {
		// It was sent in a session that has ended, and again in a new one.
		w.rec.Unknown(w.id, call, input)
		w.unknown.Add(1)
	}
	s, known := status(err)
	switch {
	case !known:
		if changes {
			w.rec.Unknown(w.id, call, input)
		}
		w.unknown.Add(1)
		w.drop()
	case s == proto.OK:
		w.rec.Done(w.id, call, input, output)
		w.done.Add(1)
	case s == proto.ErrDelay || s == proto.ErrGrace:
		time.Sleep(5 * time.Millisecond)
	case !changes && s == proto.ErrStale: // removed before it was looked at
	default:
		w.t.Errorf("%+v: %v", input, err)
	}
}

func (w *worker) block() {
	b := Block{File: w.rng.IntN(files), Block: w.rng.IntN(blocks), Write: w.rng.IntN(2) == 0}
	off := uint64(b.Block) * blockSize
	put := func() *client.Compound { return client.NewCompound().PutFH(w.at.files[b.File]) }
	if b.Write {
		b.Token = Token(tokens.Add(1))
		p := bytes.Repeat(binary.BigEndian.AppendUint64(nil, uint64(b.Token)), blockSize/8)
		w.do(b, true, put().Write(client.Stateid{}, off, p, w.at.stable), func(r *client.Results) (any, error) {
			d, err := r.OK(proto.OpPutfh, proto.OpWrite)
			if err != nil {
				return nil, err
			}
			if n := d.Uint32(); n != blockSize {
				return nil, fmt.Errorf("%d bytes written", n)
			}
			return nil, nil
		})
		return
	}
	w.do(b, false, put().Read(client.Stateid{}, off, blockSize), func(r *client.Results) (any, error) {
		d, err := r.OK(proto.OpPutfh, proto.OpRead)
		if err != nil {
			return nil, err
		}
		d.Bool()
		return w.token(b, d.Opaque(blockSize)), nil
	})
}

// token returns what was written into a block, which must be whole.
func (w *worker) token(b Block, p []byte) Token {
	if len(p) != blockSize || !bytes.Equal(p[8:], p[:blockSize-8]) {
		w.t.Errorf("file %d, block %d: %d bytes of several writes", b.File, b.Block, len(p))
		return 0
	}
	return Token(binary.BigEndian.Uint64(p))
}

func (w *worker) name() {
	n := Name{Dir: w.rng.IntN(dirs), Name: w.rng.IntN(Names), Op: []string{Create, Lookup, Lookup, Remove, Rename}[w.rng.IntN(5)]}
	text := func(i int) string { return "name" + strconv.Itoa(i) }
	ops := client.NewCompound().PutFH(w.at.dirs[n.Dir])
	result := func(status proto.Status, before ...proto.Op) func(*client.Results) (any, error) {
		return func(r *client.Results) (any, error) {
			_, err := r.OK(before...)
			if errors.Is(err, status) {
				return Found{}, nil
			}
			return Found{OK: true}, err
		}
	}
	switch n.Op {
	case Create:
		n.New = Token(tokens.Add(1))
		ops.Create(text(n.Name), proto.TypeLnk, strconv.FormatUint(uint64(n.New), 10), 0, 0, &client.SetAttr{})
		w.do(n, true, ops, result(proto.ErrExist, proto.OpPutfh, proto.OpCreate))
	case Remove:
		w.do(n, true, ops.Remove(text(n.Name)), result(proto.ErrNoent, proto.OpPutfh, proto.OpRemove))
	case Rename:
		n.To = (n.Name + 1 + w.rng.IntN(Names-1)) % Names
		ops.Plain(proto.OpSavefh).Rename(text(n.Name), text(n.To))
		w.do(n, true, ops, result(proto.ErrNoent, proto.OpPutfh, proto.OpSavefh, proto.OpRename))
	case Lookup:
		w.do(n, false, ops.Lookup(text(n.Name)).Plain(proto.OpReadlink), func(r *client.Results) (any, error) {
			_, err := r.OK(proto.OpPutfh, proto.OpLookup)
			if errors.Is(err, proto.ErrNoent) {
				return Found{}, nil
			}
			if err != nil {
				return nil, err
			}
			d, err := r.OK(proto.OpReadlink)
			if err != nil {
				return nil, err
			}
			token, err := strconv.ParseUint(d.String(100), 10, 64)
			return Found{OK: true, Token: Token(token)}, err
		})
	}
}

// work does operations until stop is closed.
func (w *worker) work(op func(), stop <-chan struct{}) {
	defer w.drop()
	for {
		select {
		case <-stop:
			return
		default:
		}
		if w.connect() {
			op()
		}
	}
}

// makePlace makes a directory of a volume with files and directories in it.
func makePlace(t *testing.T, addr, volume, name string, stable uint32) *place {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, addr, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := &place{stable: stable}
	root, err := c.Walk(ctx, volume)
	if err == nil {
		root, err = c.Mkdir(ctx, root, name, 0o777)
	}
	for i := 0; i < dirs && err == nil; i++ {
		var fh client.FH
		fh, err = c.Mkdir(ctx, root, fmt.Sprint("dir", i), 0o777)
		p.dirs = append(p.dirs, slices.Clone(fh))
	}
	for i := 0; i < files && err == nil; i++ {
		var f *client.File
		if f, err = c.CreateFile(ctx, root, fmt.Sprint("file", i), 0o666); err == nil {
			p.files = append(p.files, slices.Clone(f.FH()))
			err = errors.Join(f.Truncate(ctx, blocks*blockSize), f.Close(ctx))
		}
	}
	if err = errors.Join(err, c.Close(ctx)); err != nil {
		t.Fatal(err)
	}
	return p
}
