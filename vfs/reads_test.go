package vfs_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/vfs"
)

// TestReadIsOfOneState: a read while a file is emptied and written again sees
// it empty or written, never the size of one and the bytes of the other.
func TestReadIsOfOneState(t *testing.T) {
	for _, size := range []int{5000, 50_000} {
		e := newEnv(t, strict, nil)
		f := e.create("f")
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			p := fill('x', size)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := e.Setattr(req(), f, vfs.SetAttr{Mask: cluster.SetSize}, true); err != nil {
					t.Error(err)
				}
				if _, _, err := e.Write(req(), f, 0, p, vfs.FileSync); err != nil {
					t.Error(err)
				}
			}
		}()
		for deadline := time.Now().Add(300 * time.Millisecond); time.Now().Before(deadline); {
			got := e.read(f, 0, 2*size)
			if len(got) != 0 && !bytes.Equal(got, fill('x', size)) {
				t.Errorf("%d bytes, beginning with %q", len(got), got[:1])
				break
			}
		}
		close(stop)
		<-done
	}
}

// TestRelaxedMiss: a name is not said to be missing because this node is behind.
func TestRelaxedMiss(t *testing.T) {
	g := newGroup(t, relaxed, 50*time.Millisecond)
	e := open(t, g, &blobs{group: g, data: map[cluster.BlobID][]byte{}}, func(c *vfs.Config) { c.Stale = time.Hour })
	e.create("first")
	for _, name := range []string{"a", "b", "c"} {
		// Another front-end makes it.
		g.do(t, volume.Create{Dir: cluster.RootIno, Name: name, Type: cluster.TypeRegular, Gen: 1})
		if _, _, err := e.Lookup(req(), e.root(), name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFencedCreate: a command that was refused because its writer is fenced is
// not executed again by another one.
func TestFencedCreate(t *testing.T) {
	e := newEnv(t, strict, nil)
	e.create("x")
	e.group.faults(func(cmd []byte) fault {
		env, _, err := fsm.ParseCommand(cmd)
		if err == nil && env.Kind == volume.KindCreate {
			e.group.faults(func([]byte) fault { return none })
			e.group.do(t, &fsm.FenceWriter{Writer: env.Writer})
		}
		return none
	})
	_, err := e.Create(req(), e.root(), "y", vfs.CreateArgs{Type: cluster.TypeRegular})
	if !errors.Is(err, cluster.EAGAIN) {
		t.Errorf("create: %v", err)
	}
	if _, _, err := e.Lookup(req(), e.root(), "y"); !errors.Is(err, cluster.ENOENT) {
		t.Errorf("lookup: %v", err)
	}
	e.create("y")
}
