package admin

import (
	"context"
	"net/http"
	"net/url"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/repair"
)

// A Repairing backend takes nodes and disks out and shows how data comes back to
// its full number of copies.
type Repairing interface {
	// RepairStatus returns how the repair of each volume stands.
	RepairStatus(ctx context.Context) ([]VolumeRepair, error)
	DrainNode(ctx context.Context, req NodeRequest) error
	// RemoveNode and RemoveDisk return what is lost by it, which is nothing unless
	// it was forced.
	RemoveNode(ctx context.Context, req NodeRequest) (Consequences, error)
	DrainDisk(ctx context.Context, req DiskRequest) error
	RemoveDisk(ctx context.Context, req DiskRequest) (Consequences, error)
	// Rebalance has the stores evened out, and returns what that moves.
	Rebalance(ctx context.Context, req RebalanceRequest) ([]VolumeMoves, error)
	// SafeToStop returns what would not go on if a node stopped now.
	SafeToStop(ctx context.Context, node string) (Consequences, error)
}

// A VolumeRepair is the repair of a volume.
type VolumeRepair struct {
	Volume string         `json:"volume"`
	Leader cluster.NodeID `json:"leader,omitempty"` // that carries it out
	Error  string         `json:"error,omitempty"`  // why it could not be asked
	Status repair.Status  `json:"status"`
}

// A NodeRequest is about a node.
type NodeRequest struct {
	Node  string `json:"node"`
	Undo  bool   `json:"undo,omitempty"`  // end its draining
	Force bool   `json:"force,omitempty"` // whatever is lost by it
}

// A DiskRequest is about a disk, by its store's number.
type DiskRequest struct {
	Store cluster.StoreID `json:"store"`
	Undo  bool            `json:"undo,omitempty"`
	Force bool            `json:"force,omitempty"`
}

// A RebalanceRequest asks for the stores to be evened out.
type RebalanceRequest struct {
	DryRun bool `json:"dry_run,omitempty"` // only say what would be moved
	Stop   bool `json:"stop,omitempty"`
}

// VolumeMoves are the moves of a volume's replica sets.
type VolumeMoves struct {
	Volume string        `json:"volume"`
	Moves  []repair.Move `json:"moves"`
}

// Consequences says in a sentence each what would not go on, or would be lost.
// None: nothing.
type Consequences struct {
	Reasons []string `json:"reasons"`
}

func repairRoutes(mux *http.ServeMux, b Repairing) {
	mux.HandleFunc("GET /v1/repair", func(w http.ResponseWriter, r *http.Request) {
		list, err := b.RepairStatus(r.Context())
		answer(w, list, err)
	})
	mux.HandleFunc("POST /v1/nodes/drain", done(b.DrainNode))
	mux.HandleFunc("POST /v1/nodes/remove", result(b.RemoveNode))
	mux.HandleFunc("POST /v1/disks/drain", done(b.DrainDisk))
	mux.HandleFunc("POST /v1/disks/remove", result(b.RemoveDisk))
	mux.HandleFunc("POST /v1/rebalance", result(b.Rebalance))
	mux.HandleFunc("GET /v1/nodes/safe-to-stop", func(w http.ResponseWriter, r *http.Request) {
		c, err := b.SafeToStop(r.Context(), r.URL.Query().Get("node"))
		answer(w, c, err)
	})
}

// result handles requests that are answered with what do returns.
func result[T, R any](do func(context.Context, T) (R, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var v R
		req, err := read[T](w, r)
		if err == nil {
			v, err = do(r.Context(), req)
		}
		answer(w, v, err)
	}
}

// RepairStatus returns how the repair of each volume stands.
func (c *Client) RepairStatus(ctx context.Context) (list []VolumeRepair, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/repair", nil, &list)
	return list, err
}

// DrainNode empties a node, or ends that.
func (c *Client) DrainNode(ctx context.Context, req NodeRequest) error {
	return c.do(ctx, http.MethodPost, "/v1/nodes/drain", req, nil)
}

// RemoveNode takes a node out of the cluster, for good.
func (c *Client) RemoveNode(ctx context.Context, req NodeRequest) (lost Consequences, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/nodes/remove", req, &lost)
	return lost, err
}

// DrainDisk empties a disk, or ends that.
func (c *Client) DrainDisk(ctx context.Context, req DiskRequest) error {
	return c.do(ctx, http.MethodPost, "/v1/disks/drain", req, nil)
}

// RemoveDisk takes a disk out of the cluster, for good.
func (c *Client) RemoveDisk(ctx context.Context, req DiskRequest) (lost Consequences, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/disks/remove", req, &lost)
	return lost, err
}

// Rebalance has the stores evened out, and returns what that moves.
func (c *Client) Rebalance(ctx context.Context, req RebalanceRequest) (list []VolumeMoves, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/rebalance", req, &list)
	return list, err
}

// SafeToStop returns what would not go on if a node stopped now.
func (c *Client) SafeToStop(ctx context.Context, node string) (broken Consequences, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/nodes/safe-to-stop?node="+url.QueryEscape(node), nil, &broken)
	return broken, err
}
