package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
)

// adminVerb makes a verb that asks the server for something and says so.
func adminVerb(use, short, long string, args cobra.PositionalArgs, client func() (*admin.Client, error), do func(context.Context, *admin.Client, io.Writer, []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long, Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd.Context(), time.Minute, client, func(ctx context.Context, c *admin.Client) error {
				return do(ctx, c, cmd.OutOrStdout(), args)
			})
		},
	}
}

func (s *shared) node() *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Add, drain and remove nodes"}
	client := s.admin(cmd)
	one := cobra.ExactArgs(1)
	var force bool
	remove := adminVerb("remove NODE", "Take a node out of the cluster, for good",
		"The node's copies are made anew on others, and another node votes in its stead where there is one. A running\n"+
			"node should be drained first. It is refused while data or votes would be lost by it; --force accepts that, and\n"+
			"says what it was.", one, client,
		func(ctx context.Context, c *admin.Client, w io.Writer, args []string) error {
			lost, err := c.RemoveNode(ctx, admin.NodeRequest{Node: args[0], Force: force})
			if err != nil {
				return err
			}
			writeLost(w, lost)
			fmt.Fprintf(w, "Node %s is removed. Stop it, if it runs; its data folder and disks must be emptied before they are used again.\n", args[0])
			return nil
		})
	remove.Flags().BoolVar(&force, "force", false, "remove it, whatever is lost by it")
	cmd.AddCommand(
		adminVerb("add ADDRESS", "Make this node a member of the cluster that ADDRESS belongs to", "The same as `hawser cluster join`: run it on the new node. Then `hawser rebalance` gives it its share of the data.", one, client,
			func(ctx context.Context, c *admin.Client, w io.Writer, args []string) error {
				if err := c.Join(ctx, admin.JoinRequest{Address: args[0]}); err != nil {
					return err
				}
				fmt.Fprintln(w, "This node is a member now. `hawser rebalance` gives it its share of the data.")
				return nil
			}),
		adminVerb("drain NODE", "Empty a node: its addresses and its data go to others", "Every copy that it has is made elsewhere before it is given up. `hawser repair status` shows how far that is.", one, client,
			func(ctx context.Context, c *admin.Client, w io.Writer, args []string) error {
				if err := c.DrainNode(ctx, admin.NodeRequest{Node: args[0]}); err != nil {
					return err
				}
				fmt.Fprintf(w, "Node %s is being emptied. `hawser repair status` shows how far that is.\n", args[0])
				return nil
			}),
		adminVerb("undrain NODE", "End a node's draining: it may have addresses and data again", "", one, client,
			func(ctx context.Context, c *admin.Client, w io.Writer, args []string) error {
				if err := c.DrainNode(ctx, admin.NodeRequest{Node: args[0], Undo: true}); err != nil {
					return err
				}
				fmt.Fprintf(w, "Node %s may have addresses and data again. `hawser rebalance` gives it its share.\n", args[0])
				return nil
			}),
		remove,
	)
	return cmd
}

func writeLost(w io.Writer, lost admin.Consequences) {
	for _, r := range lost.Reasons {
		fmt.Fprintln(w, "accepted:", r)
	}
}

