package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
	"penstock/dataplane/metadata"
	"penstock/dataplane/protocol"
)

// ApiVersions (key 18), versions 0 to 4.
//
// The table of versions. A version that is not known is answered by the
// listener, in the layout of version 0. From v3 the client names its software;
// a name that is not one is INVALID_REQUEST (KIP-511), and is told which features this broker can
// do and which are in force in the cluster (KIP-584).
func (h *Handler) apiVersions(r *listener.Request) {
	req := r.Body.(*kmsg.ApiVersionsRequest)
	resp := protocol.ApiVersions(req.Version)
	if req.Version >= 3 && !(softwareName(req.ClientSoftwareName) && softwareName(req.ClientSoftwareVersion)) {
		resp.ApiKeys, resp.ErrorCode = nil, kerr.InvalidRequest.Code
	} else if h.Features != nil {
		addFeatures(resp, h.Features())
	}
	r.Reply(resp)
}

// addFeatures leaves out before v4 what a broker can do without: clients of that time take a
// range from 0 on for malformed (KAFKA-17011).
func addFeatures(resp *kmsg.ApiVersionsResponse, in metadata.Features) {
	resp.FinalizedFeaturesEpoch = in.Epoch
	for _, f := range protocol.Features() {
		if f.Min > 0 || resp.Version >= 4 {
			s := kmsg.NewApiVersionsResponseSupportedFeature()
			s.Name, s.MinVersion, s.MaxVersion = f.Name, f.Min, f.Max
			resp.SupportedFeatures = append(resp.SupportedFeatures, s)
		}
		if level := in.Levels[f.Name]; level > 0 {
			s := kmsg.NewApiVersionsResponseFinalizedFeature()
			s.Name, s.MinVersionLevel, s.MaxVersionLevel = f.Name, level, level
			resp.FinalizedFeatures = append(resp.FinalizedFeatures, s)
		}
	}
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
