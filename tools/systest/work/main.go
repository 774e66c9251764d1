// Command work is what the system tests run on a mount: work whose every byte
// is known, so that another client can verify it.
package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var verbs = map[string]struct {
	usage string
	args  int
	run   func(args []string) error
}{
	"manifest": {"DIR: print each file's name, mode, mtime, links, size and sha256", 1, func(a []string) error { return manifest(a[0]) }},
	"write":    {"FILE BYTES SEED: write a large file and fsync it", 3, func(a []string) error { return large(a[0], number(a[1]), number(a[2]), false) }},
	"verify":   {"FILE BYTES SEED: read it back", 3, func(a []string) error { return large(a[0], number(a[1]), number(a[2]), true) }},
	"mmap":     {"FILE: write a file through a shared mapping", 1, func(a []string) error { return mapped(a[0]) }},
	"fcntl":    {"FILE SECONDS: hold a POSIX lock; exit 3 if another holds it", 2, func(a []string) error { return hold(a[0], number(a[1])) }},
	"count":    {"FILE ROUNDS: under a POSIX lock, read a number, add 1, write it, many times", 2, func(a []string) error { return count(a[0], number(a[1])) }},
	"many":     {"DIR FILES: make many empty files, 16 at a time", 2, func(a []string) error { return many(a[0], number(a[1])) }},
	"ledger":   {"DIR SECONDS WORKERS: write files, print the name and seed of each that was fsynced and closed", 3, func(a []string) error { return ledger(a[0], number(a[1]), number(a[2])) }},
	"prepare":  {"DIR ENTRIES: make what survive needs", 2, func(a []string) error { return prepareSurvival(a[0], number(a[1])) }},
	"survive":  {"DIR SECONDS: all kinds of work side by side, none of which may fail; print the longest calls", 2, func(a []string) error { return survive(a[0], number(a[1])) }},
	"contend":  {"DIR SECONDS: on another client, never get the locks that survive holds; print the additions made", 2, func(a []string) error { return contend(a[0], number(a[1])) }},
	"counted":  {"DIR N: the number is N", 2, func(a []string) error { return counted(a[0], number(a[1])) }},
	"stalls":   {"DIR: small calls without a pause until there is a file DIR/end; print those that took long", 1, func(a []string) error { return stalls(a[0]) }},
	"sessions": {"HOST:PORT DIR N: N clients with a session, an open file and a lock each", 3, func(a []string) error { return sessions(a[0], a[1], number(a[2])) }},
	"audit":    {"DIR LEDGER: verify what a ledger says", 2, func(a []string) error { return audit(a[0], a[1]) }},
	"push":     {"HOST:PORT DIR FOLDER: copy a folder of this machine to a server's directory with Hawser's own client", 3, func(a []string) error { return push(a[0], a[1], a[2]) }},
}

// errHeld is exit status 3: another owner has the lock.
var errHeld = errors.New("the lock is held by another")

func main() {
	if len(os.Args) > 1 {
		if v, ok := verbs[os.Args[1]]; ok && len(os.Args) == v.args+2 {
			err := v.run(os.Args[2:])
			if errors.Is(err, errHeld) {
				os.Exit(3)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, "work:", err)
				os.Exit(1)
			}
			return
		}
	}
	for name, v := range verbs {
		fmt.Fprintln(os.Stderr, "work", name, v.usage)
	}
	os.Exit(2)
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		fmt.Fprintln(os.Stderr, "work:", err)
		os.Exit(2)
	}
	return n
}

// content is a stream of bytes that seed determines.
type content struct{ r *rand.ChaCha8 }

func newContent(seed int) io.Reader {
	var key [32]byte
	copy(key[:], strconv.Itoa(seed))
	return content{rand.NewChaCha8(key)}
}

func (c content) Read(p []byte) (int, error) { return c.r.Read(p) }

func manifest(dir string) error {
	out := bufio.NewWriter(os.Stdout)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		links, size, sum := uint64(0), int64(0), "-"
		switch info.Mode().Type() {
		case 0:
			links, size = uint64(info.Sys().(*syscall.Stat_t).Nlink), info.Size()
			if sum, err = digest(path); err != nil {
				return err
			}
		case fs.ModeSymlink:
			if sum, err = os.Readlink(path); err != nil {
				return err
			}
		}
		_, err = fmt.Fprintln(out, name, info.Mode(), info.ModTime().UnixNano(), links, size, sum)
		return err
	})
	return errors.Join(err, out.Flush())
}

