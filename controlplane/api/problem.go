package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5/pgconn"

	"penstock/controlplane/api/wire"
	"penstock/controlplane/cluster"
	"penstock/tenants"
	"penstock/tenants/registry"
)

// problem is a refusal on its way to the caller.
type problem struct{ wire.Problem }

func (p *problem) Error() string             { return p.Code + ": " + p.Detail }
func (p *problem) GetStatus() int            { return p.Status }
func (p *problem) ContentType(string) string { return "application/problem+json" }

// codes are the stable names of problems that are told by their status alone.
var codes = map[int]string{
	http.StatusBadRequest:            "bad-request",
	http.StatusUnauthorized:          "unauthenticated",
	http.StatusForbidden:             "forbidden",
	http.StatusNotFound:              "not-found",
	http.StatusNotAcceptable:         "not-acceptable",
	http.StatusRequestTimeout:        "timeout",
	http.StatusConflict:              "conflict",
	http.StatusPreconditionFailed:    "precondition-failed",
	http.StatusRequestEntityTooLarge: "too-large",
	http.StatusUnsupportedMediaType:  "unsupported-media-type",
	http.StatusUnprocessableEntity:   "invalid",
	http.StatusInternalServerError:   "internal",
	http.StatusServiceUnavailable:    "unavailable",
}

func newProblem(ctx context.Context, status int, detail string) *problem {
	code, ok := codes[status]
	if !ok {
		code = "error"
	}
	return &problem{wire.Problem{Type: "urn:penstock:" + code, Title: http.StatusText(status), Status: status,
		Detail: detail, Code: code, RequestID: requestOf(ctx).ID}}
}

// refuse makes a problem with a code of its own.
func refuse(status int, code, detail string) *problem {
	return &problem{wire.Problem{Type: "urn:penstock:" + code, Title: http.StatusText(status), Status: status, Detail: detail, Code: code}}
}

// invalid is a 422 that names the wrong field.
func invalid(location, message string) *problem {
	p := refuse(http.StatusUnprocessableEntity, "invalid", message)
	p.Errors = []wire.FieldError{{Location: location, Message: message}}
	return p
}

// huma asks this variable for its own refusals (validation, body size, format);
// it is the library's only seam for their form.
func init() {
	huma.NewErrorWithContext = func(hc huma.Context, status int, msg string, errs ...error) huma.StatusError {
		ctx := context.Background()
		if hc != nil {
			ctx = hc.Context()
		}
		return fromHuma(ctx, status, msg, errs)
	}
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		return fromHuma(context.Background(), status, msg, errs)
	}
}

func fromHuma(ctx context.Context, status int, msg string, errs []error) *problem {
	p := newProblem(ctx, status, msg)
	for _, err := range errs {
		var own *problem
		if errors.As(err, &own) {
			own.RequestID = p.RequestID
			return own
		}
		var d *huma.ErrorDetail
		if errors.As(err, &d) {
			p.Errors = append(p.Errors, wire.FieldError{Location: d.Location, Message: d.Message})
		} else if err != nil && status < 500 {
			p.Errors = append(p.Errors, wire.FieldError{Message: err.Error()})
		}
	}
	return p
}

func writeProblem(w http.ResponseWriter, p *problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	json.NewEncoder(w).Encode(p)
}

// explain turns an error of the layers below into a problem. What it does not
// know is logged and shown as "internal" only.
func (a *API) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	p := a.classify(ctx, err)
	p.RequestID = requestOf(ctx).ID
	return p
}

func (a *API) classify(ctx context.Context, err error) *problem {
	var p *problem
	var pg *pgconn.PgError
	var dial *pgconn.ConnectError
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, registry.ErrNotFound), errors.Is(err, cluster.ErrNotFound):
		return newProblem(ctx, http.StatusNotFound, "there is no such thing, or not for you")
	case errors.Is(err, registry.ErrConflict), errors.Is(err, cluster.ErrConflict):
		return refuse(http.StatusConflict, "already-exists", err.Error())
	case errors.Is(err, cluster.ErrMove):
		return refuse(http.StatusConflict, "wrong-state", err.Error())
	case errors.Is(err, cluster.ErrStale):
		return newProblem(ctx, http.StatusPreconditionFailed, "it has changed since you read it")
	case errors.Is(err, registry.ErrTooMany), errors.Is(err, tenants.ErrLimit):
		return refuse(http.StatusForbidden, "limit-exceeded", err.Error())
	case errors.Is(err, tenants.ErrBadName):
		return refuse(http.StatusUnprocessableEntity, "invalid", err.Error())
	case errors.As(err, &pg) && (pg.Code == "22021" || pg.Code == "22P05"):
		return refuse(http.StatusUnprocessableEntity, "invalid", "a text holds a NUL character")
	case ctx.Err() != nil:
		return newProblem(ctx, http.StatusServiceUnavailable, "the call was given up")
	case errors.As(err, &dial), errors.As(err, &pg) && (pg.Code[:2] == "08" || pg.Code[:2] == "57" || pg.Code[:2] == "53"):
		a.cfg.Logger.Error("Postgres is away", "err", err, "request_id", requestOf(ctx).ID)
		return newProblem(ctx, http.StatusServiceUnavailable, "try again soon")
	}
	a.cfg.Logger.Error("call failed", "err", err, "request_id", requestOf(ctx).ID, "path", requestOf(ctx).Path)
	return newProblem(ctx, http.StatusInternalServerError, "the call failed; the request id tells us where to look")
}
