package auth

import (
	"errors"
	"fmt"
	"strings"
)

// PlainModule is the login module that a JAAS line for PLAIN must name.
const PlainModule = "org.apache.kafka.common.security.plain.PlainLoginModule"

// maxJAAS bounds a JAAS line.
const maxJAAS = 1 << 20

// JAAS is one login entry: Module Flag key="value" ...;
type JAAS struct {
	Module  string
	Flag    string
	Options map[string]string
}

var errJAAS = errors.New("bad JAAS entry")

// ParseJAAS reads the value of sasl.jaas.config: exactly one entry, ended by a
// semicolon. Values stand in single or double quotes, in which a backslash
// takes the next character as it is, or bare. No error quotes any of the text,
// for it holds passwords.
func ParseJAAS(s string) (JAAS, error) {
	if len(s) > maxJAAS {
		return JAAS{}, fmt.Errorf("%w: too long", errJAAS)
	}
	p := &jaasParser{s: s}
	j := JAAS{Options: make(map[string]string)}
	j.Module = p.word()
	j.Flag = strings.ToLower(p.word())
	switch {
	case j.Module == "":
		return JAAS{}, fmt.Errorf("%w: no login module", errJAAS)
	case j.Flag != "required" && j.Flag != "requisite" && j.Flag != "sufficient" && j.Flag != "optional":
		return JAAS{}, fmt.Errorf("%w: no control flag (required, requisite, sufficient, optional) after the login module", errJAAS)
	}
	for {
		p.blanks()
		if p.eat(';') {
			if p.blanks(); p.i < len(p.s) {
				return JAAS{}, fmt.Errorf("%w: text after the semicolon", errJAAS)
			}
			return j, nil
		}
		name := p.word()
		if name == "" {
			return JAAS{}, fmt.Errorf("%w: no semicolon at the end", errJAAS)
		}
		p.blanks()
		if !p.eat('=') {
			return JAAS{}, fmt.Errorf("%w: an option without '='", errJAAS)
		}
		v, ok := p.value()
		if !ok {
			return JAAS{}, fmt.Errorf("%w: an option without a value, or a quote that does not end", errJAAS)
		}
		if _, ok := j.Options[name]; ok {
			return JAAS{}, fmt.Errorf("%w: an option is named twice", errJAAS)
		}
		j.Options[name] = v
	}
}

// Users are the users that a PLAIN entry lets in: its options user_NAME.
func (j JAAS) Users() map[string]string {
	out := make(map[string]string)
	for k, v := range j.Options {
		if name, ok := strings.CutPrefix(k, "user_"); ok && name != "" {
			out[name] = v
		}
	}
	return out
}

// Credentials are what the broker itself logs in with.
func (j JAAS) Credentials() (user, password string, ok bool) {
	user, ok1 := j.Options["username"]
	password, ok2 := j.Options["password"]
	return user, password, ok1 && ok2
}

type jaasParser struct {
	s string
	i int
}

func (p *jaasParser) blanks() {
	for p.i < len(p.s) && strings.IndexByte(" \t\r\n", p.s[p.i]) >= 0 {
		p.i++
	}
}

func (p *jaasParser) eat(c byte) bool {
	if p.i < len(p.s) && p.s[p.i] == c {
		p.i++
		return true
	}
	return false
}

func (p *jaasParser) word() string {
	p.blanks()
	start := p.i
	for p.i < len(p.s) && strings.IndexByte(" \t\r\n=;\"'", p.s[p.i]) < 0 {
		p.i++
	}
	return p.s[start:p.i]
}

func (p *jaasParser) value() (string, bool) {
	p.blanks()
	if p.i == len(p.s) {
		return "", false
	}
	quote := p.s[p.i]
	if quote != '"' && quote != '\'' {
		w := p.word()
		return w, w != ""
	}
	p.i++
	var b strings.Builder
	for p.i < len(p.s) {
		c := p.s[p.i]
		p.i++
		switch {
		case c == quote:
			return b.String(), true
		case c == '\\' && p.i < len(p.s):
			b.WriteByte(p.s[p.i])
			p.i++
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}
