package penstock

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "penstock"

// layers orders the packages: a package may import only packages of a lower
// layer, or of its own layer when it lies inside the importing package's
// folder. A package not listed belongs to the nearest listed parent folder.
// A new package must take a place here, so that its place is reviewed.
var layers = []struct {
	why      string
	packages []string
}{
	{"words both planes share; standard library only", []string{"tenants"}},
	{"what the operating system says of processes and ports, the same for both planes", []string{"internal/process", "internal/ports"}},
	{"the usage record crosses from brokers to billing", []string{"tenants/usage", "controlplane/audit"}},
	{"leaves of the data plane: files, wire, settings, metrics", []string{"dataplane/vfs", "dataplane/protocol", "dataplane/config", "dataplane/telemetry", "dataplane/coordination/zksession", "dataplane/planted"}},
	{"one mechanism each, ignorant of Kafka's roles", []string{"dataplane/recordbatch", "dataplane/purgatory", "dataplane/coordination", "dataplane/supervise"}},
	{"state of one kind", []string{"dataplane/commitlog", "dataplane/metadata", "dataplane/auth", "dataplane/admission", "dataplane/peer", "dataplane/listener", "dataplane/fetchsession", "dataplane/coordinator"}},
	{"one replica's rules", []string{"dataplane/partition"}},
	{"what moves and governs replicas", []string{"dataplane/replication", "dataplane/controller", "dataplane/group", "dataplane/meter", "dataplane/txn", "dataplane/txnverify"}},
	{"requests to domain calls", []string{"dataplane/handler"}},
	{"the wiring", []string{"dataplane/broker"}},
	{"tests of whole clusters", []string{"dataplane/brokertest"}},
	{"the data plane's daemon", []string{"dataplane/cmd"}},

	{"the schema", []string{"migrations"}},
	{"rows and their rules", []string{"tenants/registry", "controlplane/cluster"}},
	{"money", []string{"billing"}},
	{"the world outside Postgres", []string{"controlplane/placement", "controlplane/provision", "controlplane/brokeradmin", "controlplane/token"}},
	{"desired state to real state", []string{"controlplane/reconcile"}},
	{"the door", []string{"controlplane/api"}},
	{"the door's other side", []string{"controlplane/client"}},
	{"the whole service on one machine", []string{"controlplane/dev"}},
	{"the control plane's daemon and tool", []string{"controlplane/cmd"}},

	{"examples to read and run: of this module they import nothing", []string{"docs/examples"}},
}

func layerOf(pkg string) (int, string) {
	for p := pkg; p != "." && p != ""; p = filepath.Dir(p) {
		for i, l := range layers {
			if slices.Contains(l.packages, p) {
				return i, p
			}
		}
	}
	return -1, ""
}

type goPackage struct {
	ImportPath   string
	Dir          string
	Imports      []string
	TestImports  []string
	XTestImports []string
	GoFiles      []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p goPackage
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	return pkgs
}

func TestImportsGoDownward(t *testing.T) {
	for _, p := range listPackages(t) {
		rel := strings.TrimPrefix(p.ImportPath, module+"/")
		if p.ImportPath == module {
			continue
		}
		from, fromRoot := layerOf(rel)
		if from < 0 {
			t.Errorf("%s has no place in the layers of arch_test.go", rel)
			continue
		}
		for _, imp := range p.Imports {
			target, ours := strings.CutPrefix(imp, module+"/")
			if !ours {
				continue
			}
			to, toRoot := layerOf(target)
			if toRoot == fromRoot {
				continue
			}
			if to >= from {
				t.Errorf("%s imports %s: %s (%q) may not depend on %s (%q)", rel, target, fromRoot, layers[from].why, toRoot, layers[to].why)
			}
			if plane(rel) != plane(target) && plane(target) != "tenants" && plane(target) != "internal" {
				t.Errorf("%s imports %s: the planes meet only in tenants and on the wire", rel, target)
			}
		}
	}
}

// plane is the side of the house that a package stands on. tenants/registry
// is rows in Postgres: the control plane's, whatever its folder.
func plane(pkg string) string {
	switch top, _, _ := strings.Cut(pkg, "/"); {
	case strings.HasPrefix(pkg, "tenants/registry"), top == "billing", top == "migrations":
		return "controlplane"
	default:
		return top
	}
}

func goFiles(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(ourFiles(t), func(f string) bool { return !strings.HasSuffix(f, ".go") })
}

// ourFiles are those that are not built, fetched or git's.
func ourFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if d.Type().IsRegular() {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestEveryPackageHasOneDocComment(t *testing.T) {
	docs := map[string][]string{}
	seen := map[string]bool{}
	for _, f := range goFiles(t) {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(f)
		seen[dir] = true
		if hasDoc(parsed) {
			docs[dir] = append(docs[dir], f)
		}
	}
	for dir := range seen {
		if n := len(docs[dir]); n != 1 {
			t.Errorf("%s has %d package comments, want one (%v)", dir, n, docs[dir])
		}
	}
}

func hasDoc(f *ast.File) bool { return f.Doc != nil && strings.TrimSpace(f.Doc.Text()) != "" }

func TestFilesStayReadable(t *testing.T) {
	const limit = 600
	for _, f := range goFiles(t) {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(b, []byte("\n")); n > limit {
			t.Errorf("%s has %d lines, the limit is %d: split it by concern", f, n, limit)
		}
	}
}

// A merge that was committed half done shows in documents, too, which no compiler reads.
func TestNoConflictMarkIsLeft(t *testing.T) {
	mark := regexp.MustCompile(`(?m)^(<{7}|>{7}|\|{7})( |$)`)
	for _, f := range ourFiles(t) {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if at := mark.FindIndex(b); at != nil {
			t.Errorf("%s:%d: left of a merge", f, 1+bytes.Count(b[:at[0]], []byte("\n")))
		}
	}
}

var updateDeps = flag.Bool("update-deps", false, "rewrite the broker's dependency list")

// TestBrokerDependencies keeps what the broker links in review: a new
// dependency shows as a changed line in deps.txt.
func TestBrokerDependencies(t *testing.T) {
	const list = "dataplane/cmd/penstock-broker/deps.txt"
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./dataplane/cmd/penstock-broker").Output()
	if err != nil {
		t.Fatalf("go list -deps: %v", err)
	}
	var got []string
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		if s.Text() != "" {
			got = append(got, s.Text())
		}
	}
	slices.Sort(got)
	text := strings.Join(got, "\n") + "\n"
	for _, banned := range []string{"pgx", "huma", "goose", "cobra", "/controlplane/"} {
		if strings.Contains(text, banned) {
			t.Errorf("the broker links %s: the data plane keeps its own truth and never talks to Postgres", banned)
		}
	}
	if *updateDeps {
		if err := os.WriteFile(list, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("the broker's dependencies changed; review and run: go test -run TestBrokerDependencies -update-deps .\n%s", diff(string(want), text))
	}
}

func diff(old, new string) string {
	var b strings.Builder
	o, n := strings.Fields(old), strings.Fields(new)
	for _, l := range o {
		if !slices.Contains(n, l) {
			fmt.Fprintf(&b, "- %s\n", l)
		}
	}
	for _, l := range n {
		if !slices.Contains(o, l) {
			fmt.Fprintf(&b, "+ %s\n", l)
		}
	}
	return b.String()
}
