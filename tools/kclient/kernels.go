package kclient

import (
	"context"
	_ "embed"
	"os"
	"os/exec"
)

//go:embed kernels.sh
var kernelsScript string

// FetchKernels fetches newer kernels from the newer suites of the Debian mirror
// that this machine uses into folder: folder/trixie and folder/sid, each to be
// named in Options.Kernel. It installs the package patchelf, and nothing else.
func FetchKernels(ctx context.Context, folder string) error {
	cmd := exec.CommandContext(ctx, "bash", "-c", kernelsScript, "kernels", folder)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
