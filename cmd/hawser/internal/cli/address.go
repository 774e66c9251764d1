package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/hawserfs/hawser/cluster/member"
	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
	"github.com/hawserfs/hawser/conf"
)

func (s *shared) address() *cobra.Command {
	cmd := &cobra.Command{
		Use: "address", Short: "Floating addresses: add, list, move and remove them, and drain a node of them",
		Long: "A floating address is on one node at a time and moves, with its clients, their open files and locks, to\n" +
			"another one when its node dies, stops or is drained. Clients should mount floating addresses.",
	}
	client := s.admin(cmd)
	// verb makes a verb that does something and says so.
	verb := func(use, short string, args cobra.PositionalArgs, do func(context.Context, *admin.Client, []string) (string, error)) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: args, RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd.Context(), time.Minute, client, func(ctx context.Context, c *admin.Client) error {
				said, err := do(ctx, c, args)
				if err == nil {
					fmt.Fprintln(cmd.OutOrStdout(), said)
				}
				return err
			})
		}}
	}
	var added admin.AddressRequest
	add := verb("add ADDRESS/PREFIX", "Add a floating address, like 10.0.0.50/24: one of the clients' subnet that no machine has", cobra.ExactArgs(1),
		func(ctx context.Context, c *admin.Client, args []string) (string, error) {
			added.Address = args[0]
			return "The cluster has the address " + args[0] + " now. `hawser address list` says which node serves it.", c.AddAddress(ctx, added)
		})
	add.PreRunE = func(_ *cobra.Command, args []string) error {
		text := args[0]
		if added.Group != "" {
			text += "@" + added.Group
		}
		_, err := conf.ParseFloating(text)
		return err
	}
	add.Flags().StringVar(&added.Group, "group", "", "addresses of a group are spread over the nodes together")
	add.Flags().StringVar(&added.Home, "home", "", "the node that the address belongs on, and returns to if addresses.failback is auto")
	list := &cobra.Command{
		Use: "list", Short: "List the floating addresses", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd.Context(), 30*time.Second, client, func(ctx context.Context, c *admin.Client) error {
				all, err := c.Addresses(ctx)
				if err != nil {
					return err
				}
				return s.print(cmd.OutOrStdout(), all, func(w io.Writer) { writeAddresses(w, all) })
			})
		},
	}
	cmd.AddCommand(add, s.outputFlag(list),
		verb("move ADDRESS [NODE]", "Give an address to a node, or to the one that has the fewest", cobra.RangeArgs(1, 2),
			func(ctx context.Context, c *admin.Client, args []string) (string, error) {
				req := admin.AddressRequest{Address: args[0]}
				if len(args) > 1 {
					req.Node = args[1]
				}
				return "The address " + args[0] + " has moved.", c.MoveAddress(ctx, req)
			}),
		verb("remove ADDRESS", "Remove an address from the cluster; clients that have it mounted wait for ever", cobra.ExactArgs(1),
			func(ctx context.Context, c *admin.Client, args []string) (string, error) {
				return "The cluster does not have the address " + args[0] + " any more.", c.RemoveAddress(ctx, admin.AddressRequest{Address: args[0]})
			}),
		verb("drain NODE", "Move all addresses away from a node, and give it none until undrain", cobra.ExactArgs(1),
			func(ctx context.Context, c *admin.Client, args []string) (string, error) {
				return "Node " + args[0] + " gives its addresses away, and gets none until `hawser address undrain " + args[0] + "`.",
					c.Drain(ctx, admin.DrainRequest{Node: args[0], Drain: true})
			}),
		verb("undrain NODE", "Let a node have addresses again; none moves back by itself unless addresses.failback is auto", cobra.ExactArgs(1),
			func(ctx context.Context, c *admin.Client, args []string) (string, error) {
				return "Node " + args[0] + " may have addresses again.", c.Drain(ctx, admin.DrainRequest{Node: args[0]})
			}),
	)
	return cmd
}

func writeAddresses(w io.Writer, list []member.IdentityStatus) {
	t := newTable(w)
	tabulate(t, list)
	t.flush()
}

// tabulate writes the floating ones among identities.
func tabulate(w io.Writer, list []member.IdentityStatus) {
	fmt.Fprintln(w, "ADDRESS\tGROUP\tNODE\tSTATE\tSINCE\tHOME\tCLIENTS")
	for _, i := range list {
		if i.Address == "" {
			continue
		}
		node := string(i.Node)
		if node == "" {
			node = "none"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\n", i.Address, i.Group, node, i.State, humanize.Time(i.Since), i.Home, i.Clients)
	}
}
