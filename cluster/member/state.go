package member

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
)

// identity is what a node must know before it has a state machine to read: it
// is kept in one small file that is replaced whole.
type identity struct {
	Format int `json:"format"`
	// Incarnation tells this node's data folder from every other that ever had
	// the node's name, so that a node that lost its Raft log is not mistaken for
	// the one that voted with it.
	Incarnation string         `json:"incarnation"`
	Node        cluster.NodeID `json:"node"`
	// Cluster is the cluster's UUID, empty until this node is a member.
	Cluster string `json:"cluster,omitempty"`
	// Founder says that this node bootstraps group 0.
	Founder bool `json:"founder,omitempty"`
	// Peers are addresses to reach other nodes by until group 0 is here.
	Peers map[cluster.NodeID]string `json:"peers,omitempty"`
}

const identityFormat = 1

// loadIdentity reads the node's identity in dir, or makes a new one.
func loadIdentity(dir string, self cluster.NodeID) (identity, error) {
	file := filepath.Join(dir, "node.json")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		id := identity{Format: identityFormat, Incarnation: newUUID(), Node: self}
		return id, id.save(dir)
	}
	if err != nil {
		return identity{}, err
	}
	var id identity
	if err := json.Unmarshal(text, &id); err != nil {
		return identity{}, fmt.Errorf("%s is damaged (%w): restore it from a backup, or empty the data folder and join the cluster under a new name", file, err)
	}
	if id.Format > identityFormat {
		return identity{}, fmt.Errorf("%s has format %d, and this program knows up to %d: use a newer hawser", file, id.Format, identityFormat)
	}
	if id.Node != self {
		return identity{}, fmt.Errorf("%s belongs to node %q, and this node is called %q: a node keeps its name; set node.name, or use another data folder", dir, id.Node, self)
	}
	return id, nil
}

// save writes the identity, durably.
func (id *identity) save(dir string) error {
	text, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(dir, "node.json"), append(text, '\n'), 0o600)
}

// newUUID returns 128 random bits in hexadecimal.
func newUUID() string {
	var b registry.UUID
	// crypto/rand.Read never fails.
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// parseUUID reads what newUUID wrote.
func parseUUID(s string) (u registry.UUID, err error) {
	if len(s) != 2*len(u) {
		return u, fmt.Errorf("%q is not a UUID: %w", s, cluster.EINVAL)
	}
	if _, err := hex.Decode(u[:], []byte(s)); err != nil {
		return u, fmt.Errorf("%q is not a UUID: %w", s, cluster.EINVAL)
	}
	return u, nil
}
