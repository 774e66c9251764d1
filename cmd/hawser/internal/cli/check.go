package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
	"github.com/hawserfs/hawser/cmd/hawser/internal/node"
	"github.com/hawserfs/hawser/conf"
)

func (s *shared) check() *cobra.Command {
	var req admin.CheckRequest
	offline := false
	cmd := &cobra.Command{
		Use:   "check [CONFIG...]",
		Short: "Verify the cluster: trees, references, replica sets, extents, copies and checksums",
		Long: "Without --offline, asks the running server, which looks at all nodes that are up.\n" +
			"With --offline, looks at the data folders of stopped nodes on this machine, each named by its configuration file.",
	}
	client := s.admin(cmd)
	cmd.Flags().BoolVar(&req.Data, "data", false, "read every copy of the data and verify its checksums")
	cmd.Flags().BoolVar(&offline, "offline", false, "look at the data folders of stopped nodes")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case !offline && len(args) > 0:
			return fmt.Errorf("%s: only a check of stopped nodes takes configuration files: add --offline, or name the running node's with --config", args[0])
		case offline && s.socket != "":
			return errors.New("--socket asks a running server, and --offline looks at stopped ones: choose one")
		}
		report := func(e admin.CheckEvent) {
			if e.Problem != "" {
				fmt.Fprintln(cmd.OutOrStdout(), "problem:", e.Problem)
			} else {
				fmt.Fprintln(cmd.ErrOrStderr(), e.Progress)
			}
		}
		var sum admin.CheckSummary
		var err error
		if offline {
			sum, err = s.checkOffline(cmd.Context(), args, req, report)
		} else {
			var c *admin.Client
			if c, err = client(); err == nil {
				sum, err = c.Check(cmd.Context(), req, report)
			}
		}
		if err != nil {
			return err
		}
		writeSummary(cmd.OutOrStdout(), sum)
		if sum.Problems > 0 {
			return fmt.Errorf("%d problems found", sum.Problems)
		}
		return nil
	}
	return cmd
}

func (s *shared) checkOffline(ctx context.Context, files []string, req admin.CheckRequest, report func(admin.CheckEvent)) (admin.CheckSummary, error) {
	if len(files) == 0 {
		files = []string{s.configFile()}
	}
	var configs []conf.Config
	for _, f := range files {
		c, err := conf.Load(f)
		if err != nil {
			return admin.CheckSummary{}, err
		}
		configs = append(configs, c)
	}
	return node.CheckOffline(ctx, configs, req, report)
}

func writeSummary(w io.Writer, s admin.CheckSummary) {
	fmt.Fprintf(w, "%d volumes, %d inodes, %d blobs, %d copies looked at: %d problems\n", s.Volumes, s.Inodes, s.Blobs, s.Copies, s.Problems)
	if s.Unused > 0 {
		fmt.Fprintf(w, "%d copies are of blobs that no file uses; the cluster frees them in time\n", s.Unused)
	}
	if s.Misplaced > 0 {
		fmt.Fprintf(w, "%d copies are on stores that their blobs have moved away from; the cluster deletes them in time\n", s.Misplaced)
	}
	if len(s.Skipped) > 0 {
		fmt.Fprintf(w, "NOT LOOKED AT, since they can't be reached: stores %s\n", strings.Trim(fmt.Sprint(s.Skipped), "[]"))
	}
}
