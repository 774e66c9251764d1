package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
)

// The workloads on large files: one for each job.
var (
	seqWrite = &workload{
		name: "seq-write", op: "WRITE of the next block of a new file", data: true,
		prepare:  func(ctx context.Context, t *target) error { return t.newFiles(ctx) },
		amount:   func(cfg *Config) int { return blocks(cfg, cfg.Block) },
		do:       func(ctx context.Context, w *worker, i int) error { return w.write(ctx, i, w.t.cfg.Block) },
		finish:   commit,
		complete: fill,
	}
	seqRead = &workload{
		name: "seq-read", op: "READ of the next block", data: true, read: true,
		prepare: haveFiles,
		do: func(ctx context.Context, w *worker, i int) error {
			return w.read(ctx, i%blocks(w.t.cfg, w.t.cfg.Block), w.t.cfg.Block)
		},
	}
	randRead = &workload{
		name: "rand-read", op: "READ of a random block", data: true, read: true,
		prepare: haveFiles,
		do: func(ctx context.Context, w *worker, i int) error {
			n := w.t.cfg.RandomBlock
			return w.read(ctx, w.t.content.pick(w.id, i, blocks(w.t.cfg, n)), n)
		},
	}
	randWrite = &workload{
		name: "rand-write", op: "WRITE of a random block of an existing file", data: true,
		prepare: haveFiles,
		do: func(ctx context.Context, w *worker, i int) error {
			n := w.t.cfg.RandomBlock
			return w.write(ctx, w.t.content.pick(w.id, i, blocks(w.t.cfg, n)), n)
		},
		finish: commit,
	}
)

// blocks returns how many blocks of size a job's file has.
func blocks(cfg *Config, size int) int { return int(cfg.FileSize / int64(size)) }

// stability is what WRITEs ask for.
func (cfg *Config) stability() uint32 {
	if cfg.Sync {
		return proto.FileSync
	}
	return proto.Unstable
}

func fileName(job int) string { return "file" + strconv.Itoa(job) }

// newFiles gives each job an empty file.
func (t *target) newFiles(ctx context.Context) error {
	if err := t.closeFiles(ctx); err != nil {
		return err
	}
	files := make([]*client.File, t.cfg.Jobs)
	err := t.parallel(ctx, len(files), func(ctx context.Context, i int) (err error) {
		if _, err := t.c.Remove(ctx, t.home, fileName(i)); err != nil && !errors.Is(err, proto.ErrNoent) {
			return err
		}
		files[i], err = t.c.CreateFile(ctx, t.home, fileName(i), 0o644)
		return err
	})
	t.files = files
	return err
}

// closeFiles closes the jobs' files.
func (t *target) closeFiles(ctx context.Context) error {
	files := t.files
	t.files = nil
	return t.everything(ctx, len(files), func(ctx context.Context, i int) error {
		if files[i] == nil {
			return nil
		}
		return files[i].Close(ctx)
	})
}

// haveFiles writes the jobs' files, if they are not there.
func haveFiles(ctx context.Context, t *target) error {
	if t.files != nil {
		return nil
	}
	if err := t.newFiles(ctx); err != nil {
		return err
	}
	return fill(ctx, t, t.jobs())
}

// fill writes what jobs have not written of their files.
func fill(ctx context.Context, t *target, jobs []*job) error {
	n := blocks(t.cfg, t.cfg.Block)
	for _, j := range jobs {
		done := min(int(j.next.Load()), n)
		err := t.parallel(ctx, n-done, func(ctx context.Context, i int) error {
			return (&worker{job: j}).write(ctx, done+i, t.cfg.Block)
		})
		if err != nil {
			return err
		}
		if err := commit(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

// write writes block i of the job's file.
func (w *worker) write(ctx context.Context, i, size int) error {
	off := int64(i) * int64(size)
	p := w.t.content.at(uint64(w.id), off, size)
	w.bytes += int64(size)
	_, err := w.job.writeAll(ctx, w.file, off, p)
	return err
}

// writeAll writes p in as many WRITEs as the server makes of it, and reports
// whether that needs a COMMIT.
func (j *job) writeAll(ctx context.Context, f *client.File, off int64, p []byte) (unstable bool, err error) {
	for len(p) > 0 {
		got, err := f.Write(ctx, uint64(off), p, j.t.cfg.stability())
		if err != nil {
			return unstable, err
		}
		if got.Count < 1 || got.Count > len(p) {
			return unstable, fmt.Errorf("the server says that it wrote %d bytes of %d", got.Count, len(p))
		}
		if j.t.cfg.Sync && got.Committed == proto.Unstable {
			return unstable, errors.New("the server answers UNSTABLE to a WRITE that asks for FILE_SYNC: it can't be measured with --sync")
		}
		j.wrote(got)
		unstable = unstable || got.Committed == proto.Unstable
		off, p = off+int64(got.Count), p[got.Count:]
	}
	return unstable, nil
}

// commit makes the job's large file durable, if a WRITE left that to be done.
func commit(ctx context.Context, j *job) error {
	if j.unstable.Load() == 0 {
		return nil
	}
	return j.commit(ctx, j.file)
}

// commit sends COMMIT, and sees to it that it is of all that the job has written.
func (j *job) commit(ctx context.Context, f *client.File) error {
	v, err := f.Commit(ctx)
	if err == nil && (j.changed.Load() || v != j.verifier.Load()) {
		return errors.New("the server restarted meanwhile, so that what was measured was not made durable: measure again")
	}
	return err
}

// read reads block i of the job's file.
func (w *worker) read(ctx context.Context, i, size int) error {
	off := int64(i) * int64(size)
	w.bytes += int64(size)
	return w.readAll(ctx, w.file, uint64(w.id), off, size)
}

// readAll reads n bytes in as many READs as the server makes of it. The file is
// the number that its content is known by.
func (w *worker) readAll(ctx context.Context, f *client.File, file uint64, off int64, n int) error {
	for n > 0 {
		got, err := 0, error(nil)
		if w.verify {
			if len(w.buf) < n {
				w.buf = make([]byte, n)
			}
			got, _, err = f.Read(ctx, uint64(off), w.buf[:n])
			if err == nil && !bytes.Equal(w.buf[:got], w.t.content.at(file, off, got)) {
				return fmt.Errorf("WRONG DATA: %d bytes at %d of a file are not what was written there", got, off)
			}
		} else {
			got, err = f.ReadDiscard(ctx, uint64(off), n)
		}
		switch {
		case err != nil:
			return err
		case got == 0:
			return fmt.Errorf("the file ends at %d, where %d bytes more were written: %w", off, n, io.ErrUnexpectedEOF)
		}
		off, n = off+int64(got), n-got
	}
	return nil
}
