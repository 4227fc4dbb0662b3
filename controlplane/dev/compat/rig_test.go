package compat

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/controlplane/dev"
	"penstock/dataplane/brokertest/apache"
	"penstock/internal/process"
)

var (
	play  = flag.Bool("matrix", false, "run the matrix, as `make compat` does")
	only  = flag.String("matrix.run", "", "names of programs to run, separated by commas; all if empty")
	peer  = flag.String("matrix.peer", "penstock", "whose brokers: penstock or kafka")
	where = flag.String("matrix.bootstrap", "", "brokers that run already, to use instead of some of this run's own")
	write = flag.Bool("matrix.write", false, "write what came of it into docs/compatibility.md")
	logs  = flag.String("matrix.logs", "", "where the programs' output goes")
)

// perProgram is more than any of them needs on a busy machine.
const perProgram = 10 * time.Minute

// rig is what a program gets: brokers, a name that is nobody else's, and a place for its output.
type rig struct {
	t         *testing.T
	ctx       context.Context
	bootstrap string
	name      string
	log       *os.File
	said      string // its last line, or what its runner makes of it
}

// shared is where things are built, once for all programs.
var shared struct {
	dir  string
	made map[string]error
}

func TestMatrix(t *testing.T) {
	if !*play {
		t.Skip("make compat runs it")
	}
	var names []string
	for _, p := range matrix {
		names = append(names, p.name)
	}
	var wanted []string
	if *only != "" {
		wanted = strings.Split(*only, ",")
	}
	for _, w := range wanted {
		if !slices.Contains(names, w) {
			t.Fatalf("no program %q; there are: %s", w, strings.Join(names, " "))
		}
	}
	shared.dir, shared.made = t.TempDir(), map[string]error{}
	if *logs == "" {
		*logs = t.TempDir()
	}
	if err := os.MkdirAll(*logs, 0o755); err != nil {
		t.Fatal(err)
	}
	bootstrap := brokers(t)
	rows, head, tail := table(t)
	for _, p := range matrix {
		if wanted != nil && !slices.Contains(wanted, p.name) {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			said, err := runOne(t, p, bootstrap)
			r := rows[p.name]
			if *peer == "kafka" {
				r.kafka = cell(said, err)
			} else {
				r.penstock = cell(said, err)
			}
			rows[p.name] = r
			if *write { // after each: a run that is broken off has shown something, too
				writeTable(t, rows, head, tail)
			}
			if err != nil {
				t.Error(err)
			}
			t.Log(said)
		})
	}
}

