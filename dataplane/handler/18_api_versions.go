package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
	"penstock/dataplane/protocol"
)

// ApiVersions (key 18), versions 0 to 4.
//
// The table of versions. A version that is not known is answered by the
// listener, in the layout of version 0. From v3 the client names its software;
// a name that is not one is INVALID_REQUEST (KIP-511).
func (h *Handler) apiVersions(r *listener.Request) {
	req := r.Body.(*kmsg.ApiVersionsRequest)
	resp := protocol.ApiVersions(req.Version)
	if req.Version >= 3 && !(softwareName(req.ClientSoftwareName) && softwareName(req.ClientSoftwareVersion)) {
		resp.ApiKeys, resp.ErrorCode = nil, kerr.InvalidRequest.Code
	}
	r.Reply(resp)
}

// softwareName follows KIP-511: letters, digits, dots and dashes, no dot or
// dash at either end.
func softwareName(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case (c == '.' || c == '-') && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return s != ""
}
