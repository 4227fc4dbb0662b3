// Package auth answers who is calling and what they may do.
//
// Who: a Server holds the SASL mechanisms of one listener, a Session is the
// login of one connection: PLAIN against the users of a JAAS line, OAUTHBEARER
// (RFC 7628) with tokens that are signed JWTs. A token is believed only when,
// in this order: its form is strict (three parts of canonical base64url, no
// doubled members), its algorithm is one of the fixed list, its kid names a key
// of the issuer, the signature holds, and only then the claims: issuer and
// audience exact, expiry present and not over, not before its time, lifetime
// within the cap, not revoked (Revocations). Every refusal looks the same to the client; the reason goes
// to the log.
//
// The issuer's keys are read from an HTTP address or a file in the background.
// The last good set is kept on disk and in memory for as long as no newer one
// can be read: keys never expire by age, so that a broker serves and restarts
// without the control plane. A successful read replaces the whole set, which is
// how a key is withdrawn.
//
// May: an Authorizer decides by Kafka's ACLs, from an immutable index that is
// replaced on each change. A deny of any matching ACL wins.
//
// Locks: Authorizer.mu serialises changes of the index (held during calls of the
// Store, so that two reads cannot be applied in the wrong order); Keys.mu guards
// its schedule. Neither is held while taking the other; Authorize takes none.
package auth
