package config

import (
	"maps"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestProperties(t *testing.T) {
	for in, want := range map[string]map[string]string{
		"a=1\nb:2\nc 3\nd\t4\ne = 5 \n": {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5 "},
		"# x=1\n  ! y=2\n\n   \n  k=v":  {"k": "v"},
		"a=b\\\n   c\\\n\td\nz=1":       {"a": "bcd", "z": "1"},
		"a=b\\\\\nz=1":                  {"a": `b\`, "z": "1"},
		`a=\t\n\r\f\q\u0041\u20ac`:      {"a": "\t\n\r\fqA€"},
		`a=\ud83d\ude00`:                {"a": "😀"},
		`sp\ ace\=\:k=v`:                {"sp ace=:k": "v"},
		"k\nl=\nm =\n":                  {"k": "", "l": "", "m": ""},
		"k==v\nl=:v\n":                  {"k": "=v", "l": ":v"},
		"k=1\r\nk=2\r\n":                {"k": "2"},
		"k=# no comment":                {"k": "# no comment"},
		"k=v\\":                         {"k": "v"},
		"":                              {},
		"=v":                            {"": "v"},
		"url=http://h:1/x?a=b":          {"url": "http://h:1/x?a=b"},
	} {
		got, err := ParseProperties(strings.NewReader(in))
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for _, bad := range []string{`a=\u12`, `a=\uzzzz`, "a=\xff", strings.Repeat("x", maxPropertiesBytes+1)} {
		if _, err := ParseProperties(strings.NewReader(bad)); err == nil {
			t.Errorf("%.20q accepted", bad)
		}
	}
}

func FuzzProperties(f *testing.F) {
	f.Add("a=b\\\n c\n#x\nk\\u0041 : v\\\\")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseProperties(strings.NewReader(s))
		if err != nil {
			return
		}
		// What was read, written and read again is the same.
		var b strings.Builder
		for k, v := range got {
			if !utf8.ValidString(k) || !utf8.ValidString(v) {
				t.Fatalf("not UTF-8: %q=%q", k, v)
			}
			b.WriteString(FormatProperty(k, v))
		}
		again, err := ParseProperties(strings.NewReader(b.String()))
		if err != nil || !maps.Equal(got, again) {
			t.Fatalf("%q became %q (%v)", got, again, err)
		}
	})
}

func FuzzNew(f *testing.F) {
	f.Add("listeners", "A://h:1,B://[::1]:2", "max.connections.per.ip.overrides", "1.2.3.4:5")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		b, err := New(base(k1, v1, k2, v2))
		if err == nil {
			b.DescribeBroker(nil)
			b.SASL("PLAINTEXT")
		}
		mustNew(t).Topic(map[string]string{k1: v1, k2: v2})
	})
}
