package auth

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"unicode/utf8"
)

// plainUsers checks SASL/PLAIN (RFC 4616). Passwords are kept as keyed hashes,
// so that comparing takes the same time whatever the guess, its length, and
// whether the user exists.
type plainUsers struct {
	key   []byte
	users map[string][]byte
	dummy []byte
}

func newPlainUsers(users map[string]string) *plainUsers {
	p := &plainUsers{key: make([]byte, 32), users: make(map[string][]byte, len(users))}
	rand.Read(p.key)
	for name, password := range users {
		p.users[name] = p.hash([]byte(password))
	}
	p.dummy = make([]byte, sha256.Size)
	rand.Read(p.dummy)
	return p
}

func (p *plainUsers) hash(b []byte) []byte {
	h := hmac.New(sha256.New, p.key)
	h.Write(b)
	return h.Sum(nil)
}

var errPlain = errors.New("wrong user or password")

// check reads [authzid] NUL authcid NUL password and returns the user's name.
func (p *plainUsers) check(msg []byte) (string, error) {
	if !utf8.Valid(msg) || bytes.Count(msg, []byte{0}) != 2 {
		return "", errors.New("malformed PLAIN message")
	}
	authzid, rest, _ := bytes.Cut(msg, []byte{0})
	user, password, _ := bytes.Cut(rest, []byte{0})
	if len(user) == 0 || len(password) == 0 {
		return "", errors.New("PLAIN message without user or password")
	}
	want, known := p.users[string(user)]
	if !known {
		want = p.dummy
	}
	ok := hmac.Equal(want, p.hash(password))
	if !ok || !known {
		return "", errPlain
	}
	if len(authzid) > 0 && !bytes.Equal(authzid, user) {
		return "", errors.New("authorization id is not the user")
	}
	return string(user), nil
}
