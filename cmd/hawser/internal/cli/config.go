package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hawserfs/hawser/conf"
)

func (s *shared) configVerb() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check and show configuration files"}
	cmd.AddCommand(
		&cobra.Command{
			Use: "check [FILE]", Short: "Say what is wrong with a configuration", Args: cobra.MaximumNArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				file := s.configFile()
				if len(args) > 0 {
					file = args[0]
				}
				if _, err := conf.Load(file); err != nil {
					return fmt.Errorf("the configuration is refused:\n%w", err)
				}
				fmt.Fprintln(cmd.OutOrStdout(), "the configuration is good")
				return nil
			},
		},
		&cobra.Command{
			Use: "show", Short: "Show what a node would run with: file, environment and defaults together", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				c, err := s.load()
				if err != nil {
					return fmt.Errorf("the configuration is refused:\n%w", err)
				}
				fmt.Fprint(cmd.OutOrStdout(), conf.YAML(c))
				return nil
			},
		},
		&cobra.Command{
			Use: "defaults", Short: "Print a commented configuration file with every default", Args: cobra.NoArgs,
			Run: func(cmd *cobra.Command, _ []string) { fmt.Fprint(cmd.OutOrStdout(), conf.YAML(conf.Default())) },
		},
	)
	return cmd
}
