package config

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Bounds of a properties file: far above any real one.
const (
	maxPropertiesBytes = 4 << 20
	maxPropertiesKeys  = 20_000
)

// ParseProperties reads Java's properties syntax: comments (# and !), the
// separators '=', ':' and blank, backslash escapes (\t \n \r \f \uXXXX, any
// other character stands for itself) and lines continued by a backslash at
// their end. Of a doubled key the last value stands. The text is UTF-8.
// Errors name the line.
func ParseProperties(r io.Reader) (map[string]string, error) {
	br := bufio.NewReader(io.LimitReader(r, maxPropertiesBytes+1))
	out := make(map[string]string)
	total, line := 0, 0
	next := func() (string, bool, error) {
		s, err := br.ReadString('\n')
		total += len(s)
		if total > maxPropertiesBytes {
			return "", false, fmt.Errorf("properties: more than %d bytes", maxPropertiesBytes)
		}
		if err != nil && err != io.EOF {
			return "", false, fmt.Errorf("properties: line %d: %w", line+1, err)
		}
		if s == "" {
			return "", false, nil
		}
		line++
		return strings.TrimRight(s, "\r\n"), true, nil
	}
	for {
		s, ok, err := next()
		if err != nil {
			return nil, err
		}
		if !ok {
			return out, nil
		}
		s = strings.TrimLeft(s, " \t\f")
		if s == "" || s[0] == '#' || s[0] == '!' {
			continue
		}
		first := line
		for continued(s) {
			s = s[:len(s)-1]
			more, ok, err := next()
			if err != nil {
				return nil, err
			}
			if !ok {
				break
			}
			s += strings.TrimLeft(more, " \t\f")
		}
		if !utf8.ValidString(s) {
			return nil, fmt.Errorf("properties: line %d: not UTF-8", first)
		}
		k, v := splitProperty(s)
		key, err := unescape(k)
		if err == nil {
			v, err = unescape(v)
		}
		if err != nil {
			return nil, fmt.Errorf("properties: line %d: %w", first, err)
		}
		if out[key] = v; len(out) > maxPropertiesKeys {
			return nil, fmt.Errorf("properties: more than %d keys", maxPropertiesKeys)
		}
	}
}

// continued says whether the line ends in an odd number of backslashes.
func continued(s string) bool {
	n := 0
	for n < len(s) && s[len(s)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// splitProperty cuts at the first separator that is not escaped.
func splitProperty(s string) (key, value string) {
	i := 0
	for i < len(s) {
		c := s[i]
		if c == '\\' {
			i += 2
			continue
		}
		if c == '=' || c == ':' || c == ' ' || c == '\t' || c == '\f' {
			break
		}
		i++
	}
	if i >= len(s) {
		return s, ""
	}
	key, value = s[:i], strings.TrimLeft(s[i:], " \t\f")
	if value != "" && (value[0] == '=' || value[0] == ':') {
		value = strings.TrimLeft(value[1:], " \t\f")
	}
	return key, value
}

func unescape(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		if i++; i == len(s) {
			break // a lone backslash at the very end says nothing
		}
		switch s[i] {
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 'f':
			b.WriteByte('\f')
		case 'u':
			r, ok := hex4(s[i+1:])
			if !ok {
				return "", fmt.Errorf(`\u wants four hexadecimal digits`)
			}
			i += 4
			if utf16.IsSurrogate(r) && strings.HasPrefix(s[i+1:], `\u`) {
				if lo, ok := hex4(s[i+3:]); ok {
					if both := utf16.DecodeRune(r, lo); both != utf8.RuneError {
						r = both
						i += 6
					}
				}
			}
			b.WriteRune(r)
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), nil
}

func hex4(s string) (rune, bool) {
	if len(s) < 4 {
		return 0, false
	}
	var r rune
	for i := 0; i < 4; i++ {
		c := s[i]
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// FormatProperty writes one line that ParseProperties reads back as (key, value).
func FormatProperty(key, value string) string {
	return escapeProperty(key, true) + "=" + escapeProperty(value, false) + "\n"
}

func escapeProperty(s string, key bool) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '\\':
			b.WriteString(`\\`)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		case '\f':
			b.WriteString(`\f`)
		case ' ':
			if key || i == 0 {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		case '=', ':', '#', '!':
			if key {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
