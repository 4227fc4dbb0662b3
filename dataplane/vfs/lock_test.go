package vfs

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Java's file locks are POSIX record locks.
func TestLockExcludesAKafkaBrokerAndIsExcludedByOne(t *testing.T) {
	name := filepath.Join(t.TempDir(), ".lock")
	javas := func(typ int16) error {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() }) // closing gives a record lock up
		return unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: typ, Whence: io.SeekStart})
	}
	ours, err := OS.Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := javas(unix.F_WRLCK); err == nil {
		t.Error("Kafka gets a lock that we hold")
	}
	if err := ours.Close(); err != nil {
		t.Fatal(err)
	}
	if err := javas(unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	if l, err := OS.Lock(name); err == nil {
		l.Close()
		t.Error("we get a lock that Kafka holds")
	}
}
