package auth

import (
	"bytes"
	"errors"
	"strings"
)

// maxBearer bounds the client's first message, extensions included.
const maxBearer = maxToken + 16<<10

var (
	errBearer = errors.New("malformed OAUTHBEARER message")
	// ErrNoToken is the cause when the message holds no auth field.
	ErrNoToken = errors.New("no token in the OAUTHBEARER message")
)

// parseBearer reads the client's first message of RFC 7628:
// n,[a=authzid],0x01 key=value 0x01 ... 0x01. Other fields than auth are
// extensions (KIP-342): their form is checked, their content not used.
func parseBearer(msg []byte) (token, authzid string, err error) {
	if len(msg) > maxBearer {
		return "", "", errors.New("OAUTHBEARER message too long")
	}
	header, rest, ok := bytes.Cut(msg, []byte{1})
	if !ok {
		return "", "", errBearer
	}
	gs2, ok := strings.CutPrefix(string(header), "n,")
	if !ok || !strings.HasSuffix(gs2, ",") {
		return "", "", errBearer // "y" and "p=" would mean channel binding: there is none
	}
	if gs2 = gs2[:len(gs2)-1]; gs2 != "" {
		if authzid, ok = strings.CutPrefix(gs2, "a="); !ok {
			return "", "", errBearer
		}
		if authzid, ok = saslName(authzid); !ok {
			return "", "", errBearer
		}
	}
	// Each field ends in 0x01 and so does the list.
	body, ok := bytes.CutSuffix(rest, []byte{1})
	if !ok {
		return "", "", errBearer
	}
	seen := make(map[string]bool)
	for len(body) > 0 {
		var kv []byte
		kv, body, ok = bytes.Cut(body, []byte{1})
		if !ok {
			return "", "", errBearer
		}
		k, v, ok := strings.Cut(string(kv), "=")
		if !ok || !fieldName(k) || !fieldValue(v) || seen[k] {
			return "", "", errBearer
		}
		if seen[k] = true; len(seen) > 32 {
			return "", "", errBearer
		}
		if k != "auth" {
			continue
		}
		scheme, t, ok := strings.Cut(v, " ")
		if !ok || !strings.EqualFold(scheme, "bearer") {
			return "", "", errBearer
		}
		if token = strings.TrimLeft(t, " "); token == "" {
			return "", "", ErrNoToken
		}
	}
	if token == "" {
		return "", "", ErrNoToken
	}
	return token, authzid, nil
}

func fieldName(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i] | 0x20; c < 'a' || c > 'z' {
			return false
		}
	}
	return s != ""
}

func fieldValue(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < 0x20 || c > 0x7e) && c != '\t' && c != '\r' && c != '\n' {
			return false
		}
	}
	return s != ""
}

// saslName decodes RFC 5801's saslname: =2C is a comma, =3D an equals sign.
func saslName(s string) (string, bool) {
	plain := strings.NewReplacer("=2C", "", "=3D", "").Replace(s)
	if s == "" || strings.ContainsAny(plain, ",=") {
		return "", false
	}
	return strings.NewReplacer("=2C", ",", "=3D", "=").Replace(s), true
}
