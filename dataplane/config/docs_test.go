package config

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var update = flag.Bool("update", false, "write the tables of docs/configuration.md anew")

const docFile = "../../docs/configuration.md"

// The document's tables are what the code says: names, types, defaults, and
// whether anything outside of this package reads the setting.
func TestConfigurationDocumentShowsTheSettingsAsTheyAre(t *testing.T) {
	old, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	src := readSources(t)
	text := string(old)
	for name, table := range map[string]string{"broker": table(brokerKeys, src, true), "topic": table(topicKeys, src, false)} {
		begin, end := "<!-- begin "+name+" settings: go generate ./dataplane/config -->\n", "<!-- end "+name+" settings -->\n"
		head, rest, ok := strings.Cut(text, begin)
		_, tail, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("%s lacks the marks of the %s settings", docFile, name)
		}
		text = head + begin + table + end + tail
	}
	if text == string(old) {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the code says; run `go generate ./dataplane/config` and look at the difference", docFile)
	}
	if err := os.WriteFile(docFile, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

var typeNames = map[kmsg.ConfigType]string{
	tBool: "boolean", tString: "string", tInt: "int", tShort: "short", tLong: "long", tDouble: "double", tList: "list", tPassword: "password",
}

// A topic's settings can all be changed at any time; of a broker's the table says it.
func table(keys []key, src sources, broker bool) string {
	var b strings.Builder
	change := func(s string) string {
		if broker {
			return " " + s + " |"
		}
		return ""
	}
	b.WriteString("| setting | type | default | read |" + change("change") + " meaning |\n|---|---|---|---|" + strings.ReplaceAll(change("---"), " ", "") + "---|\n")
	for i := range keys {
		k := &keys[i]
		def := "`" + k.def + "`"
		switch {
		case k.null:
			def = "not set"
		case k.def == "":
			def = "empty"
		case k.def == maxLong:
			def = "`2^63-1`"
		}
		read := "yes"
		if !src.reads(k) {
			read = "**no**"
		}
		when := "restart"
		if k.dynamic {
			when = "any time"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |%s %s |\n", k.name, typeNames[k.typ], def, read, change(when), strings.ReplaceAll(k.doc, "|", `\|`))
	}
	return b.String()
}

// sources is the code, for looking up who reads a setting.
type sources struct {
	config string          // of this package but its tables
	others map[string]bool // fields that the rest of the data plane reads of a Broker or a Topic
}

func readSources(t *testing.T) sources {
	s := sources{others: map[string]bool{}}
	read := regexp.MustCompile(`\b(?:(?:\w+\.)?(?:cfg|Broker|broker|inForce)(?:\(\))?|b|c|t|now)\.(\w+)\b[^(]`)
	err := filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		switch {
		case err != nil || strings.HasSuffix(path, "_keys.go"):
		case strings.HasPrefix(path, "../config/"):
			s.config += string(b)
		default:
			for _, m := range read.FindAllSubmatch(b, -1) {
				s.others[string(m[1])] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fields finds where this package puts the setting: b.Field = ... r.kind("key"),
// or Field: kind("key") of a topic.
func (s sources) fields(k *key) []string {
	lines := s.lines(k)
	name := regexp.QuoteMeta(`"` + k.name + `"`)
	var out []string
	for _, re := range []string{`\bb\.(\w+)(?:, \w+\.\w+)? = [^\n]*` + name, `\bb\.\w+, b\.(\w+) = [^\n]*` + name, `(\w+): +(?:int\()?\w+\(` + name + `\)`, `t\.(\w+), _ = [^\n]*` + name} {
		for _, m := range regexp.MustCompile(re).FindAllStringSubmatch(lines, -1) {
			if m[1] != "Value" { // of an error
				out = append(out, m[1])
			}
		}
	}
	return out
}

// lines are the lines of this package that name the setting.
func (s sources) lines(k *key) string {
	var b strings.Builder
	for l := range strings.Lines(s.config) {
		if strings.Contains(l, `"`+k.name+`"`) {
			b.WriteString(l)
		}
	}
	return b.String()
}

// reads says whether the setting has an effect: a rule of this package reads
// it, or the field that it ends in is read elsewhere.
func (s sources) reads(k *key) bool {
	for i := range topicKeys {
		t := &topicKeys[i]
		for _, syn := range t.syn {
			if syn == k.name && t.name != k.name && s.reads(t) {
				return true
			}
		}
	}
	switch k.name {
	case "cleanup.policy": // a loop sets Compact and Delete
		return s.others["Delete"]
	case "message.timestamp.difference.max.ms":
		return true // olderTimestampBound
	case "message.timestamp.type":
		return s.others["LogAppendTime"]
	case "super.users":
		return s.others["SuperUsers"]
	}
	fields := s.fields(k)
	if len(fields) == 0 { // read by a rule, or by name for a listener
		return regexp.MustCompile(`\b(?:r\.\w+|get|num|mustInt)\((?:"\w*", )?"` + regexp.QuoteMeta(k.name) + `"`).MatchString(s.lines(k))
	}
	for _, f := range fields {
		if s.others[f] || regexp.MustCompile(`(?:Algorithms|MaxLifetime|CacheFile): b\.`+f+`\b`).MatchString(s.config) {
			return true
		}
	}
	return false
}
