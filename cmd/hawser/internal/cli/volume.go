package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
)

func (s *shared) volume() *cobra.Command {
	cmd := &cobra.Command{Use: "volume", Short: "Make and list volumes: file systems, each a folder of server:/"}
	client := s.admin(cmd)
	var class admin.Class
	create := &cobra.Command{
		Use: "create NAME", Short: "Make a volume", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkClass(class); err != nil {
				return err
			}
			return with(cmd.Context(), time.Minute, client, func(ctx context.Context, c *admin.Client) error {
				v, err := c.CreateVolume(ctx, admin.Volume{Name: args[0], Consistency: class.Consistency, Copies: class.Copies})
				if err != nil {
					return err
				}
				return s.print(cmd.OutOrStdout(), v, func(w io.Writer) { writeVolumes(w, []admin.Volume{v}) })
			})
		},
	}
	classFlags(create, &class)
	list := &cobra.Command{
		Use: "list", Short: "List the volumes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd.Context(), 30*time.Second, client, func(ctx context.Context, c *admin.Client) error {
				all, err := c.Volumes(ctx)
				if err != nil {
					return err
				}
				return s.print(cmd.OutOrStdout(), all, func(w io.Writer) { writeVolumes(w, all) })
			})
		},
	}
	show := &cobra.Command{
		Use: "show NAME", Short: "Show a volume", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd.Context(), 30*time.Second, client, func(ctx context.Context, c *admin.Client) error {
				all, err := c.Volumes(ctx)
				if err != nil {
					return err
				}
				for _, v := range all {
					if v.Name == args[0] {
						return s.print(cmd.OutOrStdout(), v, func(w io.Writer) { writeVolumes(w, []admin.Volume{v}) })
					}
				}
				return fmt.Errorf("there is no volume %q: `hawser volume list` lists them", args[0])
			})
		},
	}
	cmd.AddCommand(s.outputFlag(create), s.outputFlag(list), s.outputFlag(show))
	return cmd
}

func writeVolumes(w io.Writer, list []admin.Volume) {
	t := newTable(w)
	fmt.Fprintln(t, "VOLUME\tID\tCONSISTENCY\tCOPIES\tFILES\tDATA")
	for _, v := range list {
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%d\t%s\n", v.Name, v.ID, v.Consistency, v.Copies, v.Files, humanize.IBytes(v.Bytes))
	}
	t.flush()
}
