// Package pgtest gives tests a real PostgreSQL: one server a test binary, on a
// Unix socket in a temporary folder, and a freshly migrated database a test,
// copied from a template. The owner of the databases is no superuser, as in
// production.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"penstock/migrations"
)

const (
	owner    = "penstock_owner"
	template = "penstock_template"
)

// DB is one test's own database.
type DB struct {
	Name     string
	OwnerURL string // the owner: for migrations.Up and the daemon
	AdminURL string // a superuser, whom row security does not bind: for looking behind the scenes
}

var shared struct {
	sync.Mutex
	server *server
	err    error
	n      int
}

// Main wraps m so that the server is stopped after the tests:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }
func Main(m *testing.M) interface{ Run() int } { return runner{m} }

type runner struct{ m *testing.M }

func (r runner) Run() int {
	code := r.m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		shared.server.stop()
	}
	return code
}

// New makes a database for this test; it goes with the test. The test is
// skipped where PostgreSQL's programs are not installed.
func New(t testing.TB) *DB {
	t.Helper()
	bin, err := binDir()
	if err != nil {
		t.Skip(err)
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = start(bin)
	}
	if shared.err != nil {
		t.Fatalf("PostgreSQL for tests: %v", shared.err)
	}
	s := shared.server
	shared.n++
	name := fmt.Sprintf("test_%d", shared.n)
	s.exec(t, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s OWNER %s", name, template, owner))
	t.Cleanup(func() { s.exec(t, fmt.Sprintf("DROP DATABASE %s WITH (FORCE)", name)) })
	return &DB{Name: name, OwnerURL: s.url(owner, name), AdminURL: s.url("postgres", name)}
}

// Empty is New without the migrations.
func Empty(t testing.TB) *DB {
	t.Helper()
	db := New(t)
	s := shared.server
	s.exec(t, fmt.Sprintf("DROP DATABASE %s WITH (FORCE)", db.Name))
	s.exec(t, fmt.Sprintf("CREATE DATABASE %s TEMPLATE template0 OWNER %s", db.Name, owner))
	return db
}

// Admin opens a superuser's connection for the length of the test.
func (db *DB) Admin(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), db.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

type server struct {
	dir  string
	cmd  *exec.Cmd
	done chan struct{}
}

// binDir finds the newest installed version.
func binDir() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		if p, err := exec.LookPath("postgres"); err == nil {
			return filepath.Dir(p), nil
		}
		return "", errors.New("PostgreSQL is not installed (apt-get install postgresql)")
	}
	sort.Slice(found, func(i, j int) bool { return version(found[i]) < version(found[j]) })
	return filepath.Dir(found[len(found)-1]), nil
}

func version(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

func start(bin string) (*server, error) {
	dir, err := os.MkdirTemp("", "pgtest-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, done: make(chan struct{})}
	attr, err := s.credentials()
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	data := filepath.Join(dir, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust",
		"-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = attr, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	logFile, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	// What is lost in a crash does not matter here, and only here: no fsync.
	s.cmd = exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=",
		"-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off",
		"-c", "max_connections=200", "-c", "shared_buffers=64MB", "-c", "autovacuum=off")
	s.cmd.Stdout, s.cmd.Stderr, s.cmd.Dir = logFile, logFile, dir
	s.cmd.SysProcAttr = attr
	if err := s.run(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	if err := s.prepare(); err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "log"))
		s.stop()
		return nil, fmt.Errorf("%w\n%s", err, log)
	}
	return s, nil
}

// credentials makes the children run as the user postgres when we are root,
// since PostgreSQL refuses root, and die with us in any case.
func (s *server) credentials() (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		return attr, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(s.dir, uid, gid); err != nil {
		return nil, err
	}
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr, nil
}

// run starts the server from a thread that lives as long as it does: the
// death signal comes when the thread that forked ends, not the process.
func (s *server) run() error {
	started := make(chan error, 1)
	go func() {
		defer close(s.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			s.cmd.Wait()
		}
	}()
	return <-started
}

func (s *server) prepare() error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var conn *pgx.Conn
	var err error
	for {
		if conn, err = pgx.Connect(ctx, s.url("postgres", "postgres")); err == nil {
			break
		}
		select {
		case <-s.done:
			return fmt.Errorf("it ended at once: %w", err)
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
	defer conn.Close(ctx)
	for _, q := range []string{
		"CREATE ROLE " + owner + " LOGIN CREATEROLE",
		"CREATE DATABASE " + template + " TEMPLATE template0 OWNER " + owner,
	} {
		if _, err := conn.Exec(ctx, q); err != nil {
			return err
		}
	}
	return migrations.Up(ctx, s.url(owner, template))
}

func (s *server) url(user, db string) string {
	return fmt.Sprintf("postgres://%s@/%s?host=%s", user, db, strings.ReplaceAll(s.dir, "/", "%2F"))
}

func (s *server) exec(t testing.TB, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url("postgres", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (s *server) stop() {
	s.cmd.Process.Signal(syscall.SIGQUIT) // immediate shutdown: nothing is worth keeping
	<-s.done
	os.RemoveAll(s.dir)
}
