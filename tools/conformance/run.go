package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
)

// A Config says what is checked. Zero members mean the defaults.
type Config struct {
	Addr     string         // host:port
	Dir      string         // a directory of the server in which a user may make files, such as main/scratch
	Minors   []uint32       // default: 0, 1 and 2
	Run      *regexp.Regexp // of names; nil: all cases
	UID, GID uint32         // of the credential
	Other    uint32         // another user, who is not root; default 65533
	Timeout  time.Duration  // of a case; default 60 s
	// Report is told each result as it comes; may be nil.
	Report func(Result)
}

// A Report is what came out.
type Report struct {
	Server  string   `json:"server"`
	Passed  int      `json:"passed"`
	Failed  int      `json:"failed"`
	Skipped int      `json:"skipped"`
	Results []Result `json:"results"`
}

// Run runs all cases that are asked for, one after the other. Its error says that
// the server can't be checked at all; rules that do not hold are in the report.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if len(cfg.Minors) == 0 {
		cfg.Minors = []uint32{0, 1, 2}
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Minute
	}
	if cfg.Other == 0 {
		cfg.Other = 65533
	}
	rep := &Report{Server: cfg.Addr + "/" + cfg.Dir}
	for _, minor := range cfg.Minors {
		if minor > 2 {
			return nil, fmt.Errorf("minor version %d: there are 0, 1 and 2", minor)
		}
		e := &env{cfg: cfg, minor: minor}
		if err := e.begin(ctx); err != nil {
			return nil, fmt.Errorf("NFSv4.%d at %s: %w", minor, cfg.Addr, err)
		}
		for _, c := range Cases() {
			if !c.Minors.Has(minor) || cfg.Run != nil && !cfg.Run.MatchString(c.Name) {
				continue
			}
			if ctx.Err() != nil {
				break
			}
			r := e.run(ctx, &c)
			switch r.Outcome {
			case Passed:
				rep.Passed++
			case Failed:
				rep.Failed++
			case Skipped:
				rep.Skipped++
			}
			rep.Results = append(rep.Results, r)
			if cfg.Report != nil {
				cfg.Report(r)
			}
		}
		e.end(ctx)
	}
	return rep, ctx.Err()
}

// An env is a server and a minor version.
type env struct {
	cfg   Config
	minor uint32
	admin *client.Client // makes and removes directories
	top   client.FH      // in which all cases have their directories
	name  string
	at    client.FH
	n     atomic.Uint64
}

func (e *env) begin(ctx context.Context) (err error) {
	if e.admin, err = client.Dial(ctx, e.cfg.Addr, e.options(nil)); err != nil {
		return err
	}
	if e.at, err = e.admin.Walk(ctx, e.cfg.Dir); err != nil {
		_ = e.admin.Abort()
		return fmt.Errorf("looking for the directory %q: %w", e.cfg.Dir, err)
	}
	e.name = fmt.Sprintf("conformance-%d-4.%d-%d", os.Getpid(), e.minor, time.Now().UnixNano())
	if e.top, err = e.admin.Mkdir(ctx, e.at, e.name, 0o777); err != nil {
		_ = e.admin.Abort()
		return fmt.Errorf("making a directory in %q: %w", e.cfg.Dir, err)
	}
	return nil
}

// end removes what is left, also after ctx has ended.
func (e *env) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.cfg.Timeout)
	defer cancel()
	_ = removeAll(ctx, e.admin, e.at, e.name)
	_ = e.admin.Close(ctx)
}

// removeAll removes a name and all below it.
func removeAll(ctx context.Context, c *client.Client, dir client.FH, name string) error {
	fh, a, err := c.Lookup(ctx, dir, name)
	if err != nil {
		return err
	}
	if a.Type == proto.TypeDir {
		_ = c.Setattr(ctx, fh, client.Stateid{}, &client.SetAttr{Mode: client.Ptr(uint32(0o777))})
		all, err := c.ReadAllDir(ctx, fh, proto.AttrType)
		if err != nil {
			return err
		}
		for _, d := range all {
			if err := removeAll(ctx, c, fh, d.Name); err != nil {
				return err
			}
		}
	}
	_, err = c.Remove(ctx, dir, name)
	return err
}

// options are those of a client; change may be nil.
func (e *env) options(change func(*client.Options)) client.Options {
	o := client.Options{Minor: e.minor, V40: e.minor == 0, UID: e.cfg.UID, GID: e.cfg.GID}
	if change != nil {
		change(&o)
	}
	return o
}

// errStop ends a case: it has failed, or is skipped.
var errStop = errors.New("conformance: the case has ended")

// run runs a case in a directory of its own.
func (e *env) run(ctx context.Context, c *Case) (r Result) {
	r = Result{Name: c.Name, Section: c.Section, Minor: e.minor, Outcome: Passed}
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	t := &T{Context: ctx, env: e, r: &r, name: fmt.Sprintf("case-%d", e.n.Add(1))}
	defer func() { r.Millis = time.Since(start).Milliseconds() }()
	defer t.cleanup()
	defer func() {
		if p := recover(); p != nil && p != any(errStop) {
			r.Outcome = Failed
			r.Message = fmt.Sprintf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	dir, err := e.admin.Mkdir(ctx, e.top, t.name, 0o777)
	if err != nil {
		t.Fatalf("can't make the case's directory: %v", err)
	}
	// The mode that MKDIR asked for may have been masked.
	_ = e.admin.Setattr(ctx, dir, client.Stateid{}, &client.SetAttr{Mode: client.Ptr(uint32(0o777))})
	t.Dir = dir
	c.Run(t)
	return r
}
