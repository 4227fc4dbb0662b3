package tenants

import (
	"fmt"
	"strings"
	"time"
)

// UserType is the type of every principal of ours; Kafka's ACLs, quotas and
// super.users name principals as "User:name".
const UserType = "User"

// The principals of the service itself, on the internal listener.
const (
	BrokerUser  = "broker"
	ControlUser = "control"
	Anonymous   = "ANONYMOUS" // Kafka's name for a client that has not logged in
)

// What ties a token to the credential that it was given for, so that it can be revoked
// with that one alone.
const (
	CredentialType  = "Credential" // in penstock.auth.not.before, where principals have User
	CredentialClaim = "credential" // the token's claim
)

// MaxTokenLife is how long a token of ours can live.
const MaxTokenLife = 15 * time.Minute

// Credential writes the name of a credential, such as a secret, beside principals.
func Credential(id string) string { return CredentialType + ":" + id }

// Principal writes the principal of a user: "User:" and the name.
func Principal(user string) string { return UserType + ":" + user }

// SplitPrincipal takes "Type:name" apart. The name may itself hold colons.
func SplitPrincipal(p string) (kind, name string, err error) {
	kind, name, ok := strings.Cut(p, ":")
	if !ok || kind == "" || name == "" {
		return "", "", fmt.Errorf("%w: a principal is written Type:name", ErrBadName)
	}
	return kind, name, nil
}

// PrincipalName is the name in "User:name"; a string without a type is its own name.
func PrincipalName(p string) string {
	if _, name, err := SplitPrincipal(p); err == nil {
		return name
	}
	return p
}
