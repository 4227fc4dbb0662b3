package protocol

import (
	"encoding/binary"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// RequestHeader is what stands before every request's body.
type RequestHeader struct {
	Key           int16
	Version       int16
	CorrelationID int32
	// ClientID aliases the frame; nil stands for a null client id.
	ClientID []byte
}

// The reasons for which a frame cannot be a request. The connection that sent
// it is closed without an answer, as Kafka does.
var (
	ErrShortHeader        = errors.New("request header is cut short")
	ErrBadHeader          = errors.New("request header is malformed")
	ErrUnknownKey         = errors.New("unknown api key")
	ErrUnsupportedVersion = errors.New("unsupported api version")
)

// HeaderPrefix is how many bytes of a frame tell its key, version and
// correlation id, whatever the header's version is.
const HeaderPrefix = 8

// PeekHeader reads the fixed part of a request header. The client id is not
// looked at. b must hold at least HeaderPrefix bytes.
func PeekHeader(b []byte) (RequestHeader, error) {
	if len(b) < HeaderPrefix {
		return RequestHeader{}, ErrShortHeader
	}
	return RequestHeader{
		Key:           int16(binary.BigEndian.Uint16(b)),
		Version:       int16(binary.BigEndian.Uint16(b[2:])),
		CorrelationID: int32(binary.BigEndian.Uint32(b[4:])),
	}, nil
}

// ParseRequestHeader splits a frame (without its length) into header and body;
// both alias the frame. Header version 0 belongs to ControlledShutdown v0
// alone, version 2 (tagged fields) to the flexible versions of each request,
// version 1 to the rest. It fails for keys that kmsg does not know, because
// then nothing tells the header's version.
func ParseRequestHeader(frame []byte) (h RequestHeader, body []byte, err error) {
	if h, err = PeekHeader(frame); err != nil {
		return h, nil, err
	}
	b := frame[HeaderPrefix:]
	if h.Key == keyControlledShutdown && h.Version == 0 {
		return h, b, nil
	}
	if len(b) < 2 {
		return h, nil, ErrShortHeader
	}
	n := int(int16(binary.BigEndian.Uint16(b)))
	b = b[2:]
	switch {
	case n < -1:
		return h, nil, ErrBadHeader
	case n > len(b):
		return h, nil, ErrShortHeader
	case n >= 0:
		h.ClientID, b = b[:n:n], b[n:]
	}
	flexible, known := requestFlexible(h.Key, h.Version)
	if !known {
		return h, nil, ErrUnknownKey
	}
	if flexible {
		w := walker{b: b, flexible: true}
		w.tags()
		if w.bad {
			return h, nil, ErrBadHeader
		}
		b = w.b
	}
	return h, b, nil
}

// AppendResponseHeader appends what stands before a response's body: the
// correlation id, and the empty tagged fields of header version 1 where the
// response is flexible. ApiVersions always has version 0, since its client does
// not yet know what the broker speaks (KIP-511).
func AppendResponseHeader(dst []byte, key, version int16, correlationID int32) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if ResponseHeaderFlexible(key, version) {
		dst = append(dst, 0)
	}
	return dst
}

// ResponseHeaderFlexible says whether the response header of this request
// carries tagged fields.
func ResponseHeaderFlexible(key, version int16) bool {
	if key == keyApiVersions {
		return false
	}
	flexible, _ := requestFlexible(key, version)
	return flexible
}

// requestFlexible asks kmsg; it allocates nothing for keys of the table.
func requestFlexible(key, version int16) (flexible, known bool) {
	if a := Lookup(key); a != nil {
		return a.FlexibleFrom >= 0 && version >= a.FlexibleFrom, true
	}
	r := kmsg.RequestForKey(key)
	if r == nil {
		return false, false
	}
	r.SetVersion(version)
	return r.IsFlexible(), true
}

// ParseResponseHeader splits a response frame (without its length) into
// correlation id and body, for the side that has sent the request.
func ParseResponseHeader(key, version int16, frame []byte) (correlationID int32, body []byte, err error) {
	if len(frame) < 4 {
		return 0, nil, ErrShortHeader
	}
	correlationID = int32(binary.BigEndian.Uint32(frame))
	w := walker{b: frame[4:], flexible: true}
	if ResponseHeaderFlexible(key, version) {
		if w.tags(); w.bad {
			return 0, nil, ErrBadHeader
		}
	}
	return correlationID, w.b, nil
}
