package fsm

import (
	"errors"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// orderedFS makes Pebble's markers outlive a crash only with what they name.
// Pebble creates a manifest, syncs it, creates the marker that names it and
// then syncs the folder; on a file system where a synced file may still lose
// its name, the marker alone could be left, and the store would not open.
type orderedFS struct{ vfs.FS }

// Create implements vfs.FS.
func (o orderedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(o.PathBase(name), "marker.") {
		if err := syncDir(o.FS, o.PathDir(name)); err != nil {
			return nil, err
		}
	}
	return o.FS.Create(name, category)
}

// Unwrap implements vfs.FS.
func (o orderedFS) Unwrap() vfs.FS { return o.FS }

func markReady(fs vfs.FS, dir string) error {
	f, err := fs.Create(fs.PathJoin(dir, readyName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return syncDir(fs, dir)
}

func syncDir(fs vfs.FS, dir string) error {
	f, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// syncAll makes the files of a folder durable, and their names.
func syncAll(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		f, err := fs.OpenReadWrite(fs.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return syncDir(fs, dir)
}

// mkdirSynced makes a folder and its parents, durably.
func mkdirSynced(fs vfs.FS, dir string) error {
	var made []string // whose parents have a new name
	for p := dir; ; p = fs.PathDir(p) {
		if _, err := fs.Stat(p); err == nil || fs.PathDir(p) == p {
			break
		}
		made = append(made, p)
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, p := range made {
		if err := syncDir(fs, fs.PathDir(p)); err != nil {
			return err
		}
	}
	return nil
}
