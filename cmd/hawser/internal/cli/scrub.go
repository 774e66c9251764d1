package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
)

func (s *shared) scrub() *cobra.Command {
	var req admin.ScrubRequest
	var store uint32
	cmd := &cobra.Command{
		Use: "scrub [PATH]", Short: "Verify copies of the data now, and make whole what is damaged or missing", Args: cobra.MaximumNArgs(1),
		Long: "Every copy is read and verified by itself every " + "scrub.every; this does it now: for the files at PATH and below, for the\n" +
			"stores of a node, for one store, or for all. Interrupting it (Ctrl-C) ends it; what it repaired stays so.\n" +
			"PATH begins with the volume's name: /main/datasets. The exit status is 0 if everything is whole then.",
	}
	client := s.admin(cmd)
	cmd.Flags().StringVar((*string)(&req.Node), "node", "", "the stores of this node")
	cmd.Flags().Uint32Var(&store, "store", 0, "this store, by its number in `hawser status`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req.Store = cluster.StoreID(store)
		if len(args) > 0 {
			req.Path = args[0]
		}
		c, err := client()
		if err != nil {
			return err
		}
		sum, err := c.Scrub(cmd.Context(), req, func(e admin.ScrubEvent) {
			if e.Problem != "" {
				fmt.Fprintln(cmd.OutOrStdout(), "problem:", e.Problem)
			} else {
				fmt.Fprintln(cmd.ErrOrStderr(), e.Progress)
			}
		})
		if err != nil {
			return err
		}
		writeScrub(cmd.OutOrStdout(), sum)
		if sum.Failed > 0 || len(sum.Skipped) > 0 {
			return fmt.Errorf("not everything is whole: %d copies could not be repaired, %d stores were not scrubbed to their end", sum.Failed, len(sum.Skipped))
		}
		return nil
	}
	status := &cobra.Command{
		Use: "status", Short: "Show how the scrubs stand, and which copies could not be repaired", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd.Context(), 30*time.Second, client, func(ctx context.Context, c *admin.Client) error {
				list, err := c.ScrubStatus(ctx)
				if err != nil {
					return err
				}
				return s.print(cmd.OutOrStdout(), list, func(w io.Writer) { writeScrubStatus(w, list) })
			})
		},
	}
	cmd.AddCommand(s.outputFlag(status))
	return cmd
}

func writeScrub(w io.Writer, s admin.ScrubSummary) {
	fmt.Fprintf(w, "%d copies on %d stores read (%s): %d were damaged, %d missing; %d are whole again, %d could not be repaired\n",
		s.Copies, len(s.Stores), humanize.IBytes(s.Bytes), s.Bad, s.Missing, s.Repaired, s.Failed)
	if len(s.Skipped) > 0 {
		fmt.Fprintf(w, "NOT SCRUBBED to the end: stores %s\n", strings.Trim(fmt.Sprint(s.Skipped), "[]"))
	}
}

func writeScrubStatus(w io.Writer, list []admin.NodeScrubs) {
	t := newTable(w)
	fmt.Fprintln(t, "STORE\tNODE\tPASS\tDONE\tRATE\tCOPIES\tBAD\tMISSING\tREPAIRED\tNOT REPAIRED")
	for _, n := range list {
		if n.Error != "" {
			fmt.Fprintf(t, "?\t%s\t%s\t\t\t\t\t\t\t\n", n.Node, n.Error)
		}
		for _, x := range n.Stores {
			pass, rate, done := "not begun", "", ""
			switch st := x.State; {
			case x.Running:
				pass, done = "began "+humanize.Time(st.Began), fmt.Sprintf("%.0f %%", 100*x.Done)
				rate = humanize.IBytes(x.Rate) + "/s"
			case !st.Ended.IsZero():
				pass, done = "ended "+humanize.Time(st.Ended), "100 %"
			}
			c := x.State.Counts
			fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\n", x.Store, n.Node, pass, done, rate,
				c.Copies, c.Bad, c.Missing, c.Repaired, uint64(len(x.State.Problems))+x.State.Lost)
		}
	}
	t.flush()
	for _, n := range list {
		for _, x := range n.Stores {
			if x.Fault != "" {
				fmt.Fprintf(w, "store %d: the scrub can't go on now: %s\n", x.Store, x.Fault)
			}
			for _, p := range x.State.Problems {
				fmt.Fprintf(w, "problem: store %d: volume %d, blob %v %s\n", x.Store, p.Key.Group, p.Key.Blob, p.Text)
			}
			if x.State.Lost > 0 {
				fmt.Fprintf(w, "problem: store %d: %d more copies could not be repaired\n", x.Store, x.State.Lost)
			}
		}
	}
}
