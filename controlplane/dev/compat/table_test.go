package compat

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const (
	document = "../../../docs/compatibility.md"
	begin    = "<!-- begin programs: make compat WRITE=1 -->\n"
	end      = "<!-- end programs -->\n"
	notRun   = "not run yet"
	longest  = 300 // bytes of a cell
)

// row is what came of a program: against ours, and against Kafka.
type row struct{ penstock, kafka string }

// table reads the document's rows, by the programs' names, and what stands before and behind the table.
func table(t *testing.T) (rows map[string]row, head, tail string) {
	t.Helper()
	b, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(b), begin)
	body, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the marks of the table of programs", document)
	}
	rows = map[string]row{}
	for line := range strings.Lines(body) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if name := strings.Trim(cells[0], "| `"); len(cells) == 6 && name != "RUN=" {
			rows[name] = row{cells[4], strings.TrimSuffix(cells[5], " |")}
		}
	}
	return rows, head, tail
}

func writeTable(t *testing.T, rows map[string]row, head, tail string) {
	t.Helper()
	var b strings.Builder
	b.WriteString("| RUN= | client | version | what it does | Penstock | Apache Kafka 4.4.0 |\n|---|---|---|---|---|---|\n")
	for _, p := range matrix {
		r := rows[p.name]
		for _, cell := range []*string{&r.penstock, &r.kafka} {
			if *cell == "" {
				*cell = notRun
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", p.name, p.client, p.pin.version(t), p.what, r.penstock, r.kafka)
	}
	if err := os.WriteFile(document, []byte(head+begin+b.String()+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

// cell is what the table says of a run: one line, and no bar, which would end the cell.
func cell(said string, err error) string {
	text := "passed"
	if said != "" {
		text += ": " + said
	}
	if err != nil {
		text = "**failed**: " + err.Error()
	}
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "|", "/")), " ")
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + " …"
	}
	return text
}

// The table is written by a run, and only when that is asked for; this holds it to naming every program with the version that would run now, and no other.
func TestCompatibilityDocumentNamesAllProgramsOfTheMatrix(t *testing.T) {
	b, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	rows, _, _ := table(t)
	for _, p := range matrix {
		if _, ok := rows[p.name]; !ok {
			t.Errorf("%s says nothing of %s", document, p.name)
		}
		if want := fmt.Sprintf("| `%s` | %s | %s | %s | ", p.name, p.client, p.pin.version(t), p.what); !strings.Contains(string(b), want) {
			t.Errorf("%s does not have\n%s", document, want)
		}
		delete(rows, p.name)
	}
	for name := range rows {
		t.Errorf("%s speaks of %s, which is not in the matrix", document, name)
	}
	if t.Failed() {
		t.Log("make compat WRITE=1 writes it")
	}
}

func TestCellIsOneLineOfTheTable(t *testing.T) {
	for _, c := range []struct {
		said string
		err  error
		want string
	}{
		{"", nil, "passed"},
		{"3 records", nil, "passed: 3 records"},
		{"", fmt.Errorf("a | b\n\tc"), "**failed**: a / b c"},
		{strings.Repeat("é", 200), nil, "passed: " + strings.Repeat("é", 146) + " …"},
	} {
		if got := cell(c.said, c.err); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
