package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"

	"github.com/hawserfs/hawser/cluster/member"
)

// A Client asks a node's Server.
type Client struct {
	socket string
	http   *http.Client
}

// Dial returns a client of the node whose admin socket is at path.
func Dial(path string) *Client {
	return &Client{socket: path, http: &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
	}}}
}

// Status asks for the node's status.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/status", nil, &s)
	return s, err
}

// Init makes a new cluster.
func (c *Client) Init(ctx context.Context, req InitRequest) error {
	return c.do(ctx, http.MethodPost, "/v1/cluster/init", req, nil)
}

// Join makes the node a member of a cluster.
func (c *Client) Join(ctx context.Context, req JoinRequest) error {
	return c.do(ctx, http.MethodPost, "/v1/cluster/join", req, nil)
}

// Volumes lists the volumes.
func (c *Client) Volumes(ctx context.Context) (list []Volume, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/volumes", nil, &list)
	return list, err
}

// CreateVolume makes a volume.
func (c *Client) CreateVolume(ctx context.Context, v Volume) (Volume, error) {
	var made Volume
	err := c.do(ctx, http.MethodPost, "/v1/volumes", v, &made)
	return made, err
}

// Class asks for the class of what is at a path, which begins with the volume's name.
func (c *Client) Class(ctx context.Context, path string) (class Class, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/class?path="+url.QueryEscape(path), nil, &class)
	return class, err
}

// SetClass changes a directory's class.
func (c *Client) SetClass(ctx context.Context, class Class) (Class, error) {
	var set Class
	err := c.do(ctx, http.MethodPut, "/v1/class", class, &set)
	return set, err
}

// Addresses lists the floating addresses.
func (c *Client) Addresses(ctx context.Context) (list []member.IdentityStatus, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/addresses", nil, &list)
	return list, err
}

// AddAddress adds a floating address to the cluster.
func (c *Client) AddAddress(ctx context.Context, req AddressRequest) error {
	return c.do(ctx, http.MethodPost, "/v1/addresses", req, nil)
}

// MoveAddress gives a floating address to another node.
func (c *Client) MoveAddress(ctx context.Context, req AddressRequest) error {
	return c.do(ctx, http.MethodPost, "/v1/addresses/move", req, nil)
}

// RemoveAddress removes a floating address from the cluster.
func (c *Client) RemoveAddress(ctx context.Context, req AddressRequest) error {
	return c.do(ctx, http.MethodPost, "/v1/addresses/remove", req, nil)
}

// Drain keeps floating addresses away from a node, or no longer.
func (c *Client) Drain(ctx context.Context, req DrainRequest) error {
	return c.do(ctx, http.MethodPost, "/v1/addresses/drain", req, nil)
}

// Check verifies the cluster and calls report for what it finds.
func (c *Client) Check(ctx context.Context, req CheckRequest, report func(CheckEvent)) (CheckSummary, error) {
	body, err := c.send(ctx, http.MethodPost, "/v1/check", req)
	if err != nil {
		return CheckSummary{}, err
	}
	defer body.Close()
	lines := json.NewDecoder(body)
	for {
		var e CheckEvent
		switch err := lines.Decode(&e); {
		case ctx.Err() != nil:
			return CheckSummary{}, fmt.Errorf("the check was stopped before its end: %w", ctx.Err())
		case err != nil:
			return CheckSummary{}, fmt.Errorf("the check was cut short (%w): the server has stopped; run it again when it is back", err)
		case e.Error != "":
			return CheckSummary{}, errors.New(e.Error)
		case e.Done != nil:
			return *e.Done, nil
		}
		report(e)
	}
}

func (c *Client) do(ctx context.Context, method, path string, in, out any) error {
	body, err := c.send(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer body.Close()
	if out == nil {
		return nil
	}
	return json.NewDecoder(body).Decode(out)
}

// send makes a request and returns the answer's body, or the answer's error.
func (c *Client) send(ctx context.Context, method, path string, in any) (io.ReadCloser, error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://hawser"+path, body)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	var f failure
	if err := json.NewDecoder(response.Body).Decode(&f); err != nil || f.Error == "" {
		return nil, fmt.Errorf("the server answered %s", response.Status)
	}
	return nil, errors.New(f.Error)
}

// explain says what to do about a request that had no answer.
func (c *Client) explain(ctx context.Context, err error) error {
	var op *net.OpError
	switch dial := errors.As(err, &op) && op.Op == "dial"; {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("the server at %s did not answer in time (%w): `hawser status` shows what it waits for, often a majority of the nodes", c.socket, ctx.Err())
	case ctx.Err() != nil:
		return fmt.Errorf("stopped before the server answered: %w", ctx.Err())
	case dial && errors.Is(err, os.ErrPermission):
		return fmt.Errorf("admin socket %s: %w: run this as the user that the server runs as", c.socket, op.Err)
	case dial:
		return fmt.Errorf("no hawser server answers at %s (%w): start it with `hawser server`, or name its configuration with --config", c.socket, op.Err)
	}
	return fmt.Errorf("the server at %s broke off (%w): see its log, and ask again", c.socket, err)
}
