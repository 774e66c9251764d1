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

func (s *shared) repair() *cobra.Command {
	cmd := &cobra.Command{Use: "repair", Short: "Show how data comes back to its full number of copies"}
	client := s.admin(cmd)
	status := &cobra.Command{
		Use: "status", Short: "Show what is repaired and moved, how far it is, and what can't be and why", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd.Context(), 30*time.Second, client, func(ctx context.Context, c *admin.Client) error {
				list, err := c.RepairStatus(ctx)
				if err != nil {
					return err
				}
				return s.print(cmd.OutOrStdout(), list, func(w io.Writer) { writeRepair(w, list) })
			})
		},
	}
	cmd.AddCommand(s.outputFlag(status))
	return cmd
}

func writeRepair(w io.Writer, list []admin.VolumeRepair) {
	for _, v := range list {
		switch {
		case v.Error != "":
			fmt.Fprintf(w, "volume %s: %s\n", v.Volume, v.Error)
			continue
		case len(v.Status.Moves) == 0 && len(v.Status.Waits) == 0:
			fmt.Fprintf(w, "volume %s: nothing is to be repaired or moved\n", v.Volume)
			continue
		}
		fmt.Fprintf(w, "volume %s (by node %s): %d replica sets are being moved, %d wait", v.Volume, v.Leader, len(v.Status.Moves), len(v.Status.Waits))
		if eta := v.Status.ETA(); eta > 0 {
			fmt.Fprintf(w, "; about %v to go", eta)
		}
		fmt.Fprintln(w)
		t := newTable(w)
		fmt.Fprintln(t, "SET\tWHY\tFROM\tTO\tBLOBS\tDATA\tRATE")
		for _, m := range v.Status.Moves {
			fmt.Fprintf(t, "%d\t%s\t%s\t%d\t%d of %d\t%s of %s\t%s/s\n", m.Set, m.Reason, storeName(uint32(m.From)), m.To,
				m.Blobs, m.AllBlobs, humanize.IBytes(m.Bytes), humanize.IBytes(m.AllBytes), humanize.IBytes(uint64(m.Rate)))
		}
		for _, x := range v.Status.Waits {
			why := x.Why
			if why == "" {
				why = "waits for its turn"
			}
			fmt.Fprintf(t, "%d\t%s\t%s\t\t%d\t%s\t%s\n", x.Set, x.Reason, storeName(uint32(x.From)), x.Blobs, humanize.IBytes(x.Bytes), why)
		}
		t.flush()
	}
}

func storeName(id uint32) string {
	if id == 0 {
		return ""
	}
	return fmt.Sprint(id)
}