func runOne(t *testing.T, p program, bootstrap string) (string, error) {
	log, err := os.Create(filepath.Join(*logs, p.name+"."+*peer+".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(t.Context(), perProgram)
	defer cancel()
	r := &rig{t: t, ctx: ctx, bootstrap: bootstrap, name: fmt.Sprintf("%s-%d", p.name, time.Now().UnixMilli()), log: log}
	err = p.run(r)
	if err != nil {
		err = fmt.Errorf("%w (%s)", err, filepath.Base(log.Name()))
	}
	return r.said, err
}

// brokers starts three of them, which end with the test.
func brokers(t *testing.T) (bootstrap string) {
	t.Helper()
	if *where != "" {
		return *where
	}
	switch *peer {
	case "kafka":
		all, err := apache.StartCluster(t.Context(), t.TempDir(), 3, "default.replication.factor=3", "num.partitions=4", "transaction.state.log.min.isr=2")
		if err != nil {
			t.Fatal(err)
		}
		var addrs []string
		for _, b := range all {
			addrs = append(addrs, b.Addr)
		}
		t.Cleanup(func() {
			for _, b := range all { // a quorum does not end in order one by one
				b.Kill()
				_ = b.Stop()
			}
		})
		return strings.Join(addrs, ",")
	case "penstock":
		dir := filepath.Join(t.TempDir(), "dev")
		bin := filepath.Join(shared.dir, "bin")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", bin+"/", "./controlplane/cmd/...", "./dataplane/cmd/...")
		build.Dir = "../../.."
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
		tool := func(ctx context.Context, args ...string) {
			cmd := exec.CommandContext(ctx, filepath.Join(bin, "penstock"), append([]string{"dev", "--dir", dir}, args...)...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("penstock dev %s: %v\n%s", strings.Join(args, " "), err, out)
			}
		}
		// Lifted already when the cleanup runs: the test's own context.
		t.Cleanup(func() { tool(context.Background(), "reset") })
		tool(t.Context(), "--bare", "--brokers", "3", "--detach")
		in, err := dev.ReadInfo(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { keepBrokerLogs(t, dir) })
		return in.Cluster.Bootstrap
	default:
		t.Fatalf("-matrix.peer is penstock or kafka, not %q", *peer)
		return ""
	}
}

// keepBrokerLogs copies what the brokers said beside the programs' output.
func keepBrokerLogs(t *testing.T, dir string) {
	files, _ := filepath.Glob(filepath.Join(dir, "brokers", "*", "*", "broker.log"))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil {
			err = os.WriteFile(filepath.Join(*logs, "broker-"+filepath.Base(filepath.Dir(f))+".log"), b, 0o644)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// once does what several programs need before they can run.
func (r *rig) once(what string, do func() error) error {
	if err, done := shared.made[what]; done {
		return err
	}
	err := do()
	shared.made[what] = err
	return err
}

// command runs to its end, its output in the log.
func (r *rig) command(dir string, env []string, argv ...string) error {
	cmd := exec.CommandContext(r.ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, r.log, r.log
	cmd.Env = append(os.Environ(), env...)
	return r.ended(cmd.Run(), argv)
}

// program runs one that checks itself: it gets its brokers and its name by the environment, and says in its last line what it has seen.
func (r *rig) program(dir string, argv ...string) error {
	fmt.Fprintf(r.log, "$ BOOTSTRAP=%s NAME=%s %s\n", r.bootstrap, r.name, strings.Join(argv, " "))
	out, err := os.Create(filepath.Join(r.t.TempDir(), "out"))
	if err != nil {
		return err
	}
	defer out.Close()
	child, err := process.Start(process.Spec{
		Path: argv[0], Args: argv[1:], Dir: dir, Stdout: out, Stderr: r.log, DeathSignal: 9,
		Env: append(os.Environ(), "BOOTSTRAP="+r.bootstrap, "NAME="+r.name),
	})
	if err != nil {
		return err
	}
	select {
	case <-child.Done():
	case <-r.ctx.Done():
		_ = child.ID.Kill(context.WithoutCancel(r.ctx))
		<-child.Done()
	}
	said, err := os.ReadFile(out.Name())
	if err != nil {
		return err
	}
	if _, err := r.log.Write(said); err != nil {
		return err
	}
	if err := r.ended(child.Err(), argv); err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	if r.said = lines[len(lines)-1]; r.said == "" {
		return errors.New("it has said nothing of what it has seen")
	}
	return nil
}

// ended gives an error the last line of the output that says what was wrong.
func (r *rig) ended(err error, argv []string) error {
	if err == nil {
		return nil
	}
	if r.ctx.Err() != nil {
		return fmt.Errorf("not over after %v", perProgram)
	}
	b, _ := os.ReadFile(r.log.Name())
	why := ""
	for line := range bytes.Lines(b) {
		for _, word := range []string{"Error", "Exception", "error:", "want", "not within", "panic:", "FAIL", "kafka server"} {
			if bytes.Contains(line, []byte(word)) && !bytes.HasPrefix(bytes.TrimSpace(line), []byte("at ")) {
				why = strings.TrimSpace(string(line))
			}
		}
	}
	return fmt.Errorf("%s: %w: %s", filepath.Base(argv[0]), err, why)
}
