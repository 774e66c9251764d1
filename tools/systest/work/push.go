package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/hawserfs/hawser/nfsd/client"
)

// pushers is how many files push copies at a time.
const pushers = 32

// push copies what is in a folder here to a directory of a server with our own
// client, which is not held up by a kernel's lock on a directory: modes and
// contents of directories, files and symbolic links.
func push(addr, dst, src string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := client.Dial(ctx, addr, client.Options{Conns: 2})
	if err != nil {
		return err
	}
	root, err := c.Walk(ctx, dst)
	if err != nil {
		return err
	}
	type file struct {
		dir        client.FH
		path, name string
		mode       fs.FileMode
	}
	files := make(chan file, pushers)
	var fault error
	var once sync.Once
	fail := func(err error) { once.Do(func() { fault = err; cancel() }) }
	var wg sync.WaitGroup
	for range pushers {
		wg.Go(func() {
			for f := range files {
				if err := pushFile(ctx, c, f.dir, f.path, f.name, f.mode); err != nil {
					fail(fmt.Errorf("%s: %w", f.path, err))
				}
			}
		})
	}
	dirs := map[string]client.FH{}
	err = filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == src {
			dirs[path] = root
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		dir := dirs[filepath.Dir(path)]
		if d.IsDir() {
			dirs[path], err = c.Mkdir(ctx, dir, d.Name(), uint32(info.Mode().Perm()))
			return err
		}
		select {
		case files <- file{dir, path, d.Name(), info.Mode()}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	close(files)
	wg.Wait()
	if fault != nil {
		err = fault
	}
	if err != nil {
		return err
	}
	return c.Close(ctx)
}

func pushFile(ctx context.Context, c *client.Client, dir client.FH, path, name string, mode fs.FileMode) error {
	if mode&fs.ModeSymlink != 0 {
		target, err := os.Readlink(path)
		if err == nil {
			_, err = c.Symlink(ctx, dir, name, target)
		}
		return err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	f, err := c.CreateFile(ctx, dir, name, uint32(mode.Perm()))
	if err != nil {
		return err
	}
	if len(data) > 0 {
		if err := f.WriteAll(ctx, 0, data); err != nil {
			return err
		}
		if _, err := f.Commit(ctx); err != nil {
			return err
		}
	}
	return f.Close(ctx)
}
