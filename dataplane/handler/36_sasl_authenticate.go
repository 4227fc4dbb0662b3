package handler

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
)

// loginTimeout bounds the wait for an issuer's keys when a token names a new one.
const loginTimeout = 10 * time.Second

// SaslAuthenticate (key 36), versions 0 to 2.
//
// One step of the login, or of a re-authentication on a live connection
// (KIP-368), which must keep mechanism and principal. The session's lifetime is
// told from v1; when it is over the first request but SASL closes the
// connection. A failed login is answered and then closed.
func (h *Handler) saslAuthenticate(r *listener.Request) {
	req := r.Body.(*kmsg.SASLAuthenticateRequest)
	resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
	session := h.login(r.Conn)
	if session == nil {
		resp.ErrorCode = kerr.IllegalSaslState.Code
		r.Reply(resp)
		return
	}
	ctx, cancel := h.within(int32(loginTimeout.Milliseconds()))
	defer cancel()
	result, err := session.Authenticate(ctx, req.SASLAuthBytes)
	resp.SASLAuthBytes = result.Bytes
	if resp.SASLAuthBytes == nil {
		resp.SASLAuthBytes = []byte{}
	}
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = code(err), text(err)
		// Answered late, so that guessing is slow.
		r.ReplyThenClose(resp, h.Broker().FailedAuthDelay, "SASL login failed")
		return
	}
	if result.Done {
		resp.SessionLifetimeMillis = result.LifetimeMs
		r.Conn.SetSessionExpiry(result.Expires)
		r.Conn.SetPrincipal(result.Principal)
	}
	r.Reply(resp)
}
