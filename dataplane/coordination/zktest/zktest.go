// Package zktest runs a real ZooKeeper for tests: one server for a test binary,
// a chroot of its own for each test, and a proxy that cuts connections and ends
// sessions on demand, so that no test waits for a session to time out.
package zktest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"penstock/internal/ports"
)

const jars = "/usr/share/java"

// classPath names only what a standalone server loads: a wildcard over Debian's
// folder makes the start several times slower.
var classPath = []string{
	"zookeeper.jar", "zookeeper-jute.jar", "slf4j-api.jar", "slf4j-simple.jar", "metrics-core.jar",
	"snappy-java.jar", "netty-handler.jar", "netty-common.jar",
}

// Server is a ZooKeeper on the loopback address, standalone or one of an ensemble.
type Server struct {
	dir   string
	ports ports.Pool
	port  int
	cmd   *exec.Cmd
	log   *os.File

	members string // the ensemble's lines of the configuration, of one that is in an ensemble
}

// Start runs a server with an empty data folder.
func Start() (*Server, error) {
	if err := installed(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "zktest-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir}
	if s.port, err = s.ports.Any(); err == nil {
		err = s.Up()
	}
	if err != nil {
		s.ports.Release()
		os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

// StartEnsemble runs that many servers as one ensemble.
func StartEnsemble(n int) ([]*Server, error) {
	if n == 1 {
		s, err := Start()
		return []*Server{s}, err
	}
	if err := installed(); err != nil {
		return nil, err
	}
	all := make([]*Server, n)
	stop := func() {
		for _, s := range all {
			if s != nil {
				s.Stop()
			}
		}
	}
	members := "initLimit=50\nsyncLimit=5\n"
	for i := range all {
		dir, err := os.MkdirTemp("", "zktest-")
		if err != nil {
			stop()
			return nil, err
		}
		s := &Server{dir: dir}
		all[i] = s
		var peers [2]int
		for j := range peers {
			if peers[j], err = s.ports.Any(); err != nil {
				stop()
				return nil, err
			}
		}
		if s.port, err = s.ports.Any(); err == nil {
			err = os.Mkdir(filepath.Join(dir, "data"), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "data", "myid"), fmt.Appendln(nil, i+1), 0o600)
		}
		if err != nil {
			stop()
			return nil, err
		}
		members += fmt.Sprintf("server.%d=127.0.0.1:%d:%d\n", i+1, peers[0], peers[1])
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i, s := range all {
		s.members = members
		wg.Go(func() { errs[i] = s.Up() }) // none serves before most are there
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		stop()
		return nil, err
	}
	return all, nil
}

// Freeze stops the server's process without ending it, until Thaw.
func (s *Server) Freeze() { s.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (s *Server) Thaw() { s.cmd.Process.Signal(syscall.SIGCONT) }

func installed() error {
	if _, err := exec.LookPath("java"); err != nil {
		return errors.New("zktest: java is missing; install it: apt-get install zookeeper default-jre-headless")
	}
	for _, j := range classPath {
		if _, err := os.Stat(filepath.Join(jars, j)); err != nil {
			return fmt.Errorf("zktest: %s is missing; install Debian's package: apt-get install zookeeper (%w)", j, err)
		}
	}
	return nil
}

// Up starts the server again on the same port and data after Down or Kill.
func (s *Server) Up() error {
	conf := filepath.Join(s.dir, "zoo.cfg")
	text := fmt.Sprintf(`tickTime=200
dataDir=%s
clientPort=%d
clientPortAddress=127.0.0.1
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
minSessionTimeout=200
maxSessionTimeout=120000
%s`, filepath.Join(s.dir, "data"), s.port, s.members)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	cp := make([]string, len(classPath))
	for i, j := range classPath {
		cp[i] = filepath.Join(jars, j)
	}
	cmd := exec.Command("java", "-Xmx64m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dzookeeper.jmx.log4j.disable=true",
		"-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024",
		"-cp", strings.Join(cp, ":"), "org.apache.zookeeper.server.quorum.QuorumPeerMain", conf)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		log.Close()
		return err
	}
	s.cmd, s.log = cmd, log
	exited := make(chan struct{})
	go func() { cmd.Wait(); close(exited) }()
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		select {
		case <-exited:
			tail, _ := os.ReadFile(log.Name())
			log.Close()
			s.cmd = nil
			return fmt.Errorf("zktest: ZooKeeper ended at once: %s", bytes.TrimSpace(tail))
		default:
		}
		// "ruok" is answered before the server serves.
		if out, err := s.Command("srvr"); err == nil && strings.HasPrefix(out, "Zookeeper version") {
			return nil
		}
		time.Sleep(25 * time.Millisecond) // the process boundary: nothing to wait on
	}
	s.Kill()
	return errors.New("zktest: ZooKeeper does not answer after 30 s")
}

// Command sends a four letter word and returns the answer.
func (s *Server) Command(word string) (string, error) {
	c, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second)) // one that is just starting may never answer
	if _, err := io.WriteString(c, word); err != nil {
		return "", err
	}
	out, err := io.ReadAll(c)
	return string(out), err
}

// Addr is host:port.
func (s *Server) Addr() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

// Down ends the process cleanly and keeps its data.
func (s *Server) Down() { s.end(syscall.SIGTERM) }

// Kill ends the process with SIGKILL and keeps its data.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

func (s *Server) end(sig syscall.Signal) {
	if s.cmd == nil {
		return
	}
	s.cmd.Process.Signal(sig)
	// Up's goroutine reaps the process; a signal fails once it has.
	for i := 0; s.cmd.Process.Signal(syscall.Signal(0)) == nil; i++ {
		if i == 400 {
			s.cmd.Process.Kill()
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.log.Close()
	s.cmd = nil
}

// Stop ends the server and removes its data.
func (s *Server) Stop() {
	s.Down()
	s.ports.Release()
	os.RemoveAll(s.dir)
}

var (
	shared     *Server
	sharedErr  error
	sharedOnce sync.Once
	chroots    atomic.Int64
)

// Main is a TestMain's body: it runs the tests and stops the shared server.
// check, if not nil, runs after that (goleak's Find) and fails the run.
func Main(m *testing.M, check func() error) {
	code := m.Run()
	if shared != nil {
		shared.Stop()
	}
	if check != nil && code == 0 {
		if err := check(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Shared is the server of this test binary, started at its first use.
func Shared(t testing.TB) *Server {
	t.Helper()
	sharedOnce.Do(func() { shared, sharedErr = Start() })
	if sharedErr != nil {
		t.Fatal(sharedErr)
	}
	return shared
}

// Chroot returns a connect string with a chroot that no other test has.
func Chroot(t testing.TB) string {
	t.Helper()
	return Shared(t).Addr() + Path()
}

// Path is a fresh chroot.
func Path() string { return fmt.Sprintf("/t/%d", chroots.Add(1)) }
