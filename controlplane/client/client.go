// Package client is the typed Go client of the control plane's API, for the
// tool, the demonstration and other programs.
//
// A Client fetches and renews its own token. Calls are tried again when the
// server could not be reached or answered 502, 503, 504 or 429, with growing
// pauses until the context ends or Config.Retries are used up; creations carry an
// Idempotency-Key, so a second try never makes a second thing. An answer that
// is an error is an *Error. The Wait functions hold until the brokers enforce
// what was asked.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"penstock/controlplane/api/wire"
)

// Config says whom to call as whom.
type Config struct {
	BaseURL      string // such as http://127.0.0.1:8080
	ClientID     string
	ClientSecret string
	TokenURL     string       // empty: BaseURL + /oauth2/token
	HTTP         *http.Client // nil: a client of its own
	Retries      int          // tries after the first; 0 means 8, negative none
	UserAgent    string
}

// Client calls the API as one account. It is safe for use by many goroutines.
type Client struct {
	cfg Config

	mu    sync.Mutex
	token Token
}

// Error is an answer that refuses a call.
type Error struct {
	wire.Problem
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s (%d %s", e.Title, e.Status, e.Code)
	if e.RequestID != "" {
		s += ", request " + e.RequestID
	}
	s += ")"
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	for _, f := range e.Errors {
		s += "; " + f.Location + ": " + f.Message
	}
	return s
}

// IsNotFound says whether err is a 404 answer.
func IsNotFound(err error) bool { return hasStatus(err, http.StatusNotFound) }

// IsConflict says whether err is a 409 answer: the thing is there already, or
// the state does not allow the call.
func IsConflict(err error) bool { return hasStatus(err, http.StatusConflict) }

func hasStatus(err error, status int) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == status
}

// New makes a client; it calls nobody yet.
func New(cfg Config) *Client {
	cfg.BaseURL = strings.TrimSuffix(cfg.BaseURL, "/")
	if cfg.TokenURL == "" {
		cfg.TokenURL = cfg.BaseURL + "/oauth2/token"
	}
	if cfg.HTTP == nil {
		cfg.HTTP = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone(), Timeout: 90 * time.Second}
	}
	if cfg.Retries == 0 {
		cfg.Retries = 8
	}
	if cfg.UserAgent == "" {
		cfg.UserAgent = "penstock-client"
	}
	return &Client{cfg: cfg}
}

// Close drops idle connections.
func (c *Client) Close() { c.cfg.HTTP.CloseIdleConnections() }

type call struct {
	method, path string
	query        url.Values
	body         any
	wait         bool   // hold the answer until the change is enforced
	etag         string // If-Match
}

// do makes one call and decodes the answer into out (nil: ignored).
func (c *Client) do(ctx context.Context, k call, out any) error {
	var body []byte
	var key string
	if k.body != nil {
		var err error
		if body, err = json.Marshal(k.body); err != nil {
			return fmt.Errorf("%s %s: %w", k.method, k.path, err)
		}
	}
	if k.method == http.MethodPost {
		key = rand.Text()
	}
	pause := 50 * time.Millisecond
	for try := 0; ; try++ {
		again, err := c.once(ctx, k, body, key, out)
		if err == nil || !again || try >= c.cfg.Retries || ctx.Err() != nil {
			return err
		}
		if hasStatus(err, http.StatusUnauthorized) && try > 0 {
			return err // a fresh token was refused as well
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(pause):
		}
		pause = min(pause*2, 2*time.Second)
	}
}

// once makes one try; again says whether another may help.
func (c *Client) once(ctx context.Context, k call, body []byte, key string, out any) (again bool, err error) {
	token, err := c.bearer(ctx)
	if err != nil {
		var e *TokenError
		return !errors.As(err, &e) || e.Status >= 500, err
	}
	u := c.cfg.BaseURL + k.path
	if len(k.query) > 0 {
		u += "?" + k.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, k.method, u, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("User-Agent", c.cfg.UserAgent)
	req.Header.Set("Accept", "application/json, application/problem+json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	if k.etag != "" {
		req.Header.Set("If-Match", k.etag)
	}
	if k.wait {
		req.Header.Set("Prefer", "wait="+strconv.Itoa(waitSeconds))
	}
	res, err := c.cfg.HTTP.Do(req)
	if err != nil {
		return true, fmt.Errorf("%s %s: %w", k.method, k.path, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return true, fmt.Errorf("%s %s: %w", k.method, k.path, err)
	}
	if res.StatusCode >= 400 {
		if res.StatusCode == http.StatusUnauthorized {
			c.dropToken(token) // its key may have been retired: one more try with a new one
			return true, problem(res, b)
		}
		return retryable(res.StatusCode), problem(res, b)
	}
	if out == nil || len(b) == 0 {
		return false, nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return false, fmt.Errorf("%s %s: answer: %w", k.method, k.path, err)
	}
	return false, nil
}

func retryable(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

func problem(res *http.Response, body []byte) error {
	e := &Error{}
	if json.Unmarshal(body, &e.Problem) != nil || e.Title == "" {
		e.Problem = wire.Problem{Title: http.StatusText(res.StatusCode), Detail: string(bytes.TrimSpace(body[:min(len(body), 500)]))}
	}
	e.Status = res.StatusCode
	if e.RequestID == "" {
		e.RequestID = res.Header.Get("X-Request-Id")
	}
	return e
}

// all reads every page of a list.
func all[T any](ctx context.Context, c *Client, path string, query url.Values) ([]T, error) {
	if query == nil {
		query = url.Values{}
	}
	query.Set("limit", "500")
	var out []T
	for {
		var p wire.Page[T]
		if err := c.do(ctx, call{method: http.MethodGet, path: path, query: query}, &p); err != nil {
			return nil, err
		}
		out = append(out, p.Items...)
		if p.Next == "" {
			return out, nil
		}
		query.Set("cursor", p.Next)
	}
}
