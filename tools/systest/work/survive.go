package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A pulse measures the longest that one of a workload's system calls took.
type pulse struct {
	mu     sync.Mutex
	Calls  int     `json:"calls"`
	Max    float64 `json:"max"` // seconds
	MaxAt  string  `json:"max_at,omitempty"`
	Rounds int     `json:"rounds"`
}

// time runs one system call of a workload.
func (p *pulse) time(what string, call func() error) error {
	began := time.Now()
	err := call()
	took := time.Since(began).Seconds()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Calls++
	if took > p.Max {
		p.Max, p.MaxAt = took, what
	}
	if err != nil {
		return fmt.Errorf("%s after %.1f s: %w", what, took, err)
	}
	return nil
}

// survivors are the workloads of survive, each of which runs until end. Files
// of theirs are in dir.
var survivors = map[string]func(dir string, end time.Time, p *pulse) error{
	"stream": streamOn, "names": nameOn, "read": readOn, "unlinked": unlinkedOn, "list": listOn, "mmap": mapOn, "count": countOn, "hold": holdOn,
}

// prepareSurvival makes what the workloads need that are not to be measured.
func prepareSurvival(dir string, entries int) error {
	for _, sub := range []string{"names", "list"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "list.count"), fmt.Append(nil, entries), 0o644); err != nil {
		return err
	}
	return errors.Join(many(filepath.Join(dir, "list"), entries), writeRead(filepath.Join(dir, "read")))
}

const readBlocks = 16

func writeRead(file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, newContent(11), readBlocks<<20)
	return errors.Join(err, f.Sync(), f.Close())
}

