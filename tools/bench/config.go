package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Server is an NFS server and the directory on it to work in.
type Server struct {
	Addr string `json:"addr"` // HOST:PORT
	Dir  string `json:"dir"`  // path from the server's root, without a slash at its ends
}

// String returns what ParseServer takes.
func (s Server) String() string { return s.Addr + "/" + s.Dir }

// nfsPort is the port of a server that names none.
const nfsPort = "2049"

// ParseServer reads HOST[:PORT][/DIR], and HOST:/DIR as mount(8) writes it. dir
// is for servers that name none.
func ParseServer(text, dir string) (Server, error) {
	host, path, named := strings.Cut(text, "/")
	if !named {
		path = dir
	}
	host = strings.TrimSuffix(host, ":")
	h, port, err := net.SplitHostPort(host)
	if err != nil {
		h, port = strings.Trim(host, "[]"), nfsPort
	}
	if n, err := strconv.ParseUint(port, 10, 16); h == "" || err != nil || n == 0 {
		return Server{}, fmt.Errorf("server %q: write HOST, HOST:PORT or HOST:PORT/DIR", text)
	}
	return Server{Addr: net.JoinHostPort(h, port), Dir: strings.Trim(path, "/")}, nil
}

// A Config says what is measured, and how.
type Config struct {
	Servers   []Server `json:"-"`         // one, or two to compare
	Workloads []string `json:"workloads"` // of Workloads, in its order; none: all

	Block       int   `json:"block_bytes"`        // of sequential READs and WRITEs
	RandomBlock int   `json:"random_block_bytes"` // of random ones
	FileSize    int64 `json:"file_bytes"`         // of each job's file
	SmallSize   int   `json:"small_file_bytes"`   // of a small file
	Files       int   `json:"files"`              // in the large directory, and in the tree
	Jobs        int   `json:"jobs"`               // workers, each with its own file
	Depth       int   `json:"depth"`              // READs and WRITEs that each has under way
	Sync        bool  `json:"sync"`               // WRITEs ask for FILE_SYNC; else a COMMIT follows

	Duration time.Duration `json:"duration_ns"` // of a run; runs that make or remove files may end before
	Runs     int           `json:"runs"`
	Warmup   int           `json:"warmup_runs"` // before, which don't count
	Seed     uint64        `json:"seed"`        // of the bytes and the order

	Minor   uint32        `json:"minor_version"`
	Conns   int           `json:"connections"`
	UID     uint32        `json:"uid"`
	GID     uint32        `json:"gid"`
	Timeout time.Duration `json:"-"` // of a server that answers nothing

	// DropCaches makes a server's caches cold, before each measured run that
	// reads. Nil: they are warm.
	DropCaches func(context.Context, Server) error `json:"-"`
	// Progress, if not nil, is told how far it all is, from one goroutine at a time.
	Progress func(Progress) `json:"-"`
}

// A Progress says how far a benchmark is.
type Progress struct {
	Done float64 // 0 to 1
	What string  // is being done
}

// Default returns a Config without servers that takes about two minutes for one.
func Default() Config {
	return Config{
		Block: 1 << 20, RandomBlock: 4 << 10, FileSize: 64 << 20, SmallSize: 4 << 10, Files: 2000,
		Jobs: 4, Depth: 4, Duration: 2 * time.Second, Runs: 3, Warmup: 1, Seed: 1,
		Minor: 2, Conns: 1, Timeout: 30 * time.Second,
	}
}

// The limits of what a benchmark may ask of the client's memory.
const (
	maxBlock  = 16 << 20
	maxWorker = 1024
	maxFiles  = 50_000_000
)

// check says what is wrong with cfg, in the words of the command line's flags.
func (cfg *Config) check() error {
	if n := len(cfg.Servers); n < 1 || n > 2 {
		return fmt.Errorf("bench: %d servers: one is measured, or two are compared", n)
	}
	if len(cfg.Servers) == 2 && cfg.Servers[0] == cfg.Servers[1] {
		return fmt.Errorf("both servers are %s: compare two servers, or two directories of one", cfg.Servers[0])
	}
	for _, name := range cfg.Workloads {
		if !slices.ContainsFunc(workloads, func(w *workload) bool { return w.name == name }) {
			return fmt.Errorf("there is no workload %q: use some of %s", name, strings.Join(Workloads(), ","))
		}
	}
	for _, l := range []struct {
		flag           string
		v, least, most int64
	}{
		{"block", int64(cfg.Block), 512, maxBlock},
		{"random-block", int64(cfg.RandomBlock), 512, maxBlock},
		{"small-size", int64(cfg.SmallSize), 1, maxBlock},
		{"size", cfg.FileSize, int64(max(cfg.Block, cfg.RandomBlock)), 1 << 44},
		{"jobs", int64(cfg.Jobs), 1, maxWorker},
		{"depth", int64(cfg.Depth), 1, maxWorker},
		{"files", int64(cfg.Files), int64(cfg.Jobs), maxFiles},
		{"runs", int64(cfg.Runs), 1, 1000},
		{"warmup", int64(cfg.Warmup), 0, 1000},
		{"minor", int64(cfg.Minor), 1, 2},
		{"connections", int64(cfg.Conns), 1, 64},
	} {
		if l.v < l.least || l.v > l.most {
			return fmt.Errorf("--%s is %d: it must be %d to %d", l.flag, l.v, l.least, l.most)
		}
	}
	switch {
	case cfg.Jobs*cfg.Depth > maxWorker:
		return fmt.Errorf("--jobs times --depth is %d: it must be at most %d", cfg.Jobs*cfg.Depth, maxWorker)
	case cfg.Duration <= 0:
		return errors.New("--duration must be above 0")
	case cfg.Timeout <= 0:
		return errors.New("--timeout must be above 0")
	}
	return nil
}

// chosen returns the workloads to measure, in the order in which they follow
// from each other.
func (cfg *Config) chosen() []*workload {
	if len(cfg.Workloads) == 0 {
		return workloads
	}
	var list []*workload
	for _, w := range workloads {
		if slices.Contains(cfg.Workloads, w.name) {
			list = append(list, w)
		}
	}
	return list
}
