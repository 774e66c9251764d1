package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockFolder takes a data folder for this process, until the file is closed:
// two programs in one folder would destroy it, and a program that waited for
// the other's locks would wait for ever.
func lockFolder(dir string) (*os.File, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("data folder: %w: is node.data right?", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("data folder %s is in use by another hawser process, a server or an offline check: stop it first", dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
