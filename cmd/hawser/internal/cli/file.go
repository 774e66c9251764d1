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

func (s *shared) file() *cobra.Command {
	verify := false
	cmd := &cobra.Command{
		Use: "file PATH", Short: "Show where a file's data is: extents, blobs, copies and how they are", Args: cobra.ExactArgs(1),
		Long: "PATH begins with the volume's name: /main/a/file. The exit status is 0 if every copy is there.",
	}
	client := s.admin(cmd)
	cmd.Flags().BoolVar(&verify, "verify", false, "read every copy and verify its checksums")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		limit := 30 * time.Second
		if verify {
			limit = time.Hour
		}
		return with(cmd.Context(), limit, client, func(ctx context.Context, c *admin.Client) error {
			f, err := c.File(ctx, args[0], verify)
			if err != nil {
				return err
			}
			if err := s.print(cmd.OutOrStdout(), f, func(w io.Writer) { writeFile(w, f) }); err != nil {
				return err
			}
			if h := f.Health; h.Degraded+h.Lost > 0 {
				return fmt.Errorf("%d of the file's blobs lack a copy, %d have none that can be used", h.Degraded, h.Lost)
			}
			return nil
		})
	}
	return s.outputFlag(cmd)
}

func writeFile(w io.Writer, f admin.File) {
	fmt.Fprintf(w, "%s: %s, inode %d of volume %s, %d bytes (%s in extents), %s\n", f.Path, f.Type, f.Ino, f.Volume, f.Size, humanize.IBytes(f.Used), f.Class)
	if len(f.Extents) == 0 {
		return
	}
	t := newTable(w)
	fmt.Fprintln(t, "\nOFFSET\tLENGTH\tBLOB\tAT")
	for _, e := range f.Extents {
		if e.Inline {
			fmt.Fprintf(t, "%d\t%d\tin the volume's state\t\n", e.Off, e.Len)
		} else {
			fmt.Fprintf(t, "%d\t%d\t%s\t%d\n", e.Off, e.Len, e.Blob, e.At)
		}
	}
	t.flush()
	if len(f.Blobs) == 0 {
		return
	}
	t = newTable(w)
	fmt.Fprintln(t, "\nBLOB\tLENGTH\tCRC32C\tREFERENCES\tREPLICA SET\tSTORE\tNODE\tCOPY")
	for _, b := range f.Blobs {
		for i, c := range b.Copies {
			if i == 0 {
				fmt.Fprintf(t, "%s\t%d\t%08x\t%d\t%d, %s\t", b.Blob, b.Len, b.CRC, b.Refs, b.Set, b.State)
			} else {
				fmt.Fprint(t, "\t\t\t\t\t")
			}
			health := c.Health
			if b.Code != "" {
				health = fmt.Sprintf("shard %d of %s, %s", c.Shard, b.Code, health)
			}
			if c.Why != "" {
				health += ": " + c.Why
			}
			fmt.Fprintf(t, "%d\t%s\t%s\n", c.Store, c.Node, health)
		}
	}
	t.flush()
}
