package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
)

func (s *shared) class() *cobra.Command {
	cmd := &cobra.Command{
		Use: "class", Short: "Show and set a directory's class: consistency and copies",
		Long: "A class is inherited by what is made in the directory from then on.\n" +
			"PATH begins with the volume's name: /main/datasets.",
	}
	client := s.admin(cmd)
	get := &cobra.Command{
		Use: "get PATH", Short: "Show the class of what is at PATH", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd.Context(), 30*time.Second, client, func(ctx context.Context, c *admin.Client) error {
				class, err := c.Class(ctx, args[0])
				if err != nil {
					return err
				}
				return s.print(cmd.OutOrStdout(), class, func(w io.Writer) { writeClass(w, class) })
			})
		},
	}
	set := &cobra.Command{
		Use: "set PATH KEY=VALUE...", Short: "Set the class of the directory PATH, e.g. consistency=relaxed copies=2", Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			class, err := parseClass(args[0], args[1:])
			if err != nil {
				return err
			}
			return with(cmd.Context(), 30*time.Second, client, func(ctx context.Context, c *admin.Client) error {
				if class, err = c.SetClass(ctx, class); err != nil {
					return err
				}
				return s.print(cmd.OutOrStdout(), class, func(w io.Writer) { writeClass(w, class) })
			})
		},
	}
	cmd.AddCommand(s.outputFlag(get), s.outputFlag(set))
	return cmd
}

// parseClass reads "consistency=relaxed copies=2".
func parseClass(path string, words []string) (admin.Class, error) {
	class := admin.Class{Path: path}
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		switch {
		case !ok:
			return class, fmt.Errorf("%q is not KEY=VALUE: write consistency=strict|relaxed or copies=1|2|3", w)
		case key == "consistency":
			if value != "strict" && value != "relaxed" {
				return class, fmt.Errorf("consistency is %q: it must be strict or relaxed", value)
			}
			class.Consistency = value
		case key == "copies":
			n, err := strconv.ParseUint(value, 10, 8)
			if err != nil || n < 1 || n > 3 {
				return class, fmt.Errorf("copies is %q: it must be 1, 2 or 3", value)
			}
			class.Copies = uint8(n)
		case key == "ec":
			code, err := cluster.ParseCode(value)
			if err != nil {
				return class, err
			}
			if code.IsZero() {
				continue // as it is
			}
			return class, fmt.Errorf("ec=%v: this version keeps copies only: lost shards would not be made again by it; use copies=1|2|3", code)
		default:
			return class, fmt.Errorf("%q is not a part of a class: use consistency or copies", key)
		}
	}
	return class, nil
}

func writeClass(w io.Writer, c admin.Class) {
	fmt.Fprintf(w, "%s: consistency=%s copies=%d\n", c.Path, c.Consistency, c.Copies)
}
