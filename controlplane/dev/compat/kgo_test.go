package compat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// kgoRecords is how many records go through each chain; the suite's own default is 500,000.
const kgoRecords = "20000"

// kgo runs tests of franz-go's own suite against the brokers: those that match run, and not skip. The module's source comes from the proxy. Its chaos
// mode kills the connections of the clients in its chain of groups; the same dialer is given to those of its chain of transactions here.
func kgo(run, skip string, env ...string) func(*rig) error {
	return func(r *rig) error {
		binary := filepath.Join(shared.dir, "kgo.test")
		dir := filepath.Join(shared.dir, "franz-go")
		if err := r.once("kgo", func() error { return buildKgo(r, dir, binary) }); err != nil {
			return err
		}
		env := append([]string{"KGO_SEEDS=" + r.bootstrap, "KGO_TEST_RF=3", "KGO_TEST_RECORDS=" + kgoRecords}, env...)
		argv := []string{binary, "-test.v", "-test.timeout", perProgram.String(), "-test.run", run}
		if skip != "" {
			argv = append(argv, "-test.skip", skip)
		}
		err := r.command(filepath.Join(dir, "pkg", "kgo"), env, argv...)
		out, readErr := os.ReadFile(r.log.Name())
		if readErr != nil {
			return readErr
		}
		passed, failed, skipped := outcome(out)
		r.said = fmt.Sprintf("%d tests", passed)
		if len(skipped) > 0 {
			r.said += "; skipped by itself: " + strings.Join(skipped, ", ")
		}
		switch {
		case len(failed) > 0:
			return fmt.Errorf("%s; %d others passed", strings.Join(failed, ", "), passed)
		case err != nil:
			return err
		case passed == 0:
			return errors.New("no test has run")
		}
		return nil
	}
}

func buildKgo(r *rig, dir, binary string) error {
	module := "github.com/twmb/franz-go@v" + kgoPin.version(r.t)
	cmd := exec.CommandContext(r.ctx, "go", "mod", "download", "-json", module)
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go mod download %s: %w\n%s", module, err, out)
	}
	var got struct{ Dir string }
	if err := json.Unmarshal(out, &got); err != nil {
		return err
	}
	if err := os.CopyFS(dir, os.DirFS(got.Dir)); err != nil {
		return err
	}
	helpers := filepath.Join(dir, "pkg", "kgo", "helpers_test.go")
	source, err := os.ReadFile(helpers)
	if err != nil {
		return err
	}
	const all = "func testClientOpts(opts ...Opt) []Opt {\n"
	if bytes.Count(source, []byte(all)) != 1 {
		return fmt.Errorf("%s has no %q: where does it make its clients?", helpers, all)
	}
	source = bytes.Replace(source, []byte(all), []byte(all+"\tif testChaos {\n\t\topts = append(opts, Dialer(chaosDialer{}.DialContext))\n\t}\n"), 1)
	// What comes from the module cache may not be written.
	if err := errors.Join(os.Chmod(filepath.Dir(helpers), 0o755), os.Chmod(helpers, 0o644), os.WriteFile(helpers, source, 0o644)); err != nil {
		return err
	}
	// -mod=mod: the source's go.sum lacks what only its users' builds ask for.
	return r.command(dir, nil, "go", "test", "-mod=mod", "-vet=off", "-c", "-o", binary, "./pkg/kgo")
}

var verdict = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+)`)

// outcome counts what passed, subtests too, and names the rest; of a failed test with subtests only these.
func outcome(out []byte) (passed int, failed, skipped []string) {
	for _, m := range verdict.FindAllSubmatch(out, -1) {
		name := string(m[2])
		switch string(m[1]) {
		case "PASS":
			passed++
		case "FAIL":
			if len(failed) > 0 && strings.HasPrefix(failed[len(failed)-1], name+"/") {
				continue
			}
			failed = append(failed, name)
		case "SKIP":
			skipped = append(skipped, name)
		}
	}
	return passed, failed, skipped
}
