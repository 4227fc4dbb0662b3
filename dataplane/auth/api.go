// Package auth answers who is calling (SASL) and what they may do (ACLs).
package auth

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Result of one SaslAuthenticate step.
type Result struct {
	Bytes      []byte // auth_bytes of the reply
	Done       bool   // logged in
	Principal  string // "User:name" when Done
	LifetimeMs int64  // session_lifetime_ms, 0 = no limit
}

// Server holds the mechanisms of one listener.
type Server struct{}

// NewSession starts the login of one connection.
func (s *Server) NewSession() *Session { return &Session{} }

// Session is one connection's login; calls must not overlap.
type Session struct{}

// Handshake answers SaslHandshake; err is UNSUPPORTED_SASL_MECHANISM or ILLEGAL_SASL_STATE.
func (s *Session) Handshake(mechanism string) (mechanisms []string, err error) { return nil, nil }

// Authenticate answers SaslAuthenticate; err is a *kerr.Error in the chain and its text may be shown to the client; the connection must be closed after it was sent.
func (s *Session) Authenticate(authBytes []byte) (Result, error) { return Result{}, nil }

// Resource names what an ACL protects.
type Resource struct {
	Type    kmsg.ACLResourceType
	Name    string
	Pattern kmsg.ACLResourcePatternType
}

// Entry is who may (or may not) do what from where.
type Entry struct {
	Principal  string // "User:x" or "User:*"
	Host       string // "*" or an IP address
	Operation  kmsg.ACLOperation
	Permission kmsg.ACLPermissionType
}

// Binding is an entry on a resource.
type Binding struct {
	Resource
	Entry
}

// Filter selects bindings; nil names match anything.
type Filter struct {
	Type       kmsg.ACLResourceType
	Name       *string
	Pattern    kmsg.ACLResourcePatternType
	Principal  *string
	Host       *string
	Operation  kmsg.ACLOperation
	Permission kmsg.ACLPermissionType
}

// Store keeps ACLs durably.
type Store interface {
	// Load returns every resource's entries.
	Load(ctx context.Context) ([]Binding, error)
	// Add adds entries to one resource, compare-and-set, and returns the resource's whole new list.
	Add(ctx context.Context, r Resource, e []Entry) ([]Entry, error)
	// Delete removes entries from one resource; an empty rest removes the node.
	Delete(ctx context.Context, r Resource, e []Entry) ([]Entry, error)
}

// Authorizer decides.
type Authorizer struct{}

// Authorize says whether principal ("User:x") from host may do op on (typ, name). It does not allocate.
func (a *Authorizer) Authorize(principal, host string, op kmsg.ACLOperation, typ kmsg.ACLResourceType, name string) bool {
	return false
}

// AuthorizeAny says whether op is allowed on any resource of the type.
func (a *Authorizer) AuthorizeAny(principal, host string, op kmsg.ACLOperation, typ kmsg.ACLResourceType) bool {
	return false
}

func (a *Authorizer) Describe(f Filter) []Binding                                     { return nil }
func (a *Authorizer) Create(ctx context.Context, b []Binding) []error                 { return nil }
func (a *Authorizer) Delete(ctx context.Context, f []Filter) ([][]Binding, []error) { return nil, nil }

// Refresh loads one resource anew after a change notification.
func (a *Authorizer) Refresh(ctx context.Context) error { return nil }