// survive runs all workloads side by side. No call of theirs may fail, whatever
// happens to the server meanwhile; how long the longest took is printed.
func survive(dir string, seconds int) error {
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	pulses := map[string]*pulse{}
	var names []string
	for name := range survivors {
		names = append(names, name)
		pulses[name] = &pulse{}
	}
	slices.Sort(names)
	err := parallel(len(names), func(i int) error {
		name := names[i]
		if err := survivors[name](dir, end, pulses[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
	text, jsonErr := json.Marshal(pulses)
	fmt.Println(string(text))
	return errors.Join(err, jsonErr)
}

// streamOn writes a file, each block of it synced, and reads all of it back.
func streamOn(dir string, end time.Time, p *pulse) error {
	f, err := os.OpenFile(filepath.Join(dir, "stream"), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := make([]byte, 256<<10)
	for seed := 0; time.Now().Before(end); seed++ {
		_, _ = io.ReadFull(newContent(seed), buf)
		if err := p.time("write", func() error { _, err := f.Write(buf); return err }); err != nil {
			return err
		}
		if err := p.time("fsync", f.Sync); err != nil {
			return err
		}
		p.Rounds++
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	got := make([]byte, len(buf))
	for seed := range p.Rounds {
		_, _ = io.ReadFull(newContent(seed), buf)
		if _, err := io.ReadFull(f, got); err != nil {
			return err
		}
		if string(got) != string(buf) {
			return fmt.Errorf("block %d differs", seed)
		}
	}
	return f.Close()
}

// nameOn uses each name once: an operation that is executed twice, or not at
// all, makes it or the next one fail.
func nameOn(dir string, end time.Time, p *pulse) error {
	dir = filepath.Join(dir, "names")
	for time.Now().Before(end) {
		i := p.Rounds
		d, e := filepath.Join(dir, fmt.Sprintf("d%06d", i)), filepath.Join(dir, fmt.Sprintf("e%06d", i))
		steps := []struct {
			what string
			do   func() error
		}{
			{"mkdir", func() error { return os.Mkdir(d, 0o755) }},
			{"create", func() error {
				f, err := os.OpenFile(d+"/f", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
				if err != nil {
					return err
				}
				return f.Close()
			}},
			{"symlink", func() error { return os.Symlink("f", d+"/s") }},
			{"link", func() error { return os.Link(d+"/f", d+"/g") }},
			{"rename", func() error { return os.Rename(d+"/f", d+"/h") }},
			{"rename of the directory", func() error { return os.Rename(d, e) }},
			{"chmod", func() error { return os.Chmod(e+"/h", 0o600) }},
			{"remove of the symlink", func() error { return syscall.Unlink(e + "/s") }},
			{"remove", func() error { return syscall.Unlink(e + "/g") }},
			{"remove of the last name", func() error { return syscall.Unlink(e + "/h") }},
			{"rmdir", func() error { return syscall.Rmdir(e) }},
		}
		if i%4 == 0 {
			steps = steps[:7] // left for the end
		}
		for _, s := range steps {
			if err := p.time(fmt.Sprintf("%s %d", s.what, i), s.do); err != nil {
				return err
			}
		}
		p.Rounds++
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var got, want []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	for i := 0; i < p.Rounds; i += 4 {
		want = append(want, fmt.Sprintf("e%06d", i))
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("%d directories are left, and %d should be: %v", len(got), len(want), got)
	}
	return nil
}

// dropCaches makes the kernel ask the server again for what it has read.
func dropCaches() error { return os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0o644) }

// readOn reads a file that it holds open, over and over.
func readOn(dir string, end time.Time, p *pulse) error {
	f, err := os.Open(filepath.Join(dir, "read"))
	if err != nil {
		return err
	}
	defer f.Close()
	want := make([]byte, readBlocks<<20)
	_, _ = io.ReadFull(newContent(11), want)
	got := make([]byte, 64<<10)
	for time.Now().Before(end) {
		off := p.Rounds * 37 % (readBlocks * 16) * len(got)
		if off == 0 {
			if err := dropCaches(); err != nil {
				return err
			}
		}
		if err := p.time("read", func() error { _, err := f.ReadAt(got, int64(off)); return err }); err != nil {
			return err
		}
		if string(got) != string(want[off:off+len(got)]) {
			return fmt.Errorf("the data at %d differs", off)
		}
		p.Rounds++
		time.Sleep(5 * time.Millisecond)
	}
	return f.Close()
}

// unlinkedOn writes and reads a file that has no name any more.
func unlinkedOn(dir string, end time.Time, p *pulse) error {
	name := filepath.Join(dir, "unlinked")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := os.Remove(name); err != nil {
		return err
	}
	block, got := make([]byte, 4096), make([]byte, 4096)
	for time.Now().Before(end) {
		off := int64(p.Rounds % 64 * len(block))
		_, _ = io.ReadFull(newContent(p.Rounds), block)
		if err := p.time("write", func() error { _, err := f.WriteAt(block, off); return err }); err != nil {
			return err
		}
		if err := p.time("fsync", f.Sync); err != nil {
			return err
		}
		if _, err := f.ReadAt(got, off); err != nil {
			return err
		}
		if string(got) != string(block) {
			return fmt.Errorf("round %d differs", p.Rounds)
		}
		p.Rounds++
		time.Sleep(20 * time.Millisecond)
	}
	return f.Close()
}

// listOn lists a large directory: every entry is there once.
func listOn(dir string, end time.Time, p *pulse) error {
	text, err := os.ReadFile(filepath.Join(dir, "list.count"))
	if err != nil {
		return err
	}
	want := number(string(text))
	for time.Now().Before(end) {
		if err := dropCaches(); err != nil {
			return err
		}
		f, err := os.Open(filepath.Join(dir, "list"))
		if err != nil {
			return err
		}
		seen := make(map[string]bool, want)
		for {
			var names []string
			err := p.time("readdir", func() (err error) {
				if names, err = f.Readdirnames(512); errors.Is(err, io.EOF) {
					err = nil
				}
				return err
			})
			if err != nil {
				return err
			}
			for _, n := range names {
				if seen[n] {
					return fmt.Errorf("%s is listed twice", n)
				}
				seen[n] = true
			}
			if len(names) == 0 {
				break
			}
		}
		if err := f.Close(); err != nil {
			return err
		}
		if len(seen) != want {
			return fmt.Errorf("%d entries of %d", len(seen), want)
		}
		p.Rounds++
	}
	return nil
}

// mapOn writes through a shared mapping, and reads back by another open.
func mapOn(dir string, end time.Time, p *pulse) error {
	const size = 1 << 20
	name := filepath.Join(dir, "mmap")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return err
	}
	m, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return err
	}
	for time.Now().Before(end) {
		off := p.Rounds * 4096 * 13 % size
		binary.BigEndian.PutUint64(m[off:], uint64(p.Rounds)+1)
		if err := p.time("fsync", f.Sync); err != nil {
			return err
		}
		p.Rounds++
		time.Sleep(20 * time.Millisecond)
	}
	want := string(m)
	if err := errors.Join(syscall.Munmap(m), f.Close()); err != nil {
		return err
	}
	got, err := os.ReadFile(name)
	if err == nil && string(got) != want {
		err = errors.New("the file differs from what was mapped")
	}
	return err
}

// countOn adds to a number under a POSIX lock that it waits for.
func countOn(dir string, end time.Time, p *pulse) error {
	for time.Now().Before(end) {
		// The wait for the other's turn is part of it.
		if err := p.time("locked addition", func() error { return count(filepath.Join(dir, "count"), 1) }); err != nil {
			return err
		}
		p.Rounds++
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// holdOn holds a flock and a POSIX lock all the time.
func holdOn(dir string, end time.Time, p *pulse) error {
	var files []*os.File
	for _, kind := range []string{"flock", "posix"} {
		f, err := os.OpenFile(filepath.Join(dir, kind), os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := tryLock(f, kind); err != nil {
			return err
		}
		files = append(files, f)
	}
	for time.Now().Before(end) {
		time.Sleep(100 * time.Millisecond)
	}
	// A lock that was lost shows here: the kernel fails the I/O under it.
	for _, f := range files {
		if err := p.time("write under a lock", func() error { _, err := f.WriteAt([]byte("mine"), 0); return err }); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
	p.Rounds++
	return nil
}

func tryLock(f *os.File, kind string) error {
	if kind == "posix" {
		return lock(f, false)
	}
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errHeld
	}
	return err
}

// contend is the other side of survive, on another client: it must never get
// the locks that are held there, and takes its turns at the number. It must
// begin after survive has taken its locks, and end before that.
func contend(dir string, seconds int) error {
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	rounds := 0
	err := parallel(2, func(i int) error {
		for time.Now().Before(end) {
			if i == 0 {
				if err := count(filepath.Join(dir, "count"), 1); err != nil {
					return err
				}
				rounds++
				time.Sleep(30 * time.Millisecond)
				continue
			}
			for _, kind := range []string{"flock", "posix"} {
				f, err := os.OpenFile(filepath.Join(dir, kind), os.O_RDWR, 0)
				if err != nil {
					return err
				}
				err = tryLock(f, kind)
				if closed := f.Close(); err == nil {
					return errors.Join(fmt.Errorf("the %s lock is held by two", kind), closed)
				}
				if !errors.Is(err, errHeld) {
					return err
				}
			}
			time.Sleep(200 * time.Millisecond)
		}
		return nil
	})
	fmt.Println(rounds)
	return err
}

// counted checks that the number is the sum of both sides' additions.
func counted(dir string, want int) error {
	text, err := os.ReadFile(filepath.Join(dir, "count"))
	if err != nil {
		return err
	}
	if got := number(strings.TrimSpace(string(text))); got != want {
		return fmt.Errorf("the number is %d after %d additions: a lock was held by two", got, want)
	}
	return nil
}
