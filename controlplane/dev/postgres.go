package dev

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"penstock/internal/process"
)

// Names inside PostgreSQL. The owner owns the database and its schema but is no
// superuser: row security binds it as well.
const (
	pgAdmin    = "postgres"
	pgOwner    = "penstock"
	pgDatabase = "penstock"
)

// postgres is a PostgreSQL of the service's own.
type postgres struct {
	bin        string // folder of its programs
	dir        string // holds data/
	port       int
	password   string
	credential *syscall.Credential // who it runs as; nil is the caller
}

// postgresBin finds the newest server's programs: Debian keeps them by version.
func postgresBin() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	slices.SortFunc(found, func(a, b string) int { return pgMajor(a) - pgMajor(b) })
	if len(found) > 0 {
		return filepath.Dir(found[len(found)-1]), nil
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("found no PostgreSQL; on Debian: apt-get install postgresql")
}

func pgMajor(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

// placePostgres chooses where the data lies: in the state folder, or, as root,
// which PostgreSQL refuses to run as, under the home of the package's user,
// since that user cannot enter a folder in root's home.
func placePostgres(f folder) (string, error) {
	if os.Geteuid() != 0 {
		return f.path("postgres"), nil
	}
	if _, err := pgUser(); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(f))
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, strings.Trim(string(f), "/"))
	if len(name) > 60 {
		name = name[len(name)-60:]
	}
	return "/var/lib/postgresql/penstock-" + name + "-" + hex.EncodeToString(sum[:4]), nil
}

func pgUser() (*syscall.Credential, error) {
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root and its package's user is missing: %w", err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// newPostgres prepares one; the database cluster is made at its first start.
func newPostgres(s pgState, port int) (*postgres, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	p := &postgres{bin: bin, dir: s.Dir, port: port, password: s.Password}
	if os.Geteuid() == 0 {
		if p.credential, err = pgUser(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *postgres) data() string { return filepath.Join(p.dir, "data") }

// url logs in as user; database owner and superuser have the same password.
func (p *postgres) url(user, database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(user, p.password), Host: loopback(p.port), Path: "/" + database,
		RawQuery: "sslmode=disable"}
	return u.String()
}

// init makes the database cluster unless it is there. It is made beside its
// place and moved there when whole, so that a kill in the middle leaves nothing
// that looks done.
func (p *postgres) init(ctx context.Context, log *os.File) error {
	if err := p.dropOrphan(); err != nil {
		return err
	}
	if _, err := os.Stat(p.data()); err == nil {
		return nil
	}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	fresh := filepath.Join(p.dir, "data.new")
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	pwfile := filepath.Join(p.dir, "password."+rand.Text())
	if err := os.WriteFile(pwfile, []byte(p.password+"\n"), 0o600); err != nil {
		return err
	}
	defer os.Remove(pwfile)
	if p.credential != nil {
		for _, path := range []string{p.dir, pwfile} {
			if err := os.Chown(path, int(p.credential.Uid), int(p.credential.Gid)); err != nil {
				return err
			}
		}
	}
	c, err := process.Start(process.Spec{
		Path: filepath.Join(p.bin, "initdb"),
		Args: []string{"-D", fresh, "-U", pgAdmin, "--pwfile", pwfile, "-A", "scram-sha-256", "-E", "UTF8", "--locale=C.UTF-8"},
		Dir:  "/", Stdout: log, Stderr: log,
		Credential: p.credential, DeathSignal: syscall.SIGKILL, Session: true,
	})
	if err != nil {
		return err
	}
	select {
	case <-c.Done():
	case <-ctx.Done():
		_ = c.ID.Signal(syscall.SIGKILL)
		<-c.Done()
		return ctx.Err()
	}
	if c.Err() != nil {
		return fmt.Errorf("initdb: %s, see %s", c.Describe(), log.Name())
	}
	if err := os.WriteFile(p.belongs(), []byte(p.fingerprint()), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, p.data())
}

// belongs is the file that tells whose data it is: under /var/lib it outlives a
// state folder that somebody has simply removed.
func (p *postgres) belongs() string { return filepath.Join(p.dir, "belongs") }

func (p *postgres) fingerprint() string {
	sum := sha256.Sum256([]byte("penstock dev postgres " + p.password))
	return hex.EncodeToString(sum[:])
}

// dropOrphan removes data that was made with another password: its state folder
// is gone, and with it the password and every key, so that nobody can use it.
func (p *postgres) dropOrphan() error {
	have, err := os.ReadFile(p.belongs())
	if errors.Is(err, os.ErrNotExist) || err == nil && string(have) == p.fingerprint() {
		return nil
	}
	if err != nil {
		return err
	}
	if pid, err := os.ReadFile(filepath.Join(p.data(), "postmaster.pid")); err == nil {
		line, _, _ := strings.Cut(string(pid), "\n")
		if n, err := strconv.Atoi(line); err == nil && syscall.Kill(n, 0) == nil {
			return fmt.Errorf("PostgreSQL of an earlier service, whose state folder was removed, still runs on %s with pid %d: end it first", p.dir, n)
		}
	}
	return os.RemoveAll(p.dir)
}

// start starts the server: loopback only, no socket in the file system, and
// small, since it holds a few thousand rows.
func (p *postgres) start(log *os.File) (*process.Child, error) {
	return process.Start(process.Spec{
		Path: filepath.Join(p.bin, "postgres"),
		Args: []string{"-D", p.data(), "-p", strconv.Itoa(p.port),
			"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
			"-c", "shared_buffers=32MB", "-c", "max_connections=100", "-c", "timezone=UTC"},
		Dir: "/", Stdout: log, Stderr: log, Credential: p.credential, Session: true,
		// An immediate shutdown: the postmaster takes its own children with it.
		DeathSignal: syscall.SIGQUIT,
	})
}

// ready waits until the server answers and makes role and database.
func (p *postgres) ready(ctx context.Context) error {
	var conn *pgx.Conn
	err := until(ctx, "PostgreSQL", func(ctx context.Context) (err error) {
		conn, err = pgx.Connect(ctx, p.url(pgAdmin, "postgres"))
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var role, database bool
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1), EXISTS (SELECT FROM pg_database WHERE datname = $2)`,
		pgOwner, pgDatabase).Scan(&role, &database)
	if err == nil && !role {
		// The password is of letters and digits: rand.Text gave it.
		_, err = conn.Exec(ctx, `CREATE ROLE `+pgOwner+` LOGIN CREATEROLE PASSWORD '`+p.password+`'`)
	}
	if err == nil && !database {
		_, err = conn.Exec(ctx, `CREATE DATABASE `+pgDatabase+` OWNER `+pgOwner)
	}
	if err != nil {
		return fmt.Errorf("prepare the database: %w", err)
	}
	return nil
}

// until repeats try until it succeeds; each try has at most two seconds.
func until(ctx context.Context, what string, try func(context.Context) error) error {
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		one, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := try(one)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w (last: %v)", what, context.Cause(ctx), err)
		}
	}
}
