package zkbulk_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"penstock/dataplane/coordination/zkbulk"
	"penstock/dataplane/coordination/zktest"
)

var server *zktest.Server

func TestMain(m *testing.M) {
	var err error
	if server, err = zktest.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	server.Stop()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func writer(t *testing.T) *zk.Conn {
	t.Helper()
	c, events, err := zk.Connect([]string{server.Addr()}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range events {
		}
	}()
	t.Cleanup(func() { c.Close(); <-done })
	return c
}

// Each znode comes in its place, with its content, version and last change; missing and empty ones are told
// apart. There are more of them than either side's buffers hold.
func TestManyZnodesAreReadInOrder(t *testing.T) {
	w := writer(t)
	const n = 5000
	var paths []string
	var wanted []string
	for i := range n {
		path := fmt.Sprintf("/many-%05d", i)
		paths = append(paths, path)
		if i%7 == 3 {
			wanted = append(wanted, "none")
			continue
		}
		data := ""
		if i%5 != 0 {
			data = strings.Repeat(fmt.Sprint(i, " "), 20)
		}
		wanted = append(wanted, fmt.Sprintf("%q version 0", data))
		if i%100 == 1 {
			wanted[i] = `"again" version 1`
		}
	}
	ops := func(from, to int) (ops []any) {
		for i := from; i < to; i++ {
			if wanted[i] == "none" {
				continue
			}
			data := ""
			if i%5 != 0 {
				data = strings.Repeat(fmt.Sprint(i, " "), 20)
			}
			ops = append(ops, &zk.CreateRequest{Path: paths[i], Data: []byte(data), Acl: zk.WorldACL(zk.PermAll)})
			if i%100 == 1 {
				ops = append(ops, &zk.SetDataRequest{Path: paths[i], Data: []byte("again"), Version: 0})
			}
		}
		return ops
	}
	for i := 0; i < n; i += 100 {
		if _, err := w.Multi(ops(i, i+100)...); err != nil {
			t.Fatal(err)
		}
	}
	seen := 0
	err := zkbulk.Read(t.Context(), zkbulk.Config{Servers: []string{"127.0.0.1:1", server.Addr()}}, paths, func(i int, data []byte, st zkbulk.Stat, err error) error {
		if i != seen {
			t.Fatalf("znode %d after %d", i, seen-1)
		}
		seen++
		got := "none"
		if err == nil {
			got = fmt.Sprintf("%q version %d", data, st.Version)
			if st.Mzxid <= 0 {
				t.Errorf("%s: last change %d", paths[i], st.Mzxid)
			}
		} else if !errors.Is(err, zkbulk.ErrNoNode) {
			t.Errorf("%s: %v", paths[i], err)
		}
		if got != wanted[i] {
			t.Errorf("%s: %s, want %s", paths[i], got, wanted[i])
		}
		return nil
	})
	if err != nil || seen != n {
		t.Fatalf("%d of %d znodes, %v", seen, n, err)
	}
}

// With the digest's rights only what others may not read is read.
func TestTheDigestIsSaid(t *testing.T) {
	w := writer(t)
	if _, err := w.Create("/secret", []byte("x"), 0, zk.DigestACL(zk.PermAll, "me", "word")); err != nil {
		t.Fatal(err)
	}
	read := func(digest string) (got string, err error) {
		err = zkbulk.Read(t.Context(), zkbulk.Config{Servers: []string{server.Addr()}, Digest: digest}, []string{"/secret"},
			func(_ int, data []byte, _ zkbulk.Stat, err error) error { got = string(data); return err })
		return got, err
	}
	if got, err := read("me:word"); err != nil || got != "x" {
		t.Errorf("with the digest: %q, %v", got, err)
	}
	if got, err := read(""); err == nil {
		t.Errorf("without: %q", got)
	}
}

// An error of the reader ends it, as does its context, also while the server says nothing.
func TestAReadEndsEarly(t *testing.T) {
	w := writer(t)
	if _, err := w.Create("/early", []byte("x"), 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	paths := strings.Split(strings.Repeat("/early,", 20_000)+"/early", ",")
	err := zkbulk.Read(t.Context(), zkbulk.Config{Servers: []string{server.Addr()}}, paths, func(i int, _ []byte, _ zkbulk.Stat, _ error) error {
		if i == 10 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		c, err := mute.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Read(make([]byte, 1)) // it has been asked
		cancel()
		_, _ = c.Read(make([]byte, 1<<10))
		_, _ = c.Read(make([]byte, 1<<10))
	}()
	if err := zkbulk.Read(ctx, zkbulk.Config{Servers: []string{mute.Addr().String()}}, paths, nil); err == nil {
		t.Error("a server that says nothing was read from")
	}
}
