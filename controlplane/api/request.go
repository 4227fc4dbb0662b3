package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"penstock/controlplane/audit"
	"penstock/controlplane/cluster"
	"penstock/tenants"
	"penstock/tenants/registry"
)

type ctxKey int

const (
	requestKey ctxKey = iota
	callerKey
)

// request is what every layer may want to know of the HTTP request.
type request struct {
	ID, Method, Path string
}

func requestOf(ctx context.Context) request {
	r, _ := ctx.Value(requestKey).(request)
	return r
}

// caller is who calls, as the token says.
type caller struct {
	ID       string
	TenantID string // audit.System for operators
	Operator bool
	Role     string
}

func (c *caller) by(ctx context.Context) cluster.By {
	return cluster.By{Actor: c.ID, RequestID: requestOf(ctx).ID}
}

// outer gives each request its id, bounds its body and turns a panic into a 500.
func (a *API) outer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Request-Id")
		if !plain(id) {
			id = tenants.NewID("req")
		}
		w.Header().Set("X-Request-Id", id)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		ctx := context.WithValue(r.Context(), requestKey, request{ID: id, Method: r.Method, Path: r.URL.Path})
		r = r.WithContext(ctx)
		if strings.Contains(r.URL.Path, "\x00") || !utf8.ValidString(r.URL.Path) { // Postgres takes neither
			writeProblem(w, newProblem(ctx, http.StatusBadRequest, "the path is not text"))
			return
		}
		if p := a.readBody(ctx, w, r); p != nil {
			writeProblem(w, p)
			return
		}
		start := time.Now()
		defer func() {
			if v := recover(); v != nil {
				if v == http.ErrAbortHandler {
					panic(v)
				}
				a.cfg.Logger.Error("BUG: a call panicked", "panic", v, "request_id", id, "stack", string(debug.Stack()))
				writeProblem(w, newProblem(ctx, http.StatusInternalServerError, "the call failed; the request id tells us where to look"))
			}
			a.cfg.Logger.Debug("call", "method", r.Method, "path", r.URL.Path, "request_id", id, "took", time.Since(start))
		}()
		next.ServeHTTP(w, r)
	})
}

// readBody takes the whole body in, with a bound on size and time, and lifts
// the time bound afterwards: a read deadline that passes while a call holds
// would end the call, since the server watches the idle connection by reading.
func (a *API) readBody(ctx context.Context, w http.ResponseWriter, r *http.Request) *problem {
	conn := http.NewResponseController(w)
	conn.SetReadDeadline(time.Now().Add(a.cfg.BodyTimeout)) // an error means that w has no connection, as in tests
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		conn.SetReadDeadline(time.Time{}) // kept otherwise: the server wants to read the rest before it closes
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return newProblem(ctx, http.StatusRequestEntityTooLarge, fmt.Sprintf("a body has at most %d bytes", maxBody))
	case err != nil:
		w.Header().Set("Connection", "close")
		return newProblem(ctx, http.StatusRequestTimeout, "the body did not come in time")
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// plain says whether a caller's request id may be used in logs and rows as it is.
func plain(id string) bool {
	if len(id) < 1 || len(id) > 64 {
		return false
	}
	return strings.IndexFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	}) < 0
}

// access says who may call an operation.
type access string

const (
	operatorOnly access = "operator"     // the fleet's own
	anyone       access = "any"          // operators and all of a tenant's accounts
	tenantReads  access = "tenant-read"  // a tenant's accounts
	tenantWrites access = "tenant-write" // a tenant's admins
	tenantOrOps  access = "tenant-admin" // operators and a tenant's admins
)

func (x access) allows(c *caller) bool {
	switch x {
	case operatorOnly:
		return c.Operator
	case anyone:
		return true
	case tenantReads:
		return !c.Operator
	case tenantWrites:
		return !c.Operator && c.Role == "admin"
	case tenantOrOps:
		return c.Operator || c.Role == "admin"
	}
	return false
}

