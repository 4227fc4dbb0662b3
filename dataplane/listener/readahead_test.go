package listener

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// resident counts the bytes of a part of a file that are in the page cache.
func resident(t *testing.T, f *os.File, from, to int64) (n int64) {
	t.Helper()
	m, err := unix.Mmap(int(f.Fd()), from, int(to-from), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	page := int64(os.Getpagesize())
	vec := make([]byte, (to-from+page-1)/page)
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&vec[0]))); errno != 0 {
		t.Fatal(errno)
	}
	for _, v := range vec {
		n += int64(v&1) * page
	}
	return n
}

// cold makes a file whose pages are on the disk only.
func cold(t *testing.T, size int) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "segment"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	if n := resident(t, f, 0, int64(size)); n > 0 {
		t.Skipf("this file system keeps its files in memory: %d of %d bytes", n, size)
	}
	return f
}

func awaitResident(t *testing.T, f *os.File, from, to int64) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) { // the disk tells nobody
		n := resident(t, f, from, to)
		if n >= to-from {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("of %d..%d only %d bytes have come into the page cache", from, to, n)
		}
	}
}

func TestAColdRangeBringsTheNextOneWithItAndNoMore(t *testing.T) {
	const size, slice = 32 << 20, 1 << 20
	f := cold(t, size)
	w := &writing{src: int(f.Fd()), pos: 2 * slice, left: slice}
	w.ahead()
	awaitResident(t, f, 2*slice, 4*slice)
	// Read as sendfile does, from the first page to the last: nothing else may come along.
	if _, err := f.ReadAt(make([]byte, 2*slice), 2*slice); err != nil {
		t.Fatal(err)
	}
	if n := resident(t, f, 0, 2*slice) + resident(t, f, 4*slice, size); n > 0 {
		t.Errorf("%d bytes outside of the range and the next have been read", n)
	}

	// A reader that goes on finds its range there and brings the next one in.
	w.pos, w.left = 3*slice, slice
	w.ahead()
	awaitResident(t, f, 2*slice, 5*slice)
}

func TestReadingAheadEndsWithTheFile(t *testing.T) {
	for _, left := range []int{1, 4096, 100_000, 300_000, 1 << 20} {
		t.Run(fmt.Sprint(left), func(t *testing.T) {
			const size = 3<<20 + 12345
			f := cold(t, size)
			w := &writing{src: int(f.Fd()), pos: int64(size - left), left: left}
			w.ahead()
			awaitResident(t, f, (size-int64(left))&^4095, size)
		})
	}
}

func TestReadingAheadAllocatesNothing(t *testing.T) {
	f := cold(t, 4<<20)
	w := &writing{src: int(f.Fd()), left: 1 << 20}
	if n := testing.AllocsPerRun(100, w.ahead); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