func digest(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func large(file string, size, seed int, verify bool) error {
	want := newContent(seed)
	buf := make([]byte, 1<<20)
	flags := os.O_CREATE | os.O_TRUNC | os.O_WRONLY
	if verify {
		flags = os.O_RDONLY
	}
	f, err := os.OpenFile(file, flags, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	got := make([]byte, len(buf))
	began := time.Now()
	for off := 0; off < size; off += len(buf) {
		n := min(len(buf), size-off)
		_, _ = io.ReadFull(want, buf[:n])
		if !verify {
			if _, err := f.Write(buf[:n]); err != nil {
				return err
			}
			continue
		}
		if _, err := io.ReadFull(f, got[:n]); err != nil {
			return fmt.Errorf("%s at %d: %w", file, off, err)
		}
		if string(got[:n]) != string(buf[:n]) {
			return fmt.Errorf("%s differs in the MiB at %d", file, off)
		}
	}
	if !verify {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	fmt.Printf("%.0f MB/s\n", float64(size)/1e6/time.Since(began).Seconds())
	return f.Close()
}

func mapped(file string) error {
	const size = 4<<20 + 123
	f, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
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
	if _, err := io.ReadFull(newContent(7), m); err != nil {
		return err
	}
	if err := syscall.Munmap(m); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

// lock takes a POSIX lock on the whole file.
func lock(f *os.File, wait bool) error {
	cmd := syscall.F_SETLK
	if wait {
		cmd = syscall.F_SETLKW
	}
	err := syscall.FcntlFlock(f.Fd(), cmd, &syscall.Flock_t{Type: syscall.F_WRLCK})
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		return errHeld
	}
	return err
}

func unlock(f *os.File) error {
	return syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_UNLCK})
}

func hold(file string, seconds int) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := lock(f, false); err != nil {
		return err
	}
	time.Sleep(time.Duration(seconds) * time.Second)
	return f.Close()
}

func count(file string, rounds int) error {
	for range rounds {
		f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return err
		}
		if err := lock(f, true); err != nil {
			return err
		}
		text, err := io.ReadAll(f)
		if err != nil {
			return err
		}
		n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		if _, err := f.WriteAt([]byte(strconv.Itoa(n+1)), 0); err != nil {
			return err
		}
		// Closing releases the lock, after the data was flushed.
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

func many(dir string, files int) error {
	var next atomic.Int64
	return parallel(16, func(int) error {
		for {
			n := int(next.Add(1))
			if n > files {
				return nil
			}
			f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("file-%06d", n)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
			if err != nil {
				return err
			}
			if err := f.Close(); err != nil {
				return err
			}
		}
	})
}

func parallel(workers int, do func(worker int) error) error {
	var wg sync.WaitGroup
	faults := make([]error, workers)
	for w := range workers {
		wg.Go(func() { faults[w] = do(w) })
	}
	wg.Wait()
	return errors.Join(faults...)
}

// sizeOf is the size of the ledger's file of a seed: mostly small, some large.
func sizeOf(seed int) int {
	switch seed % 16 {
	case 0:
		return seed % 2_500_000
	case 1, 2:
		return seed % 100_000
	}
	return seed % 9_000
}

func ledger(dir string, seconds, workers int) error {
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	var mu sync.Mutex
	return parallel(workers, func(w int) error {
		for i := 1; time.Now().Before(end); i++ {
			seed := w*1_000_003 + i*7919
			name := fmt.Sprintf("w%d-%06d", w, i)
			if err := writeWhole(filepath.Join(dir, "tmp-"+name), seed); err != nil {
				return err
			}
			if err := os.Rename(filepath.Join(dir, "tmp-"+name), filepath.Join(dir, name)); err != nil {
				return err
			}
			mu.Lock()
			_, err := fmt.Println(name, seed)
			mu.Unlock()
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func writeWhole(file string, seed int) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := io.CopyN(f, newContent(seed), int64(sizeOf(seed))); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

func audit(dir, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var faults []error
	n := 0
	for line := range strings.Lines(string(text)) {
		var name string
		var seed int
		if _, err := fmt.Sscan(line, &name, &seed); err != nil {
			return fmt.Errorf("ledger line %q: %w", line, err)
		}
		n++
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			faults = append(faults, err)
			continue
		}
		want := make([]byte, sizeOf(seed))
		_, _ = io.ReadFull(newContent(seed), want)
		if string(got) != string(want) {
			faults = append(faults, fmt.Errorf("%s: %d bytes, want %d, or other content", name, len(got), len(want)))
		}
	}
	if n == 0 {
		return errors.New("the ledger is empty")
	}
	fmt.Println(n, "files are right")
	return errors.Join(faults...)
}
