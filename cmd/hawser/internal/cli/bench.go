package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/sys/unix"

	"github.com/hawserfs/hawser/tools/bench"
)

func (s *shared) bench() *cobra.Command {
	cmd := &cobra.Command{Use: "bench", Short: "Measure servers"}
	cmd.AddCommand(s.benchNFS())
	return cmd
}

func (s *shared) benchNFS() *cobra.Command {
	cfg := bench.Default()
	var dir, compare, drop string
	cmd := &cobra.Command{
		Use: "nfs SERVER", Short: "Measure an NFSv4.1 or 4.2 server with our own client", Args: cobra.ExactArgs(1),
		Long: "Measures any NFSv4.1 or 4.2 server, over the network alone: nothing is mounted, and the client has no cache.\n" +
			"SERVER is HOST, HOST:PORT or HOST:PORT/DIR. What is made is in one new directory in DIR, and is removed at the\n" +
			"end, also after Ctrl-C. With --compare the runs on two servers alternate, with the same bytes in the same order;\n" +
			"SERVER2 can also be another directory of the same server.\n\n" +
			"Workloads: " + strings.Join(bench.Workloads(), ", ") + ".",
		Example: "  hawser bench nfs 10.0.0.1/main/scratch\n" +
			"  hawser bench nfs 10.0.0.1/main --compare 10.0.0.9/export --workloads create,stat,unlink --jobs 16",
	}
	f := cmd.Flags()
	f.StringVar(&dir, "dir", "", "directory to work in, for a server that names none")
	f.StringVar(&compare, "compare", "", "a second server: both are measured in turns, and the ratios printed")
	f.StringSliceVar(&cfg.Workloads, "workloads", nil, "what to measure (default: all)")
	f.Var(newBytes(&cfg.Block), "block", "size of sequential READs and WRITEs")
	f.Var(newBytes(&cfg.RandomBlock), "random-block", "size of random READs and WRITEs")
	f.Var(newBytes(&cfg.FileSize), "size", "size of each job's large file")
	f.Var(newBytes(&cfg.SmallSize), "small-size", "size of a small file")
	f.IntVar(&cfg.Files, "files", cfg.Files, "files in the large directory, and small files in the tree")
	f.IntVarP(&cfg.Jobs, "jobs", "j", cfg.Jobs, "workers, each like a thread of an application")
	f.IntVar(&cfg.Depth, "depth", cfg.Depth, "READs or WRITEs of its large file that each has under way")
	f.BoolVar(&cfg.Sync, "sync", false, "ask for FILE_SYNC in each WRITE, instead of a COMMIT at the end")
	f.DurationVar(&cfg.Duration, "duration", cfg.Duration, "time of a run; runs that make or remove files end before if all is done")
	f.IntVar(&cfg.Runs, "runs", cfg.Runs, "runs of each workload")
	f.IntVar(&cfg.Warmup, "warmup", cfg.Warmup, "runs before that don't count; what they read is compared with what was written")
	f.Uint64Var(&cfg.Seed, "seed", cfg.Seed, "the bytes written and the order of operations are made from")
	f.Uint32Var(&cfg.Minor, "minor", cfg.Minor, "NFSv4 minor version: 1 or 2")
	f.IntVar(&cfg.Conns, "connections", cfg.Conns, "TCP connections of the session")
	f.Uint32Var(&cfg.UID, "uid", uint32(os.Getuid()), "user that the server is told")
	f.Uint32Var(&cfg.GID, "gid", uint32(os.Getgid()), "group that the server is told")
	f.DurationVar(&cfg.Timeout, "timeout", cfg.Timeout, "time in which a server must answer something")
	f.StringVar(&drop, "drop-caches", "", "shell command that makes the caches of the server $SERVER cold, before each run that reads")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, text := range append(args, compare) {
			if text == "" {
				continue
			}
			server, err := bench.ParseServer(text, dir)
			if err != nil {
				return err
			}
			cfg.Servers = append(cfg.Servers, server)
		}
		if drop != "" {
			cfg.DropCaches = dropCaches(drop, cmd.ErrOrStderr())
		}
		show, stop := progressBar(cmd.Context(), cmd.ErrOrStderr())
		cfg.Progress = show
		report, err := bench.Run(cmd.Context(), cfg)
		stop()
		switch {
		case cmd.Context().Err() != nil && err == cmd.Context().Err():
			return fmt.Errorf("stopped before the end; what was made on %s is removed", args[0])
		case err != nil:
			return err
		case s.output == "json":
			return s.print(cmd.OutOrStdout(), report, nil)
		}
		return report.WriteText(cmd.OutOrStdout())
	}
	return s.outputFlag(cmd)
}

// dropCaches returns what runs a shell command that makes a server's caches cold.
func dropCaches(command string, out io.Writer) func(context.Context, bench.Server) error {
	return func(ctx context.Context, server bench.Server) error {
		sh := exec.CommandContext(ctx, "sh", "-c", command)
		sh.Env = append(os.Environ(), "SERVER="+server.Addr)
		sh.Stdout, sh.Stderr = out, out
		if err := sh.Run(); err != nil {
			return fmt.Errorf("--drop-caches %q: %w", command, err)
		}
		return nil
	}
}

// progressBar returns what shows how far it is, if out is a terminal, and what
// ends that.
func progressBar(ctx context.Context, out io.Writer) (show func(bench.Progress), stop func()) {
	f, ok := out.(*os.File)
	if !ok {
		return nil, func() {}
	}
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
		return nil, func() {}
	}
	const whole = 1000
	what := make(chan string, 1) // the latest
	last := ""
	p := mpb.NewWithContext(context.WithoutCancel(ctx), mpb.WithOutput(out), mpb.WithWidth(40))
	bar := p.AddBar(whole,
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Percentage()),
		mpb.AppendDecorators(decor.Elapsed(decor.ET_STYLE_MMSS), decor.Any(func(decor.Statistics) string {
			select {
			case last = <-what:
			default:
			}
			return "  " + last
		})),
	)
	show = func(at bench.Progress) {
		select {
		case <-what:
		default:
		}
		what <- at.What
		// The bar is whole only when it is stopped.
		bar.SetCurrent(min(int64(at.Done*whole), whole-1))
	}
	return show, func() {
		bar.Abort(true)
		p.Wait()
	}
}

// bytesValue is a flag that takes sizes with units, such as 64MiB.
type bytesValue[T int | int64] struct{ n *T }

func newBytes[T int | int64](n *T) bytesValue[T] { return bytesValue[T]{n} }

func (v bytesValue[T]) Type() string { return "size" }

func (v bytesValue[T]) String() string {
	if v.n == nil {
		return ""
	}
	return strings.ReplaceAll(humanize.IBytes(uint64(*v.n)), " ", "")
}

func (v bytesValue[T]) Set(text string) error {
	n, err := humanize.ParseBytes(text)
	if err != nil || n > 1<<50 {
		return fmt.Errorf("write a size such as 4KiB, 1MiB or 2GiB")
	}
	*v.n = T(n)
	return nil
}
