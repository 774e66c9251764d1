// Command kclient sets up a lab of hosts and runs kernel clients in it by hand.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/hawserfs/hawser/tools/kclient"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil {
		var status exitStatus
		if errors.As(err, &status) {
			os.Exit(int(status))
		}
		fmt.Fprintln(os.Stderr, "kclient:", err)
		os.Exit(125)
	}
}

// exitStatus is a guest's command's own.
type exitStatus int

func (s exitStatus) Error() string { return "exit status " + strconv.Itoa(int(s)) }

func root() *cobra.Command {
	var lab string
	cmd := &cobra.Command{
		Use: "kclient", Short: "Stock Linux kernels as NFS clients, on one machine",
		SilenceUsage: true, SilenceErrors: true,
	}
	cmd.PersistentFlags().StringVar(&lab, "lab", "lab", "name of the lab")
	hosts, clients := 0, 0
	up := &cobra.Command{
		Use: "up", Short: "Make a lab: hosts at 10.77.0.11 and up, taps for guests", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := kclient.NewLab(lab, hosts, clients)
			return err
		},
	}
	up.Flags().IntVar(&hosts, "hosts", 3, "number of hosts")
	up.Flags().IntVar(&clients, "clients", 2, "number of taps for guests")
	host := func(use, short string, do func(*kclient.Lab, int) error) *cobra.Command {
		return &cobra.Command{
			Use: use + " HOST", Short: short, Args: cobra.ExactArgs(1),
			RunE: func(_ *cobra.Command, args []string) error {
				i, err := strconv.Atoi(args[0])
				if err != nil {
					return fmt.Errorf("HOST is a number from 1: %w", err)
				}
				return do(kclient.OpenLab(lab, 0, 0), i)
			},
		}
	}
	cmd.AddCommand(up,
		&cobra.Command{
			Use: "down", Short: "Remove the lab", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return kclient.OpenLab(lab, 0, 0).Close() },
		},
		host("cut", "Pull a host's network cable", (*kclient.Lab).Cut),
		host("heal", "Plug a host's network cable in again", (*kclient.Lab).Heal),
		execCommand(&lab),
		guestCommand(&lab),
		&cobra.Command{
			Use: "kernels FOLDER", Short: "Fetch newer kernels for guest --kernel", Args: cobra.ExactArgs(1),
			RunE: func(c *cobra.Command, args []string) error { return kclient.FetchKernels(c.Context(), args[0]) },
		})
	return cmd
}

func execCommand(lab *string) *cobra.Command {
	cmd := &cobra.Command{
		Use: "exec HOST COMMAND...", Short: "Run a command on a host (0: on the bridge)", Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			i, err := strconv.Atoi(args[0])
			if err != nil {
				return fmt.Errorf("HOST is a number from 0: %w", err)
			}
			run := kclient.OpenLab(*lab, 0, 0).Command(c.Context(), i, args[1], args[2:]...)
			run.Stdin, run.Stdout, run.Stderr = os.Stdin, os.Stdout, os.Stderr
			return run.Run()
		},
	}
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func guestCommand(lab *string) *cobra.Command {
	tap, limit, o := 0, time.Duration(0), kclient.Options{}
	cmd := &cobra.Command{
		Use: "guest SCRIPT", Short: "Boot a kernel in the lab, run a shell script in it, and end it", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), limit)
			defer cancel()
			g, err := kclient.OpenLab(*lab, 0, 0).StartGuest(ctx, tap, o)
			if err != nil {
				return err
			}
			r, err := g.Run(ctx, args[0])
			fmt.Print(r.Output)
			if err = errors.Join(err, g.Close()); err == nil && r.Status != 0 {
				err = exitStatus(r.Status)
			}
			return err
		},
	}
	cmd.Flags().IntVarP(&tap, "tap", "n", 1, "which tap the guest is plugged into")
	cmd.Flags().StringVarP(&o.Kernel, "kernel", "k", "", "folder of a fetched kernel; empty: the installed one")
	cmd.Flags().StringVarP(&o.Memory, "memory", "m", "1G", "memory, page cache included")
	cmd.Flags().DurationVarP(&limit, "timeout", "t", 2*time.Minute, "how long it may run")
	return cmd
}