// authenticate is huma's middleware: token, then the operation's access rule.
// An operation without a rule is refused to all.
func (a *API) authenticate(hc huma.Context, next func(huma.Context)) {
	fail := func(status int, detail string) {
		if status == http.StatusUnauthorized {
			hc.SetHeader("WWW-Authenticate", `Bearer realm="penstock"`)
		}
		huma.WriteErr(a.huma, hc, status, detail)
	}
	scheme, raw, _ := strings.Cut(hc.Header("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || raw == "" {
		fail(http.StatusUnauthorized, "a bearer token is needed; get one at "+a.cfg.TokenURL)
		return
	}
	claims, err := a.cfg.Tokens.Verify(hc.Context(), strings.TrimSpace(raw))
	if err != nil {
		a.cfg.Logger.Info("token refused", "err", err, "request_id", requestOf(hc.Context()).ID)
		fail(http.StatusUnauthorized, "the token is not valid here or has expired")
		return
	}
	c := &caller{ID: claims.Subject, TenantID: claims.Tenant, Role: claims.Role,
		Operator: claims.Kind == string(registry.KindOperator)}
	if c.Operator {
		c.TenantID = audit.System
	}
	rule, _ := hc.Operation().Metadata["access"].(access)
	if c.TenantID == "" || !rule.allows(c) {
		fail(http.StatusForbidden, "this account may not do that")
		return
	}
	next(huma.WithValue(hc, callerKey, c))
}

// register adds one operation. The handler's errors are explained here.
func register[I, O any](a *API, rule access, op huma.Operation, h func(ctx context.Context, c *caller, in *I) (*O, error)) {
	op.Metadata = map[string]any{"access": rule}
	op.MaxBodyBytes = maxBody
	op.BodyReadTimeout = -1 // readBody has seen to it
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		c, ok := ctx.Value(callerKey).(*caller)
		if !ok {
			return nil, newProblem(ctx, http.StatusUnauthorized, "who calls is not known")
		}
		out, err := h(ctx, c, in)
		if err != nil {
			return nil, a.explain(ctx, err)
		}
		if out == nil {
			out = new(O) // an answer without a body
		}
		return out, nil
	})
}

// tx runs fn in a transaction of the caller: his tenant's, or all for operators.
func (a *API) tx(ctx context.Context, c *caller, fn func(tx pgx.Tx) error) error {
	if c.Operator {
		return a.cfg.DB.AsWorker(ctx, fn)
	}
	return a.cfg.DB.AsTenant(ctx, c.TenantID, fn)
}

// note writes the audit row and the event of a change that has no package of
// its own to do so.
func note(ctx context.Context, tx pgx.Tx, tenant string, c *caller, action, resource string, detail map[string]any) error {
	if err := audit.Event(ctx, tx, tenant, action, resource, detail); err != nil {
		return err
	}
	return audit.Append(ctx, tx, audit.Entry{TenantID: tenant, Actor: c.ID, Action: action, Resource: resource,
		RequestID: requestOf(ctx).ID, Detail: detail})
}

// Idempotency is embedded in the input of creations.
type Idempotency struct {
	Key string `header:"Idempotency-Key" maxLength:"255" doc:"Makes a repeated call give the first one's answer, for a day"`
}

// once runs a creation in one transaction with its stored answer: the same key
// and body again give that answer, another body is refused (422). A second call
// while the first runs waits for it. Answers are sealed, since some hold a secret.
func once[T any](ctx context.Context, a *API, c *caller, k Idempotency, body any, status int,
	run func(ctx context.Context, fn func(tx pgx.Tx) error) error, fn func(tx pgx.Tx) (T, error)) (T, error) {
	var out T
	r := requestOf(ctx)
	encoded, err := json.Marshal(body)
	if err != nil {
		return out, err
	}
	hash := sha256.Sum256(encoded)
	scope := strings.Join([]string{c.TenantID, c.ID, r.Method, r.Path, k.Key}, "\x1f")
	err = run(ctx, func(tx pgx.Tx) error {
		if k.Key == "" {
			var err error
			out, err = fn(tx)
			return err
		}
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('idempotency:' || $1, 0))`, scope); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `SELECT request_hash, sealed_response FROM idempotency_keys
			WHERE tenant_id = $1 AND principal = $2 AND method = $3 AND path = $4 AND key = $5`, c.TenantID, c.ID, r.Method, r.Path, k.Key)
		if err != nil {
			return err
		}
		type stored struct{ Hash, Sealed []byte }
		old, err := pgx.CollectRows(rows, pgx.RowToStructByPos[stored])
		if err != nil {
			return err
		}
		if len(old) > 0 {
			if string(old[0].Hash) != string(hash[:]) {
				return refuse(http.StatusUnprocessableEntity, "idempotency-key-reused", "the key was used with another body")
			}
			answer, err := a.cfg.Sealer.Open(old[0].Sealed, "answer/"+scope)
			if err != nil {
				return err
			}
			return json.Unmarshal(answer, &out)
		}
		if out, err = fn(tx); err != nil {
			return err
		}
		answer, err := json.Marshal(out)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO idempotency_keys (tenant_id, principal, method, path, key, request_hash, status, sealed_response)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`, c.TenantID, c.ID, r.Method, r.Path, k.Key, hash[:], status, a.cfg.Sealer.Seal(answer, "answer/"+scope))
		return err
	})
	return out, err
}

