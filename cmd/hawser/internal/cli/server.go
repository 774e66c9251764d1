package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hawserfs/hawser/cmd/hawser/internal/node"
)

func (s *shared) server() *cobra.Command {
	return &cobra.Command{
		Use:   "server",
		Short: "Run this machine's node until it is told to stop",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.load()
			if err != nil {
				return fmt.Errorf("the configuration is refused:\n%w", err)
			}
			if err := c.CheckFolders(); err != nil {
				return err
			}
			log := logger(c.Log)
			n, err := node.Start(c, s.version, log)
			if err != nil {
				return err
			}
			<-cmd.Context().Done()
			log.Info("stopping")
			return n.Close()
		},
	}
}
