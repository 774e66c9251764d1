package cli

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/hawserfs/hawser/cmd/hawser/internal/node"
	"github.com/hawserfs/hawser/conf"
)

func (s *shared) data() *cobra.Command {
	cmd := &cobra.Command{Use: "data", Short: "Work on the data of stopped nodes"}
	cmd.AddCommand(s.export())
	return cmd
}

func (s *shared) export() *cobra.Command {
	var req node.ExportRequest
	cmd := &cobra.Command{
		Use: "export --to FOLDER [CONFIG...]", Short: "Write the files of stopped nodes to a local folder, without a cluster",
		Long: "For the day when the cluster can't be brought back: reads the state machines and the segment files of stopped\n" +
			"nodes, named by their configuration files or by their folders (--data, --disk), as many as are left. One node's data\n" +
			"folder is enough for the names; the disks must have one copy of each blob. Modes, owners, times, extended\n" +
			"attributes and links are kept (owners need root). A file of which a part is missing gets the suffix\n" +
			".hawser-incomplete. Interrupted, it goes on when it is run again. The exit status is 0 if nothing is missing.",
	}
	cmd.Flags().StringVar(&req.To, "to", "", "the folder to write to")
	cmd.Flags().StringVar(&req.Volume, "volume", "", "the volume, by name or number (default: all, each in a folder of its own)")
	cmd.Flags().StringVar(&req.Path, "path", "", "only this part of the volume")
	cmd.Flags().StringSliceVar(&req.Data, "data", nil, "a stopped node's data folder; may be repeated")
	cmd.Flags().StringSliceVar(&req.Disks, "disk", nil, "a folder with segment files; may be repeated")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, f := range args {
			c, err := conf.Load(f)
			if err != nil {
				return err
			}
			req.Data, req.Disks = append(req.Data, c.Node.Data), append(req.Disks, c.Node.Disks...)
		}
		switch {
		case req.To == "":
			return errors.New("--to is missing: name the folder that the files are to be written to")
		case len(req.Data) == 0:
			return errors.New("no data folder is named: give the configuration of a stopped node, or --data FOLDER")
		case req.Path != "" && req.Volume == "":
			return errors.New("--path is of a volume: name it with --volume")
		}
		if len(req.Disks) == 0 {
			req.Disks = []string{filepath.Join(req.Data[0], "disk")}
		}
		sum, err := node.Export(cmd.Context(), req, func(line string) {
			fmt.Fprintln(cmd.OutOrStdout(), "missing:", line)
		}, func(line string) {
			fmt.Fprintln(cmd.ErrOrStderr(), line)
		})
		fmt.Fprintf(cmd.OutOrStdout(), "%d files are whole, %d have parts missing, %d directories, links and others; %s written by this run\n",
			sum.Files, sum.Damaged, sum.Others, humanize.IBytes(sum.Bytes))
		if err != nil {
			return fmt.Errorf("%w: run it again to go on", err)
		}
		if sum.Damaged+sum.Failed > 0 {
			return fmt.Errorf("%d files have parts missing, %d things could not be written as they were: see the lines above", sum.Damaged, sum.Failed)
		}
		return nil
	}
	return cmd
}