// own is the run of once under the caller's own tenant.
func (a *API) own(c *caller) func(context.Context, func(pgx.Tx) error) error {
	return func(ctx context.Context, fn func(pgx.Tx) error) error { return a.tx(ctx, c, fn) }
}

// Paging is embedded in the input of lists.
type Paging struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"100"`
	Cursor string `query:"cursor" maxLength:"2000" doc:"next of the page before"`
}

// after opens the cursor. It is sealed for one caller's tenant and one list,
// so that nobody can make one up or carry it elsewhere.
func (a *API) after(ctx context.Context, c *caller, p Paging) (string, error) {
	if p.Cursor == "" {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(p.Cursor)
	if err == nil {
		raw, err = a.cfg.Sealer.Open(raw, cursorPurpose(ctx, c))
	}
	if err != nil {
		return "", invalid("query.cursor", "not a cursor of this list")
	}
	return string(raw), nil
}

// next makes the cursor of the page after, if this one is full.
func (a *API) next(ctx context.Context, c *caller, p Paging, n int, last func() string) string {
	if n < p.Limit || n == 0 {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(a.cfg.Sealer.Seal([]byte(last()), cursorPurpose(ctx, c)))
}

func cursorPurpose(ctx context.Context, c *caller) string {
	return "cursor/" + c.TenantID + requestOf(ctx).Path
}

// Waiting is embedded in the input of calls that can hold.
type Waiting struct {
	Wait   string `query:"wait" enum:"applied" doc:"Hold the answer until the brokers enforce it, at most 30 seconds"`
	Prefer string `header:"Prefer" maxLength:"100" doc:"wait=N: the same for at most N seconds (1 to 60)"`
}

const (
	defaultWait = 30 * time.Second
	maxWait     = 60 * time.Second
	pollEvery   = 500 * time.Millisecond // hints may be lost
)

func (w Waiting) duration() time.Duration {
	for part := range strings.SplitSeq(w.Prefer, ",") {
		if v, ok := strings.CutPrefix(strings.TrimSpace(part), "wait="); ok {
			if n, err := strconv.Atoi(v); err == nil && n > 0 {
				return min(time.Duration(n)*time.Second, maxWait)
			}
		}
	}
	if w.Wait != "" {
		return defaultWait
	}
	return 0
}

// await runs look at once and again after each hint, until it says that the
// wait is over, the time is up or the server stops; look keeps what it saw.
func (a *API) await(ctx context.Context, c *caller, w Waiting, look func(tx pgx.Tx) (done bool, err error)) error {
	once := func() (done bool, err error) {
		err = a.tx(ctx, c, func(tx pgx.Tx) error { done, err = look(tx); return err })
		return done, err
	}
	d := w.duration()
	if d == 0 {
		_, err := once()
		return err
	}
	hint, end := a.cfg.Hints.Subscribe() // before the first look, so that nothing is missed in between
	defer end()
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		if done, err := once(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.stop:
			return nil
		case <-timeout.C:
			return nil
		case <-hint:
		case <-poll.C:
		}
	}
}

// generation reads If-Match: 0 takes any.
func generation(ifMatch string) (int64, error) {
	if ifMatch == "" || ifMatch == "*" {
		return 0, nil
	}
	n, err := strconv.ParseInt(strings.Trim(ifMatch, `"`), 10, 64)
	if err != nil || n < 1 {
		return 0, cluster.ErrStale // no version of ours ever had this tag
	}
	return n, nil
}

// etag names a version of what may be changed, not of its status.
func etag(generation int64) string { return fmt.Sprintf("%q", strconv.FormatInt(generation, 10)) }

// output is an answer with a body.
type output[T any] struct {
	Status   int
	ETag     string `header:"ETag"`
	Location string `header:"Location"`
	Body     T
}

func answer[T any](status int, body T) *output[T] { return &output[T]{Status: status, Body: body} }
