package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/hawserfs/hawser/cluster/member"
	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
)

func (s *shared) status() *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "Show nodes, groups, capacity and health", Args: cobra.NoArgs}
	client := s.admin(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return with(cmd.Context(), 30*time.Second, client, func(ctx context.Context, c *admin.Client) error {
			st, err := c.Status(ctx)
			if err != nil {
				return err
			}
			return s.print(cmd.OutOrStdout(), st, func(w io.Writer) { writeStatus(w, st) })
		})
	}
	return s.outputFlag(cmd)
}

func writeStatus(w io.Writer, st admin.Status) {
	c := st.Cluster
	if !c.Member {
		fmt.Fprintf(w, "node %s (hawser %s) is not a member of a cluster yet: run `hawser cluster init` on the first node, `hawser cluster join ADDRESS` on the others\n", c.Self, st.Version)
		return
	}
	fmt.Fprintf(w, "cluster %s, seen from node %s (hawser %s), which serves ", c.Name, c.Self, st.Version)
	if len(st.Serving) > 0 {
		fmt.Fprintf(w, "NFS on %s\n\n", strings.Join(st.Serving, ", "))
	} else {
		fmt.Fprint(w, "no NFS now\n\n")
	}
	t := newTable(w)
	fmt.Fprintln(t, "NODE\tSTATE\tSINCE\tROLES\tRACK\tPEERS\tNFS")
	for _, n := range c.Nodes {
		state := n.State
		if n.Draining {
			state += ", drained"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", n.ID, state, humanize.Time(n.Since), n.Roles, n.Rack, n.PeerAddr, n.NFSAddr)
	}
	fmt.Fprintln(t, "\nSTORE\tNODE\tSTATE\tUSED\tCAPACITY\t\t")
	for _, x := range c.Stores {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t\t\n", x.ID, x.Node, x.State, humanize.IBytes(x.Used), humanize.IBytes(x.Capacity))
	}
	fmt.Fprintln(t, "\nGROUP\tLEADER\tTERM\tAPPLIED\tMEMBERS (* VOTES)\t\t")
	for _, g := range c.Groups {
		var members []string
		for _, m := range g.Members {
			name := string(m.Node)
			if m.Voter {
				name += "*"
			}
			members = append(members, fmt.Sprintf("%s:%d", name, m.Applied))
		}
		leader := string(g.Leader)
		if leader == "" {
			leader = "none"
		}
		fmt.Fprintf(t, "%d\t%s\t%d\t%d\t%s\t\t\n", g.ID, leader, g.Term, g.Applied, strings.Join(members, " "))
	}
	fmt.Fprintln(t, "\nVOLUME\tCLASS\tFILES\tDATA\tREPLICA SETS\t\t")
	for _, v := range c.Volumes {
		moving := ""
		if v.Sets.Moving > 0 {
			moving = fmt.Sprintf(", %d being moved: see hawser repair status", v.Sets.Moving)
		}
		fmt.Fprintf(t, "%s\t%s, copies=%d\t%d\t%s\t%d healthy, %d degraded, %d lost, %d with fewer members than copies%s\t\t\n",
			v.Name, v.Consistency, v.Copies, v.Files, humanize.IBytes(v.Bytes), v.Sets.Healthy, v.Sets.Degraded, v.Sets.Lost, v.Sets.Reduced, moving)
	}
	if len(st.Packing) > 0 {
		fmt.Fprintln(t, "\nPACKING\tBLOBS\tPACKED\tCOMPACTED\tJOINED\tFILES WAITING\tERRORS")
		for _, p := range st.Packing {
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%d\t%d\n", p.Volume, p.Blobs, humanize.IBytes(p.Packed), humanize.IBytes(p.Compacted),
				humanize.IBytes(p.Joined), p.Waiting, p.Errors)
		}
	}
	if slices.ContainsFunc(c.Identities, func(i member.IdentityStatus) bool { return i.Address != "" }) {
		fmt.Fprintln(t)
		tabulate(t, c.Identities)
	}
	t.flush()
	if len(c.Problems) == 0 {
		fmt.Fprintln(w, "\nall is well")
	}
	for i, p := range c.Problems {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, "problem:", p)
	}
}
