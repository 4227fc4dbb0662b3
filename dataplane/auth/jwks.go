package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
)

// Bounds of a key set.
const (
	maxJWKS     = 1 << 20
	maxKeys     = 100
	minRSABits  = 2048
	maxRSABits  = 8192
	maxKidBytes = 256
)

// keySet is the usable keys by kid. It is immutable.
type keySet map[string]verifyKey

type verifyKey struct {
	alg string // the one algorithm that the key may be used with
	key crypto.PublicKey
}

// parseJWKS reads a JSON Web Key Set (RFC 7517). Keys of other kinds, for other
// uses or of unusable content are left out; a set without any usable key is an
// error, since it would lock everyone out. Of two keys of one kid neither
// counts.
func parseJWKS(b []byte) (keySet, error) {
	if len(b) > maxJWKS {
		return nil, errors.New("auth: key set too large")
	}
	var doc struct {
		Keys []struct {
			Kty, Kid, Use, Alg, Crv, X, Y, N, E string
		} `json:"keys"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("auth: key set: %w", err)
	}
	if len(doc.Keys) > maxKeys {
		return nil, fmt.Errorf("auth: key set of %d keys, limit %d", len(doc.Keys), maxKeys)
	}
	set := make(keySet)
	doubled := make(map[string]bool)
	for _, k := range doc.Keys {
		if k.Kid == "" || len(k.Kid) > maxKidBytes || (k.Use != "" && k.Use != "sig") {
			continue
		}
		var v verifyKey
		var err error
		switch k.Kty {
		case "EC":
			v.alg = "ES256"
			v.key, err = ecKey(k.Crv, k.X, k.Y)
		case "RSA":
			v.alg = "RS256"
			v.key, err = rsaKey(k.N, k.E)
		default:
			continue
		}
		if err != nil || (k.Alg != "" && k.Alg != v.alg) {
			continue
		}
		if _, ok := set[k.Kid]; ok {
			doubled[k.Kid] = true
		}
		set[k.Kid] = v
	}
	for kid := range doubled {
		delete(set, kid)
	}
	if len(set) == 0 {
		return nil, errors.New("auth: key set without a usable key")
	}
	return set, nil
}

func ecKey(crv, x, y string) (crypto.PublicKey, error) {
	if crv != "P-256" {
		return nil, errors.New("not P-256")
	}
	point := []byte{4}
	for _, s := range []string{x, y} {
		b, err := base64.RawURLEncoding.DecodeString(s)
		if err != nil || len(b) != 32 {
			return nil, errors.New("bad coordinate")
		}
		point = append(point, b...)
	}
	return ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
}

func rsaKey(n, e string) (crypto.PublicKey, error) {
	nb, err1 := base64.RawURLEncoding.DecodeString(n)
	eb, err2 := base64.RawURLEncoding.DecodeString(e)
	if err1 != nil || err2 != nil || len(eb) > 4 || len(nb) > maxRSABits/8+1 {
		return nil, errors.New("bad RSA key")
	}
	k := &rsa.PublicKey{N: new(big.Int).SetBytes(nb), E: int(new(big.Int).SetBytes(eb).Int64())}
	if bits := k.N.BitLen(); bits < minRSABits || bits > maxRSABits || k.E < 3 || k.E%2 == 0 {
		return nil, errors.New("bad RSA key")
	}
	return k, nil
}
