package api

import (
	"os"
	"slices"
	"strings"
	"testing"

	"penstock/controlplane/token"
)

// Every call of the OpenAPI document is in docs/api.md, and no other.
func TestDocumentNamesEveryCall(t *testing.T) {
	doc, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	a := New(Config{Tokens: token.New(token.Config{})})
	defer a.Close()
	var want, have []string
	for path, item := range a.OpenAPI().Paths {
		for method, op := range map[string]bool{
			"GET": item.Get != nil, "POST": item.Post != nil, "PUT": item.Put != nil, "PATCH": item.Patch != nil, "DELETE": item.Delete != nil,
		} {
			if op {
				want = append(want, method+" "+path)
			}
		}
	}
	for line := range strings.Lines(string(doc)) {
		if cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), " | "); ok && strings.HasPrefix(line, "| `") {
			for call := range strings.SplitSeq(cell, ", ") {
				if call = strings.Trim(call, "`"); strings.Contains(call, " /v1/") {
					have = append(have, call)
				}
			}
		}
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) {
		missing := slices.DeleteFunc(slices.Clone(want), func(s string) bool { return slices.Contains(have, s) })
		extra := slices.DeleteFunc(slices.Clone(have), func(s string) bool { return slices.Contains(want, s) })
		t.Errorf("docs/api.md lacks %q and has %q too many", missing, extra)
	}
}
