package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/auth"
	"penstock/dataplane/listener"
)

// SaslHandshake (key 17), versions 0 and 1.
//
// Names the mechanism of the login that follows. Version 0 would be followed by
// bare SASL tokens without Kafka's framing, which no client of the last years
// sends; SaslAuthenticate is expected after either.
func (h *Handler) saslHandshake(r *listener.Request) {
	req := r.Body.(*kmsg.SASLHandshakeRequest)
	resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
	session := h.login(r.Conn)
	if session == nil {
		resp.ErrorCode = kerr.IllegalSaslState.Code
		r.Reply(resp)
		return
	}
	mechanisms, err := session.Handshake(req.Mechanism)
	resp.SupportedMechanisms, resp.ErrorCode = mechanisms, code(err)
	if err != nil {
		r.ReplyThenClose(resp, 0, "SASL handshake: "+err.Error())
		return
	}
	r.Reply(resp)
}

// login is the connection's authentication, nil on listeners without one.
func (h *Handler) login(c *listener.Conn) *auth.Session {
	if s, ok := c.Auth().(*auth.Session); ok {
		return s
	}
	if h.SASL == nil {
		return nil
	}
	server := h.SASL(c.Listener())
	if server == nil {
		return nil
	}
	s := server.NewSession()
	c.SetAuth(s)
	return s
}
