package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/scrub"
)

// A Scrubbing backend verifies copies and shows where they are.
type Scrubbing interface {
	// Scrub verifies copies now, and makes whole what is damaged or missing. It
	// calls report for what it could not repair, and now and then for progress.
	Scrub(ctx context.Context, req ScrubRequest, report func(ScrubEvent)) (ScrubSummary, error)
	// ScrubStatus returns how the scrubs of all nodes' stores stand.
	ScrubStatus(ctx context.Context) ([]NodeScrubs, error)
	// File shows where a file's data is; verify reads every copy of it.
	File(ctx context.Context, path string, verify bool) (File, error)
}

// A ScrubRequest says what is scrubbed: what is at a path and below, the stores
// of a node, one store, or, if it says nothing, all stores.
type ScrubRequest struct {
	Path  string          `json:"path,omitempty"`
	Node  cluster.NodeID  `json:"node,omitempty"`
	Store cluster.StoreID `json:"store,omitempty"`
}

// A ScrubEvent is a line of a scrub's answer. One of its members is set.
type ScrubEvent struct {
	Problem  string        `json:"problem,omitempty"`
	Progress string        `json:"progress,omitempty"`
	Done     *ScrubSummary `json:"done,omitempty"`
	Error    string        `json:"error,omitempty"`
}

// A ScrubSummary ends a scrub.
type ScrubSummary struct {
	scrub.Counts
	Stores []cluster.StoreID `json:"stores"`
	// Skipped are stores that could not be scrubbed to their end.
	Skipped []cluster.StoreID `json:"skipped,omitempty"`
}

// NodeScrubs are the scrubs of a node's stores.
type NodeScrubs struct {
	Node   cluster.NodeID `json:"node"`
	Stores []scrub.Status `json:"stores"`
	Error  string         `json:"error,omitempty"` // why it could not be asked
}

// A File is a file, with where its data is.
type File struct {
	Path    string         `json:"path"`
	Volume  string         `json:"volume"`
	Ino     uint64         `json:"ino"`
	Type    string         `json:"type"`
	Size    uint64         `json:"size"`
	Used    uint64         `json:"used"`
	Class   string         `json:"class"`
	Extents []FileExtent   `json:"extents,omitempty"`
	Blobs   []FileBlob     `json:"blobs,omitempty"`
	Health  FileRedundancy `json:"health"`
}

// A FileRedundancy counts a file's blobs by how many of their copies are there.
type FileRedundancy struct {
	Whole    int `json:"whole"`    // all copies
	Degraded int `json:"degraded"` // some
	Lost     int `json:"lost"`     // none, or too few
}

// A FileExtent is a range of a file.
type FileExtent struct {
	Off    uint64 `json:"off"`
	Len    uint64 `json:"len"`
	Inline bool   `json:"inline,omitempty"` // the bytes are in the volume's state
	Blob   string `json:"blob,omitempty"`
	At     uint32 `json:"at,omitempty"` // where in the blob
}

// A FileBlob is a blob that a file's extents are in.
type FileBlob struct {
	Blob   string               `json:"blob"`
	Len    uint32               `json:"len"`
	CRC    uint32               `json:"crc32c"`
	Refs   uint32               `json:"refs"`
	Set    cluster.ReplicaSetID `json:"replica_set"`
	State  string               `json:"state"`          // of the replica set
	Code   string               `json:"code,omitempty"` // its copies are shards of this erasure code
	Need   int                  `json:"need"`           // how many of the copies make up the blob
	Copies []FileCopy           `json:"copies"`
}

// A FileCopy is a copy of a blob, or a shard of it.
type FileCopy struct {
	Store  cluster.StoreID `json:"store"`
	Node   cluster.NodeID  `json:"node"`
	Shard  uint8           `json:"shard,omitempty"`
	Health string          `json:"health"` // ok, verified, missing, damaged, down, or other
	Why    string          `json:"why,omitempty"`
	// There reports that the copy can be used, as far as was looked.
	There bool `json:"there"`
}

func scrubRoutes(mux *http.ServeMux, b Scrubbing) {
	mux.HandleFunc("GET /v1/scrub", func(w http.ResponseWriter, r *http.Request) {
		list, err := b.ScrubStatus(r.Context())
		answer(w, list, err)
	})
	mux.HandleFunc("GET /v1/file", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		f, err := b.File(r.Context(), q.Get("path"), q.Get("verify") == "true")
		answer(w, f, err)
	})
	mux.HandleFunc("POST /v1/scrub", func(w http.ResponseWriter, r *http.Request) {
		req, err := read[ScrubRequest](w, r)
		if err != nil {
			answer(w, nil, err)
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		out, flush := json.NewEncoder(w), http.NewResponseController(w)
		send := func(e ScrubEvent) {
			// A client that went away ends the request's context, which ends the scrub.
			_ = out.Encode(e)
			_ = flush.Flush()
		}
		summary, err := b.Scrub(r.Context(), req, send)
		if err != nil {
			send(ScrubEvent{Error: err.Error()})
			return
		}
		send(ScrubEvent{Done: &summary})
	})
}

// Scrub verifies copies now and calls report for what it finds. It ends with ctx.
func (c *Client) Scrub(ctx context.Context, req ScrubRequest, report func(ScrubEvent)) (ScrubSummary, error) {
	body, err := c.send(ctx, http.MethodPost, "/v1/scrub", req)
	if err != nil {
		return ScrubSummary{}, err
	}
	defer body.Close()
	lines := json.NewDecoder(body)
	for {
		var e ScrubEvent
		switch err := lines.Decode(&e); {
		case ctx.Err() != nil:
			return ScrubSummary{}, fmt.Errorf("the scrub was stopped before its end; what it repaired stays so: %w", ctx.Err())
		case err != nil:
			return ScrubSummary{}, fmt.Errorf("the scrub was cut short (%w): the server has stopped; run it again when it is back", err)
		case e.Error != "":
			return ScrubSummary{}, errors.New(e.Error)
		case e.Done != nil:
			return *e.Done, nil
		}
		report(e)
	}
}

// ScrubStatus asks how the scrubs of all nodes' stores stand.
func (c *Client) ScrubStatus(ctx context.Context) (list []NodeScrubs, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/scrub", nil, &list)
	return list, err
}

// File asks where a file's data is.
func (c *Client) File(ctx context.Context, path string, verify bool) (f File, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/file?path="+url.QueryEscape(path)+"&verify="+strconv.FormatBool(verify), nil, &f)
	return f, err
}
