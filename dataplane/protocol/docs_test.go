package protocol

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of docs/compatibility.md anew")

// The document's table of versions is the table that clients are told.
func TestCompatibilityDocumentShowsTheVersionTable(t *testing.T) {
	const file = "../../docs/compatibility.md"
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- begin versions: go generate ./dataplane/protocol -->\n", "<!-- end versions -->\n"
	head, rest, ok := strings.Cut(string(old), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the marks of the table of versions", file)
	}
	var b strings.Builder
	b.WriteString("| key | API | served | who asks |\n|---|---|---|---|\n")
	for _, a := range APIs() {
		served, who := fmt.Sprintf("%d to %d", a.Min, a.Max), "clients"
		if a.AdvertisedMin != a.Min {
			served += fmt.Sprintf(" (told: from %d)", a.AdvertisedMin)
		}
		if a.Has(InterBroker) {
			who = "brokers"
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s |\n", a.Key, a.Name, served, who)
	}
	text := head + begin + b.String() + end + tail
	if text == string(old) {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the code says; run `go generate ./dataplane/protocol` and look at the difference", file)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
