package bench

import (
	"context"
	"strconv"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
)

// The shape of the tree: like that of source code, many small directories.
const (
	filesPerLeaf  = 20
	leavesPerNode = 16
	treeName      = "tree"
)

// A tree is two levels of directories with small files in the lower ones.
type tree struct {
	root   client.FH
	leaves []client.FH
}

// smallContent is from where on small files' contents are numbered, above
// those of the large files.
const smallContent = maxWorker

// The workloads on a tree of small files.
var (
	smallWrite = &workload{
		name: "small-write", op: "OPEN that creates a small file in a tree, WRITE, COMMIT if needed, and CLOSE",
		prepare: func(ctx context.Context, t *target) error { return t.newTree(ctx) },
		amount:  perJob,
		do: func(ctx context.Context, w *worker, i int) error {
			w.bytes += int64(w.t.cfg.SmallSize)
			return w.job.writeSmall(ctx, i)
		},
		complete: fillTree,
	}
	smallRead = &workload{
		name: "small-read", op: "OPEN of a random small file, READ of all of it, and CLOSE", read: true,
		prepare: haveTree,
		do: func(ctx context.Context, w *worker, i int) error {
			n := w.count() * w.t.cfg.Jobs
			k := w.t.content.pick(w.id, i, n)
			f, _, err := w.t.c.Open(ctx, w.t.leaf(k), leafFile(k), nil)
			if err != nil {
				return err
			}
			w.bytes += int64(w.t.cfg.SmallSize)
			if err := w.readAll(ctx, f, smallContent+uint64(k), 0, w.t.cfg.SmallSize); err != nil {
				return err
			}
			return f.Close(ctx)
		},
	}
	traverse = &workload{
		name: "tree", op: "READDIR of the next directory of the tree, with attributes: each job goes through all of it", read: true,
		prepare: haveTree,
		do: func(ctx context.Context, w *worker, _ int) error {
			if w.walk.dir == nil {
				todo := &w.walk.todo
				if len(*todo) == 0 {
					*todo = append(*todo, w.t.tree.root)
				}
				last := len(*todo) - 1
				w.walk.page, *todo = page{dir: (*todo)[last]}, (*todo)[:last]
			}
			all, err := w.list(ctx)
			for i := range all {
				if all[i].Attrs.Type == proto.TypeDir {
					w.walk.todo = append(w.walk.todo, all[i].Attrs.Handle)
				}
			}
			return err
		},
	}
)

// leaf is the directory of file k.
func (t *target) leaf(k int) client.FH { return t.tree.leaves[k/filesPerLeaf] }

func leafFile(k int) string { return "s" + strconv.Itoa(k) }

// newTree makes the directories, without files.
func (t *target) newTree(ctx context.Context) error {
	if old := t.tree; old != nil {
		t.tree = nil
		if err := t.removeAll(ctx, t.home, treeName, old.root); err != nil {
			return err
		}
	}
	root, err := t.c.Mkdir(ctx, t.home, treeName, 0o755)
	if err != nil {
		return err
	}
	n := (perJob(t.cfg)*t.cfg.Jobs + filesPerLeaf - 1) / filesPerLeaf
	tr := &tree{root: root, leaves: make([]client.FH, n)}
	nodes := make([]client.FH, (n+leavesPerNode-1)/leavesPerNode)
	err = t.parallel(ctx, len(nodes), func(ctx context.Context, i int) (err error) {
		nodes[i], err = t.c.Mkdir(ctx, root, "n"+strconv.Itoa(i), 0o755)
		return err
	})
	if err == nil {
		err = t.parallel(ctx, n, func(ctx context.Context, i int) (err error) {
			tr.leaves[i], err = t.c.Mkdir(ctx, nodes[i/leavesPerNode], "l"+strconv.Itoa(i%leavesPerNode), 0o755)
			return err
		})
	}
	t.tree = tr
	return err
}

// writeSmall makes the job's i-th small file.
func (j *job) writeSmall(ctx context.Context, i int) error {
	k := j.id*j.count() + i
	f, err := j.t.c.CreateFile(ctx, j.t.leaf(k), leafFile(k), 0o644)
	if err != nil {
		return err
	}
	unstable, err := j.writeAll(ctx, f, 0, j.t.content.at(smallContent+uint64(k), 0, j.t.cfg.SmallSize))
	if err != nil {
		return err
	}
	if unstable {
		if err := j.commit(ctx, f); err != nil {
			return err
		}
	}
	return f.Close(ctx)
}

// haveTree makes the tree with its files, if it is not there.
func haveTree(ctx context.Context, t *target) error {
	if t.tree != nil {
		return nil
	}
	if err := t.newTree(ctx); err != nil {
		return err
	}
	return fillTree(ctx, t, t.jobs())
}

// fillTree makes the files that jobs have not made.
func fillTree(ctx context.Context, t *target, jobs []*job) error {
	for _, j := range jobs {
		done := min(int(j.next.Load()), j.count())
		err := t.parallel(ctx, j.count()-done, func(ctx context.Context, i int) error {
			return j.writeSmall(ctx, done+i)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