func (s *shared) disk() *cobra.Command {
	cmd := &cobra.Command{Use: "disk", Short: "Drain and remove disks, by the number of their store in `hawser status`"}
	client := s.admin(cmd)
	one := cobra.ExactArgs(1)
	store := func(arg string) (cluster.StoreID, error) {
		id, err := strconv.ParseUint(arg, 10, 32)
		if err != nil || id == 0 {
			return 0, fmt.Errorf("%q is no store's number: `hawser status` lists them", arg)
		}
		return cluster.StoreID(id), nil
	}
	drain := func(use, short, done string, undo bool) *cobra.Command {
		return adminVerb(use, short, "", one, client, func(ctx context.Context, c *admin.Client, w io.Writer, args []string) error {
			id, err := store(args[0])
			if err == nil {
				err = c.DrainDisk(ctx, admin.DiskRequest{Store: id, Undo: undo})
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(w, done, id)
			return nil
		})
	}
	var force bool
	remove := adminVerb("remove STORE", "Take a disk out of the cluster, for good", "It is refused while data would be lost, or have a copy less, by it; --force accepts that, and says what it was.", one, client,
		func(ctx context.Context, c *admin.Client, w io.Writer, args []string) error {
			id, err := store(args[0])
			if err != nil {
				return err
			}
			lost, err := c.RemoveDisk(ctx, admin.DiskRequest{Store: id, Force: force})
			if err != nil {
				return err
			}
			writeLost(w, lost)
			fmt.Fprintf(w, "Store %d is removed. Take its folder out of node.disks; the disk must be emptied before it is used again.\n", id)
			return nil
		})
	remove.Flags().BoolVar(&force, "force", false, "remove it, whatever is lost by it")
	cmd.AddCommand(
		drain("drain STORE", "Empty a disk: its data goes to others", "Store %d is being emptied. `hawser repair status` shows how far that is.\n", false),
		drain("undrain STORE", "End a disk's draining", "Store %d may have data again.\n", true),
		remove,
	)
	return cmd
}

func (s *shared) rebalance() *cobra.Command {
	var req admin.RebalanceRequest
	cmd := &cobra.Command{
		Use: "rebalance", Short: "Even out how full the disks are", Args: cobra.NoArgs,
		Long: "Data is moved from the fullest disks to the emptiest ones, while it is in use, until they differ little. New\n" +
			"disks get data by themselves as files are written; this moves what is there.",
	}
	client := s.admin(cmd)
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "only show what would be moved")
	cmd.Flags().BoolVar(&req.Stop, "stop", false, "begin no more moves")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return with(cmd.Context(), time.Minute, client, func(ctx context.Context, c *admin.Client) error {
			list, err := c.Rebalance(ctx, req)
			if err != nil {
				return err
			}
			return s.print(cmd.OutOrStdout(), list, func(w io.Writer) { writeMoves(w, list, req) })
		})
	}
	return s.outputFlag(cmd)
}

func writeMoves(w io.Writer, list []admin.VolumeMoves, req admin.RebalanceRequest) {
	if req.Stop {
		fmt.Fprintln(w, "No more moves are begun; those under way go on to their end.")
		return
	}
	n, bytes := 0, uint64(0)
	t := newTable(w)
	for _, v := range list {
		for _, m := range v.Moves {
			if n++; n == 1 {
				fmt.Fprintln(t, "VOLUME\tSET\tWHY\tFROM\tTO\tDATA")
			}
			bytes += m.Set.Bytes
			fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%d\t%s\n", v.Volume, m.Set.ID, m.Reason, m.From, m.To, humanize.IBytes(m.Set.Bytes))
		}
	}
	t.flush()
	switch {
	case n == 0:
		fmt.Fprintln(w, "Nothing is to be moved: the disks differ little.")
	case req.DryRun:
		fmt.Fprintf(w, "%d replica sets with %s would be moved.\n", n, humanize.IBytes(bytes))
	default:
		fmt.Fprintf(w, "%d replica sets with %s are being moved: see `hawser repair status`.\n", n, humanize.IBytes(bytes))
	}
}

// ErrNotSafe is the error of safe-to-stop for a node that is needed.
var ErrNotSafe = errors.New("it is not safe to stop it")

func (s *shared) safeToStop() *cobra.Command {
	cmd := &cobra.Command{
		Use: "safe-to-stop NODE", Short: "Say whether the cluster goes on if a node stops now", Args: cobra.ExactArgs(1),
		Long: "The exit status is 0 if all data can be read, every group has a majority and every address is served without\n" +
			"the node; else it is 1, and says why. It is about this moment: ask again for the next one.",
	}
	client := s.admin(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return with(cmd.Context(), time.Minute, client, func(ctx context.Context, c *admin.Client) error {
			broken, err := c.SafeToStop(ctx, args[0])
			if err != nil {
				return err
			}
			err = s.print(cmd.OutOrStdout(), broken, func(w io.Writer) {
				if len(broken.Reasons) == 0 {
					fmt.Fprintf(w, "Node %s can be stopped: everything goes on without it.\n", args[0])
				}
			})
			if err == nil && len(broken.Reasons) > 0 {
				err = fmt.Errorf("%w: %s", ErrNotSafe, strings.Join(broken.Reasons, "; "))
			}
			return err
		})
	}
	return s.outputFlag(cmd)
}
