package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
)

// shortest is from when on a call counts as one that stood still.
const shortest = 50 * time.Millisecond

// stalls does small things without a pause until a file named end appears in
// dir, which another client makes. It prints a line for each call that took
// long: when it began, in nanoseconds of Unix time, how many nanoseconds it took,
// and what it was.
func stalls(dir string) error {
	var mu sync.Mutex
	var long []string
	timed := func(what string, call func() error) error {
		began := time.Now()
		err := call()
		if took := time.Since(began); took >= shortest {
			mu.Lock()
			long = append(long, fmt.Sprintln(began.UnixNano(), int64(took), what))
			mu.Unlock()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
	f, err := os.OpenFile(filepath.Join(dir, "written"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	l, err := os.OpenFile(filepath.Join(dir, "locked"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer l.Close()
	block := make([]byte, 4096)
	rounds := []func(i int) error{
		func(i int) error {
			if _, err := f.WriteAt(block, int64(i%64)*4096); err != nil {
				return err
			}
			return timed("fsync", f.Sync)
		},
		func(i int) error {
			name := filepath.Join(dir, fmt.Sprintf("d%d", i))
			return errors.Join(timed("mkdir", func() error { return os.Mkdir(name, 0o755) }), timed("rmdir", func() error { return os.Remove(name) }))
		},
		func(i int) error {
			name := filepath.Join(dir, fmt.Sprintf("f%d", i))
			return errors.Join(timed("create, write and close", func() error { return os.WriteFile(name, block, 0o644) }), timed("remove", func() error { return os.Remove(name) }))
		},
		func(int) error {
			return timed("lock and unlock", func() error { return errors.Join(lock(l, true), unlock(l)) })
		},
	}
	over := func() bool {
		_, err := os.Stat(filepath.Join(dir, "end"))
		return err == nil
	}
	var stop sync.WaitGroup
	ended := make(chan struct{})
	stop.Go(func() {
		defer close(ended)
		for !over() {
			time.Sleep(500 * time.Millisecond)
		}
	})
	err = parallel(len(rounds), func(worker int) error {
		for i := 0; ; i++ {
			select {
			case <-ended:
				return nil
			default:
			}
			if err := rounds[worker](i); err != nil {
				return err
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	if err != nil {
		return err
	}
	stop.Wait()
	fmt.Print(strings.Join(long, ""))
	return nil
}

// sessions is n clients of a server, each with a session, a file that it holds
// open for writing, and a lock on it. Each does something now and then, until the
// process is told to end.
func sessions(addr, dir string, n int) error {
	ctx := context.Background()
	return parallel(n, func(i int) error {
		c, err := client.Dial(ctx, addr, client.Options{Slots: 2})
		if err != nil {
			return err
		}
		at, err := c.Walk(ctx, dir)
		if err != nil {
			return err
		}
		f, err := c.CreateFile(ctx, at, fmt.Sprintf("session%d", i), 0o644)
		if err != nil {
			return err
		}
		if err := f.Lock(ctx, "owner", client.Range{Type: proto.WriteLt, Length: 1}); err != nil {
			return err
		}
		if i == n-1 {
			fmt.Println("ready")
		}
		for {
			if err := f.WriteAll(ctx, 0, []byte("here")); err != nil {
				return err
			}
			time.Sleep(5 * time.Second)
		}
	})
}
