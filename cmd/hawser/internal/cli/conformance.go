package cli

import (
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/hawserfs/hawser/tools/bench"
	"github.com/hawserfs/hawser/tools/conformance"
)

func (s *shared) conformance() *cobra.Command {
	cfg := conformance.Config{}
	var minors []int
	var run string
	var list bool
	cmd := &cobra.Command{
		Use: "conformance SERVER", Short: "Hold an NFSv4 server to what the RFCs demand", Args: cobra.MaximumNArgs(1),
		Long: "Checks any NFSv4 server, rule by rule, over the network alone: nothing is mounted. SERVER is HOST/DIR or\n" +
			"HOST:PORT/DIR; what is made is in one new directory in DIR, and is removed at the end. Each rule is named with the\n" +
			"section of the RFC that it is from. The user should be root, and not squashed: some rules are about who may what.\n" +
			"Exit status 1 says that a rule does not hold.",
		Example: "  hawser conformance 10.0.0.1/main/scratch\n" +
			"  hawser conformance 10.0.0.9/export --minor 0 --run '^lock/'",
	}
	f := cmd.Flags()
	f.IntSliceVar(&minors, "minor", []int{0, 1, 2}, "minor versions to check")
	f.StringVar(&run, "run", "", "only the rules whose names match this regular expression")
	f.BoolVar(&list, "list", false, "list the rules")
	f.Uint32Var(&cfg.UID, "uid", uint32(os.Getuid()), "user that the server is told")
	f.Uint32Var(&cfg.GID, "gid", uint32(os.Getgid()), "group that the server is told")
	f.Uint32Var(&cfg.Other, "other-uid", 65533, "another user, who is not root")
	f.DurationVar(&cfg.Timeout, "timeout", 0, "time for a rule (default 1m)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if run != "" {
			var err error
			if cfg.Run, err = regexp.Compile(run); err != nil {
				return fmt.Errorf("--run: %w", err)
			}
		}
		if list {
			return s.listRules(cmd.OutOrStdout(), cfg.Run)
		}
		if len(args) == 0 {
			return fmt.Errorf("name the server: HOST/DIR or HOST:PORT/DIR")
		}
		server, err := bench.ParseServer(args[0], "")
		if err != nil {
			return err
		}
		cfg.Addr, cfg.Dir = server.Addr, server.Dir
		for _, m := range minors {
			if m < 0 || m > 2 {
				return fmt.Errorf("--minor %d: there are 0, 1 and 2", m)
			}
			cfg.Minors = append(cfg.Minors, uint32(m))
		}
		out := cmd.OutOrStdout()
		if s.output != "json" {
			cfg.Report = func(r conformance.Result) {
				if r.Outcome != conformance.Passed {
					fmt.Fprintln(out, r.String())
				}
			}
		}
		rep, err := conformance.Run(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		err = s.print(out, rep, func(w io.Writer) {
			fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", rep.Passed, rep.Failed, rep.Skipped)
		})
		if err == nil && rep.Failed > 0 {
			return fmt.Errorf("%s breaks %d rules", rep.Server, rep.Failed)
		}
		return err
	}
	return s.outputFlag(cmd)
}

// listRules writes the rules that match.
func (s *shared) listRules(w io.Writer, run *regexp.Regexp) error {
	type rule struct {
		Name     string   `json:"name"`
		Section  string   `json:"section"`
		Versions []string `json:"versions"`
	}
	rules := []rule{}
	for _, c := range conformance.Cases() {
		if run != nil && !run.MatchString(c.Name) {
			continue
		}
		r := rule{Name: c.Name, Section: c.Section}
		for minor := range uint32(3) {
			if c.Minors.Has(minor) {
				r.Versions = append(r.Versions, fmt.Sprintf("4.%d", minor))
			}
		}
		rules = append(rules, r)
	}
	return s.print(w, rules, func(w io.Writer) {
		for _, r := range rules {
			fmt.Fprintf(w, "%s (%s) %v\n", r.Name, r.Section, r.Versions)
		}
	})
}
