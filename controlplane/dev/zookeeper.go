package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"penstock/internal/process"
)

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// zooKeeperJar is where Debian's package puts it.
const zooKeeperJar = "/usr/share/java/zookeeper.jar"

// zooKeeper is a standalone ZooKeeper of the service's own.
type zooKeeper struct {
	dir  string
	port int
	java string
}

func newZooKeeper(dir string, port int) (*zooKeeper, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, errors.New("found no java; on Debian: apt-get install zookeeper")
	}
	if _, err := os.Stat(zooKeeperJar); err != nil {
		return nil, errors.New("found no ZooKeeper; on Debian: apt-get install zookeeper")
	}
	return &zooKeeper{dir: dir, port: port, java: java}, nil
}

// start writes the settings anew, since the port may have changed, and starts.
func (z *zooKeeper) start(log *os.File) (*process.Child, error) {
	data := filepath.Join(z.dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, err
	}
	// A short tick lets sessions time out in seconds rather than in tens; the
	// longest session stays Kafka's usual.
	cfg := fmt.Sprintf(`tickTime=500
dataDir=%s
clientPort=%d
clientPortAddress=127.0.0.1
maxClientCnxns=0
maxSessionTimeout=60000
admin.enableServer=false
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
4lw.commands.whitelist=ruok,srvr
`, data, z.port)
	file := filepath.Join(z.dir, "zoo.cfg")
	if err := process.WriteAtomic(file, []byte(cfg), 0o600); err != nil {
		return nil, err
	}
	return process.Start(process.Spec{
		Path: z.java,
		Args: []string{"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Dzookeeper.log.dir=" + z.dir,
			"-cp", "/etc/zookeeper/conf:" + zooKeeperJar + ":/usr/share/java/*",
			"org.apache.zookeeper.server.quorum.QuorumPeerMain", file},
		Dir: z.dir, Stdout: log, Stderr: log, Session: true, DeathSignal: syscall.SIGKILL,
	})
}

func (z *zooKeeper) addr() string { return loopback(z.port) }

func (z *zooKeeper) ready(ctx context.Context) error {
	return until(ctx, "ZooKeeper", func(context.Context) error { return zooKeeperOK(z.addr()) })
}

// zooKeeperOK asks it whether it serves.
func zooKeeperOK(addr string) error {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := io.WriteString(c, "srvr"); err != nil {
		return err
	}
	b, err := io.ReadAll(io.LimitReader(c, 4096))
	if err != nil {
		return err
	}
	// "ruok" is answered while the server still loads its data; "srvr" is not.
	if !strings.Contains(string(b), "Mode:") {
		return fmt.Errorf("it answers %q", strings.TrimSpace(string(b)))
	}
	return nil
}
