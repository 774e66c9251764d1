package vfs

import (
	"context"
	"errors"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/vfs/writer"
)

// A Job writes to a volume in the background, as this front-end: with its
// writer, so that there is no second one that files would be held for. It is
// good until the writer is fenced (EFENCED) or the front-end stops (EAGAIN).
type Job struct {
	m *mount
	s *writer.Session
}

// Job returns a job on a volume that is mounted here.
func (s *System) Job(ctx context.Context, id VolumeID) (*Job, error) {
	m, err := s.mount(File{Volume: id})
	if err != nil {
		return nil, err
	}
	session, err := m.writer.Session(ctx)
	if err != nil {
		return nil, err
	}
	return &Job{m, session}, nil
}

// Put puts a blob of a class. Propose, or Abandon, ends its use.
func (j *Job) Put(ctx context.Context, class cluster.Class, data [][]byte) (volume.NewBlob, error) {
	placed, err := j.m.put(ctx, j.s, class, data, nil)
	if err != nil {
		if errors.Is(err, cluster.EFENCED) {
			j.m.fenced(j.s)
		}
		return volume.NewBlob{}, err
	}
	return newBlob(&placed), nil
}

// Propose executes a command that names blobs, and returns the body of its result.
func (j *Job) Propose(ctx context.Context, b fsm.Body, blobs []volume.NewBlob) ([]byte, error) {
	body, _, err := j.m.proposeBy(j.s, NewRequest(ctx, Cred{}), b)
	if errors.Is(err, cluster.EAGAIN) && j.m.sys.base.Err() != nil {
		return nil, err // stopping: the blobs may still be committed
	}
	j.Abandon(blobs)
	return body, err
}

// Abandon says that no command will name blobs any more.
func (j *Job) Abandon(blobs []volume.NewBlob) {
	for i := range blobs {
		j.s.Finish(blobs[i].ID)
	}
}
