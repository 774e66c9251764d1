package memfs_test

import (
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs/memfs"
	"github.com/hawserfs/hawser/vfs/vfstest"
)

func TestStrict(t *testing.T) {
	vfstest.Run(t, memfs.New(memfs.Options{Volumes: []string{"main", "other"}}))
}

func TestRelaxed(t *testing.T) {
	vfstest.Run(t, memfs.New(memfs.Options{Class: cluster.Class{Consistency: cluster.Relaxed, Copies: 1}}))
}
