package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
)

func (s *shared) cluster() *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "Make a cluster, and join one"}
	client := s.admin(cmd)
	limit := 2 * time.Minute
	cmd.PersistentFlags().DurationVar(&limit, "timeout", limit, "how long to wait")
	var init admin.InitRequest
	initCmd := &cobra.Command{
		Use: "init", Short: "Make a new cluster with this node as its first, and the volume main", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd.Context(), limit, client, func(ctx context.Context, c *admin.Client) error {
				if err := c.Init(ctx, init); err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), "The cluster is there. On each other node: hawser cluster join ADDRESS, with this node's listen.peer address.")
				return nil
			})
		},
	}
	initCmd.PreRunE = func(*cobra.Command, []string) error { return checkClass(init.Class) }
	initCmd.Flags().StringVar(&init.Name, "name", "hawser", "the cluster's name")
	classFlags(initCmd, &init.Class)
	cmd.AddCommand(initCmd, &cobra.Command{
		Use: "join ADDRESS", Short: "Make this node a member of the cluster that the node at ADDRESS (HOST:PORT) belongs to", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd.Context(), limit, client, func(ctx context.Context, c *admin.Client) error {
				if err := c.Join(ctx, admin.JoinRequest{Address: args[0]}); err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), "This node is a member now. `hawser status` shows the cluster.")
				return nil
			})
		},
	})
	return cmd
}

// with calls fn with a client and a limit of time.
func with(ctx context.Context, limit time.Duration, client func() (*admin.Client, error), fn func(context.Context, *admin.Client) error) error {
	c, err := client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return fn(ctx, c)
}

func classFlags(cmd *cobra.Command, c *admin.Class) {
	cmd.Flags().StringVar(&c.Consistency, "consistency", "strict", "strict (every write is durable before its reply) or relaxed")
	cmd.Flags().Uint8Var(&c.Copies, "copies", 3, "copies of each byte of file data, 1 to 3")
}

// checkClass refuses what classFlags can't mean, before anything is done.
func checkClass(c admin.Class) error {
	if c.Consistency != "strict" && c.Consistency != "relaxed" {
		return fmt.Errorf("--consistency is %q: use strict or relaxed", c.Consistency)
	}
	if c.Copies < 1 || c.Copies > 3 {
		return fmt.Errorf("--copies is %d: it must be 1, 2 or 3", c.Copies)
	}
	return nil
}
