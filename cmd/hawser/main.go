// Command hawser is the whole of Hawser: the server and its administration.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/hawserfs/hawser/cmd/hawser/internal/cli"
)

// version is set by the build.
var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for an orderly end, a second one ends the program.
	context.AfterFunc(ctx, stop)
	err := cli.Root(version).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "hawser:", err)
		os.Exit(1)
	}
}
