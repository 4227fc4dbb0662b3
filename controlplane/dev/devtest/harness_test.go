package devtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/controlplane/dev"
	"penstock/internal/process"
)

var (
	rounds = flag.Int("rounds", 6, "rounds of kill -9 in TestService/kills")
	starts = flag.Int("starts", 4, "how many starts TestService/once ends at random moments")
	seed   = flag.Uint64("seed", 0, "seed of random choices; 0 takes the time")
)

// suite runs the tests between the build of the binaries and the end of the
// shared service.
type suite struct{ m *testing.M }

var (
	work string // everything of this run
	bin  string // the service's binaries
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{m}) }

func (s suite) Run() int {
	flag.Parse()
	var err error
	if work, err = os.MkdirTemp("", "penstock-devtest"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(work)
	bin = filepath.Join(work, "bin")
	_, here, _, _ := runtime.Caller(0)
	build := exec.Command("go", "build", "-o", bin+"/", "./controlplane/cmd/...", "./dataplane/cmd/...")
	build.Dir = filepath.Join(filepath.Dir(here), "..", "..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	code := s.m.Run()
	if shared.f != nil {
		if out, err := run(context.Background(), shared.f, time.Minute, "reset"); err != nil {
			fmt.Fprintf(os.Stderr, "reset: %v\n%s", err, out)
			code = 1
		}
		if left := shared.f.processes(); len(left) > 0 {
			fmt.Fprintf(os.Stderr, "left after reset: %s\n", strings.Join(left, "\n"))
			code = 1
		}
	}
	return code
}

// folder is a state folder.
type folder struct {
	dir string
	pg  string // where PostgreSQL's data lies
}

func newFolder(name string) *folder { return &folder{dir: filepath.Join(work, name)} }

// shared is the service that most tests use.
var shared struct {
	sync.Mutex
	f *folder
}

// service gives the shared service and starts it if it does not run.
func service(t *testing.T) *folder {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.f == nil {
		shared.f = newFolder("shared")
	}
	if _, err := dev.ReadInfo(shared.f.dir); errors.Is(err, dev.ErrNotRunning) {
		if out, err := run(t.Context(), shared.f, 3*time.Minute, "--detach"); err != nil {
			t.Fatalf("start: %v\n%s", err, out)
		}
	}
	f := shared.f
	t.Cleanup(func() {
		if t.Failed() {
			f.logs(t)
		}
	})
	return f
}

// logs shows the ends of all logs.
func (f *folder) logs(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(f.dir, "log", "*.log"))
	more, _ := filepath.Glob(filepath.Join(f.dir, "brokers", "*", "*", "broker.log"))
	for _, file := range append(append(files, more...), filepath.Join(f.dir, "dev.log")) {
		b, _ := os.ReadFile(file)
		if !strings.HasSuffix(file, "zookeeper.log") { // 40 lines a start of logging libraries' complaints
			t.Logf("%s:\n%s", file, b[max(0, len(b)-3000):])
		}
	}
}

// command is the tool on a state folder, not yet started.
func command(ctx context.Context, f *folder, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, filepath.Join(bin, "penstock"), append([]string{"dev"}, append(args, "--dir", f.dir)...)...)
	// Whatever comes of it can be told by its environment.
	c.Env = append(os.Environ(), "PENSTOCK_DEVTEST="+f.dir+"/")
	c.WaitDelay = 5 * time.Second
	return c
}

// run runs the tool and gives all it says.
func run(ctx context.Context, f *folder, within time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	out, err := command(ctx, f, args...).CombinedOutput()
	f.note()
	return string(out), err
}

// must runs the tool, which must succeed.
func (f *folder) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := run(t.Context(), f, 2*time.Minute, args...)
	if err != nil {
		t.Fatalf("penstock dev %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// note remembers where PostgreSQL's data lies, for when the state is gone.
func (f *folder) note() {
	var s struct {
		Postgres struct {
			Dir string `json:"dir"`
		} `json:"postgres"`
	}
	if b, err := os.ReadFile(filepath.Join(f.dir, "state.json")); err == nil && json.Unmarshal(b, &s) == nil && s.Postgres.Dir != "" {
		f.pg = s.Postgres.Dir
	}
}

func (f *folder) info(t *testing.T) *dev.Info {
	t.Helper()
	in, err := dev.ReadInfo(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// processes lists what runs and has to do with the folder: by command line,
// environment or working folder.
func (f *folder) processes() []string {
	f.note()
	var out []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		cmdline, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		environ, _ := os.ReadFile(filepath.Join(d, "environ"))
		cwd, _ := os.Readlink(filepath.Join(d, "cwd"))
		all := string(cmdline) + "\x00" + string(environ) + "\x00" + cwd + "/"
		if !strings.Contains(all, f.dir+"/") && !strings.HasSuffix(strings.TrimRight(string(cmdline), "\x00"), f.dir) &&
			(f.pg == "" || !strings.Contains(all, f.pg)) {
			continue
		}
		var pid int
		_, _ = fmt.Sscan(filepath.Base(d), &pid)
		if id, err := process.Lookup(pid); err == nil && id.Alive() {
			out = append(out, fmt.Sprint(pid, " ", string(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '}))))
		}
	}
	return out
}

// running counts the processes whose command line holds all the words.
func running(words ...string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
next:
	for _, file := range files {
		b, _ := os.ReadFile(file)
		for _, w := range words {
			if !bytes.Contains(b, []byte(w)) {
				continue next
			}
		}
		var pid int
		_, _ = fmt.Sscan(filepath.Base(filepath.Dir(file)), &pid)
		if id, err := process.Lookup(pid); err == nil && id.Alive() {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (f *folder) nothingLeft(t *testing.T, within time.Duration, after string) {
	t.Helper()
	began := time.Now()
	for {
		left := f.processes()
		if len(left) == 0 {
			return
		}
		if time.Since(began) >= within {
			t.Fatalf("left %v after %s:\n%s", within, after, strings.Join(left, "\n"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// await polls what other processes do.
func await(t *testing.T, within time.Duration, what string, try func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for {
		one, done := context.WithTimeout(ctx, 5*time.Second)
		err := try(one)
		done()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("never within %v: %s: %v", within, what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// healthy waits until every part of the service is.
func (f *folder) healthy(t *testing.T, within time.Duration) {
	t.Helper()
	await(t, within, "all is healthy", func(ctx context.Context) error {
		s, err := dev.Look(ctx, f.dir)
		if err == nil && !s.Healthy {
			err = fmt.Errorf("%+v", s.Parts)
		}
		return err
	})
}

func kill9(t *testing.T, pid int) {
	t.Helper()
	if pid == 0 {
		return // between two lives
	}
	id, err := process.Lookup(pid)
	if err == nil {
		err = id.Signal(syscall.SIGKILL)
	}
	if err != nil && !errors.Is(err, process.ErrGone) {
		t.Fatal(err)
	}
}

func random(t *testing.T) *rand.Rand {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d", s)
	return rand.New(rand.NewPCG(s, s))
}
