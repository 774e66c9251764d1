package bench

import (
	"context"
	"strconv"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
)

// A flatDir is one directory with all files in it, made by all jobs.
type flatDir struct {
	dir     client.FH
	handles []client.FH // of some of the files
}

const flatName = "flat"

// The workloads on one large directory of empty files.
var (
	create = &workload{
		name: "create", op: "OPEN that creates an empty file in one directory for all jobs, and CLOSE",
		prepare: func(ctx context.Context, t *target) error { return t.newFlat(ctx) },
		amount:  perJob,
		do: func(ctx context.Context, w *worker, i int) error {
			return w.t.createEmpty(ctx, w.id, i)
		},
		complete: fillFlat,
	}
	stat = &workload{
		name: "stat", op: "LOOKUP and GETATTR of a random name in that directory", read: true,
		prepare: haveFlat,
		do: func(ctx context.Context, w *worker, i int) error {
			k := w.t.content.pick(w.id, i, w.count()*w.t.cfg.Jobs)
			_, _, err := w.t.c.Lookup(ctx, w.t.flat.dir, flatFile(k%w.t.cfg.Jobs, k/w.t.cfg.Jobs))
			return err
		},
	}
	getattr = &workload{
		name: "getattr", op: "GETATTR of a random file whose handle is known", read: true,
		prepare: haveHandles,
		do: func(ctx context.Context, w *worker, i int) error {
			h := w.t.flat.handles
			_, err := w.t.c.Getattr(ctx, h[w.t.content.pick(w.id, i, len(h))])
			return err
		},
	}
	readdir = &workload{
		name: "readdir", op: "READDIR of the next 64 KiB of that directory, with attributes", read: true,
		prepare: haveFlat,
		do: func(ctx context.Context, w *worker, _ int) error {
			if w.walk.page.dir == nil {
				w.walk.page = page{dir: w.t.flat.dir}
			}
			_, err := w.list(ctx)
			return err
		},
	}
	unlink = &workload{
		name: "unlink", op: "REMOVE of a file from that directory",
		prepare: haveFlat,
		amount:  perJob,
		do: func(ctx context.Context, w *worker, i int) error {
			_, err := w.t.c.Remove(ctx, w.t.flat.dir, flatFile(w.id, i))
			return err
		},
		complete: func(ctx context.Context, t *target, _ []*job) error { return t.removeFlat(ctx) },
	}
)

// flatFile names the i-th file of a job.
func flatFile(job, i int) string {
	b := make([]byte, 0, 24)
	b = append(strconv.AppendInt(append(b, 'f'), int64(job), 10), '-')
	return string(strconv.AppendInt(b, int64(i), 10))
}

// newFlat makes the directory, empty.
func (t *target) newFlat(ctx context.Context) error {
	if err := t.removeFlat(ctx); err != nil {
		return err
	}
	dir, err := t.c.Mkdir(ctx, t.home, flatName, 0o755)
	if err == nil {
		t.flat = &flatDir{dir: dir}
	}
	return err
}

func (t *target) removeFlat(ctx context.Context) error {
	d := t.flat
	if d == nil {
		return nil
	}
	t.flat = nil
	return t.removeAll(ctx, t.home, flatName, d.dir)
}

func (t *target) createEmpty(ctx context.Context, job, i int) error {
	f, err := t.c.CreateFile(ctx, t.flat.dir, flatFile(job, i), 0o644)
	if err != nil {
		return err
	}
	return f.Close(ctx)
}

// haveFlat makes the directory with its files, if it is not there.
func haveFlat(ctx context.Context, t *target) error {
	if t.flat != nil {
		return nil
	}
	if err := t.newFlat(ctx); err != nil {
		return err
	}
	return fillFlat(ctx, t, t.jobs())
}

// fillFlat makes the files that jobs have not made.
func fillFlat(ctx context.Context, t *target, jobs []*job) error {
	for _, j := range jobs {
		done := min(int(j.next.Load()), j.count())
		err := t.parallel(ctx, j.count()-done, func(ctx context.Context, i int) error {
			return t.createEmpty(ctx, j.id, done+i)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// maxHandles bounds how many handles are kept.
const maxHandles = 100_000

// haveHandles makes the directory, and finds its files' handles, in an order
// that is the same on every server.
func haveHandles(ctx context.Context, t *target) error {
	if err := haveFlat(ctx, t); err != nil || t.flat.handles != nil {
		return err
	}
	n := min(perJob(t.cfg)*t.cfg.Jobs, maxHandles)
	handles := make([]client.FH, n)
	err := t.parallel(ctx, n, func(ctx context.Context, i int) (err error) {
		handles[i], _, err = t.c.Lookup(ctx, t.flat.dir, flatFile(i%t.cfg.Jobs, i/t.cfg.Jobs))
		return err
	})
	if err == nil {
		t.flat.handles = handles
	}
	return err
}

// A page is where the listing of a directory has come to.
type page struct {
	dir              client.FH // nil: at its end
	cookie, verifier uint64
}

// A walk is where a job is in a directory or a tree.
type walk struct {
	page
	todo []client.FH // directories not yet listed
}

// listAttrs are asked of READDIR: what a Linux client asks so that it needs no
// LOOKUP afterwards.
var listAttrs = append([]int{proto.AttrFilehandle}, client.StatAttrs...)

// list lists the next page of the directory that the job is in.
func (w *worker) list(ctx context.Context) ([]client.Dirent, error) {
	p := &w.walk.page
	all, verifier, eof, err := w.t.c.Readdir(ctx, p.dir, p.cookie, p.verifier, pageSize, listAttrs...)
	if err != nil {
		return nil, err
	}
	w.entries += int64(len(all))
	if eof || len(all) == 0 {
		*p = page{}
	} else {
		p.cookie, p.verifier = all[len(all)-1].Cookie, verifier
	}
	return all, nil
}
