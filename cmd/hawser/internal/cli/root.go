// Package cli is the verbs of the hawser program, one file each.
package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
	"github.com/hawserfs/hawser/conf"
)

// defaultConfig is where a node's configuration is looked for.
const defaultConfig = "/etc/hawser/hawser.yaml"

// A shared is what all verbs have in common.
type shared struct {
	version string
	config  string
	socket  string
	output  string
}

// Root returns the program's command line.
func Root(version string) *cobra.Command {
	s := &shared{version: version}
	cmd := &cobra.Command{
		Use:   "hawser",
		Short: "A clustered NFS server that stock Linux clients mount",
		Long: "Hawser is a clustered NFS server: a few equal nodes, any of which serves any file to the NFS client\n" +
			"that every Linux kernel has. `hawser dev` tries it on this machine.",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.PersistentFlags().StringVar(&s.config, "config", "", "the node's configuration file (default "+defaultConfig+" if it is there; or $HAWSER_CONFIG)")
	cmd.AddCommand(s.server(), s.dev(), s.cluster(), s.status(), s.volume(), s.class(), s.address(), s.check(), s.scrub(), s.file(), s.data(), s.node(), s.disk(), s.rebalance(), s.repair(), s.safeToStop(), s.bench(), s.conformance(), s.configVerb())
	return cmd
}

// configFile returns which configuration file to read, "" for none.
func (s *shared) configFile() string {
	if s.config != "" {
		return s.config
	}
	if env := os.Getenv("HAWSER_CONFIG"); env != "" {
		return env
	}
	if _, err := os.Stat(defaultConfig); err == nil {
		return defaultConfig
	}
	return ""
}

func (s *shared) load() (conf.Config, error) { return conf.Load(s.configFile()) }

// admin adds the flags of a verb that asks the server, and returns what finds it.
func (s *shared) admin(cmd *cobra.Command) func() (*admin.Client, error) {
	cmd.PersistentFlags().StringVar(&s.socket, "socket", "", "the server's admin socket (default: as its configuration says)")
	return func() (*admin.Client, error) {
		if s.socket != "" {
			return admin.Dial(s.socket), nil
		}
		c, err := s.load()
		if err != nil {
			return nil, err
		}
		return admin.Dial(c.Listen.Admin), nil
	}
}

// outputFlag adds -o to a verb that can answer in JSON.
func (s *shared) outputFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVarP(&s.output, "output", "o", "text", "text or json")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if s.output != "text" && s.output != "json" {
			return fmt.Errorf("output %q is not known: use text or json", s.output)
		}
		return nil
	}
	return cmd
}

// print writes v as JSON if asked for, and otherwise lets text write.
func (s *shared) print(w io.Writer, v any, text func(io.Writer)) error {
	if s.output != "json" {
		text(w)
		return nil
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// logger makes the logger that the configuration asks for.
func logger(c conf.Log) *slog.Logger {
	var level slog.Level
	// The configuration was checked.
	_ = level.UnmarshalText([]byte(c.Level))
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, o))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, o))
}
