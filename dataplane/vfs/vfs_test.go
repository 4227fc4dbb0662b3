package vfs

import (
	"errors"
	"io/fs"
	"math/rand"
	"strings"
	"testing"
)

func write(t *testing.T, fsys FS, name, s string, off int64) File {
	t.Helper()
	f, err := fsys.Open(name, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(s), off); err != nil {
		t.Fatal(err)
	}
	return f
}

func content(fsys FS, name string) string {
	b, err := ReadFile(fsys, name, 1<<20)
	if err != nil {
		return "error: " + err.Error()
	}
	return string(b)
}

// Both file systems must answer alike, or tests in memory mean nothing.
func TestRealAndMemoryAgree(t *testing.T) {
	for name, c := range map[string]struct {
		fs   FS
		root string
	}{"os": {OS, t.TempDir()}, "mem": {NewMem(), "/"}} {
		t.Run(name, func(t *testing.T) {
			d := c.root + "/a/b"
			if _, err := c.fs.Open(d+"/x", true); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("file in a missing folder: %v", err)
			}
			if err := c.fs.MkdirAll(d); err != nil {
				t.Fatal(err)
			}
			if _, err := c.fs.Open(d+"/x", false); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("missing file: %v", err)
			}
			f := write(t, c.fs, d+"/x", "hello", 3)
			if n, err := f.Size(); n != 8 || err != nil || content(c.fs, d+"/x") != "\x00\x00\x00hello" {
				t.Fatalf("size %d, %v", n, err)
			}
			if n, err := f.ReadAt(make([]byte, 9), 0); n != 8 || err == nil {
				t.Fatalf("read past the end: %d, %v", n, err)
			}
			if err := errors.Join(f.Truncate(4), f.Allocate(1<<16), f.Truncate(6), f.Sync(), c.fs.Rename(d+"/x", d+"/y"), c.fs.SyncDir(d)); err != nil {
				t.Fatal(err)
			}
			if content(c.fs, d+"/y") != "\x00\x00\x00h\x00\x00" || Exists(c.fs, d+"/x") {
				t.Fatalf("after truncate and rename: %q", content(c.fs, d+"/y"))
			}
			if _, err := ReadFile(c.fs, d+"/y", 5); err == nil {
				t.Fatal("a file above the limit was read")
			}
			if err := errors.Join(f.Close(), WriteFileAtomic(c.fs, d+"/z", []byte("1")), WriteFileAtomic(c.fs, d+"/z", []byte("2"))); err != nil {
				t.Fatal(err)
			}
			es, err := c.fs.ReadDir(d)
			if err != nil || len(es) != 2 || es[0].Name != "y" || es[1].Name != "z" || es[1].Size != 1 {
				t.Fatalf("%+v, %v", es, err)
			}
			lock, err := c.fs.Lock(d + "/lock")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.fs.Lock(d + "/lock"); err == nil {
				t.Fatal("locked twice")
			}
			if err := errors.Join(lock.Close(), c.fs.Remove(d+"/y"), c.fs.RemoveAll(c.root+"/a"), c.fs.RemoveAll(c.root+"/a")); err != nil {
				t.Fatal(err)
			}
			if Exists(c.fs, d) {
				t.Fatal("the folder is still there")
			}
		})
	}
}

func TestCrashKeepsWhatWasSyncedAndMayLoseTheRest(t *testing.T) {
	seen := map[string]int{}
	sectors := strings.Repeat("x", sectorSize)
	for seed := range int64(500) {
		m := NewMem()
		f := write(t, m, "/f", "safe", 0)
		if err := errors.Join(f.Sync(), m.SyncDir("/")); err != nil {
			t.Fatal(err)
		}
		write(t, m, "/f", sectors+sectors, 4)
		write(t, m, "/unnamed", "x", 0)
		disk := m.Crash(rand.New(rand.NewSource(seed)))
		s := content(disk, "/f")
		rest, ok := strings.CutPrefix(s, "safe")
		if !ok {
			t.Fatalf("seed %d: %q", seed, s)
		}
		switch zeros := strings.Count(rest, "\x00"); {
		case rest == "":
			seen["nothing"]++
		case rest == sectors+sectors:
			seen["all"]++
		case zeros == len(rest):
			seen["length only"]++
		case zeros > 0:
			seen["some sectors"]++
		case rest == strings.Repeat("x", len(rest)):
			seen["torn"]++
		}
		if Exists(disk, "/unnamed") {
			seen["name"]++
		}
		if content(m, "/f") != "safe"+sectors+sectors {
			t.Fatal("the crash changed the living")
		}
	}
	for _, k := range []string{"nothing", "all", "length only", "some sectors", "torn", "name"} {
		if seen[k] == 0 {
			t.Errorf("%s: did not happen (%v)", k, seen)
		}
	}
}

// A folder's sync promises the names in it, not those of other folders, and not its
// own name in its parent.
func TestFolderSyncPromisesItsOwnNamesOnly(t *testing.T) {
	seen := map[string]int{}
	for seed := range int64(200) {
		m := NewMem()
		if err := errors.Join(m.MkdirAll("/a"), m.MkdirAll("/b"), m.SyncDir("/"), m.MkdirAll("/c")); err != nil {
			t.Fatal(err)
		}
		write(t, m, "/a/1", "", 0)
		write(t, m, "/b/1", "", 0)
		write(t, m, "/c/1", "", 0)
		write(t, m, "/b/2", "", 0)
		if err := errors.Join(m.SyncDir("/b"), m.SyncDir("/c")); err != nil {
			t.Fatal(err)
		}
		disk := m.Crash(rand.New(rand.NewSource(seed)))
		if !Exists(disk, "/b/1") || !Exists(disk, "/b/2") {
			t.Fatalf("seed %d: a synced name is lost", seed)
		}
		for _, name := range []string{"/a/1", "/c", "/c/1"} {
			if Exists(disk, name) {
				seen[name]++
			}
		}
		if Exists(disk, "/c") && !Exists(disk, "/c/1") {
			t.Fatalf("seed %d: a name went from its synced folder", seed)
		}
	}
	for _, name := range []string{"/a/1", "/c", "/c/1"} {
		if seen[name] == 0 || seen[name] == 200 {
			t.Errorf("%s was there %d times of 200", name, seen[name])
		}
	}
}

// At the cut, that change may or may not have happened; nothing happens after it.
func TestPowerFailsAtTheChosenChange(t *testing.T) {
	counted := NewMem()
	work := func(m *Mem) error {
		return errors.Join(m.MkdirAll("/d"), m.SyncDir("/"), WriteFileAtomic(m, "/d/f", []byte("1")), m.Rename("/d/f", "/d/g"), m.RemoveAll("/d"))
	}
	if err := work(counted); err != nil || counted.Changes() != 10 {
		t.Fatalf("%d changes, %v", counted.Changes(), err)
	}
	for n := 1; n <= counted.Changes()+1; n++ {
		m := NewMem()
		m.CutAt(n, rand.New(rand.NewSource(int64(n))))
		err := work(m)
		if cut := n <= counted.Changes(); cut != errors.Is(err, ErrPowerCut) || cut != (m.Disk() != nil) {
			t.Fatalf("cut at %d: %v", n, err)
		}
		if err == nil {
			continue
		}
		if _, err := m.Open("/new", true); !errors.Is(err, ErrPowerCut) {
			t.Fatalf("a change after the cut: %v", err)
		}
		if n > 7 && n < 9 && !Exists(m.Disk(), "/d/f") && !Exists(m.Disk(), "/d/g") {
			t.Fatalf("cut at %d lost a file that was written durably", n)
		}
	}
}

func TestAtomicWriteIsOldOrNewAfterACrash(t *testing.T) {
	for seed := range int64(200) {
		m := NewMem()
		if err := WriteFileAtomic(m, "/f", []byte("old")); err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewSource(seed))
		var disk *Mem
		n := r.Intn(8)
		faulty := &Faulty{FS: m, Hook: func(Op, string) error {
			if n--; n == 0 {
				disk = m.Crash(r)
			}
			return nil
		}}
		if err := WriteFileAtomic(faulty, "/f", []byte("new")); err != nil {
			t.Fatal(err)
		}
		if disk == nil {
			disk = m.Crash(r)
		}
		if s := content(disk, "/f"); s != "old" && s != "new" {
			t.Fatalf("seed %d: %q", seed, s)
		}
		if s := content(m.Crash(r), "/f"); s != "new" {
			t.Fatalf("seed %d: %q after the write returned", seed, s)
		}
	}
}

func TestFaultsHitTheNamedCall(t *testing.T) {
	broken := errors.New("broken")
	var op Op
	f := &Faulty{FS: NewMem(), Hook: func(o Op, _ string) error {
		if o == op {
			return broken
		}
		return nil
	}}
	file := write(t, f, "/f", "abcd", 0)
	calls := map[Op]func() error{
		OpOpen: func() error { _, err := f.Open("/f", false); return err }, OpRead: func() error { _, err := file.ReadAt(make([]byte, 1), 0); return err },
		OpTruncate: func() error { return file.Truncate(9) }, OpAllocate: func() error { return file.Allocate(9) }, OpSync: file.Sync, OpRename: func() error { return f.Rename("/f", "/g") },
		OpRemove: func() error { return f.Remove("/f") }, OpMkdir: func() error { return f.MkdirAll("/d") },
		OpList: func() error { _, err := f.ReadDir("/"); return err }, OpSyncDir: func() error { return f.SyncDir("/") },
	}
	for o, call := range calls {
		if op = o; !errors.Is(call(), broken) {
			t.Errorf("%s did not fail", o)
		}
	}
	op = OpWrite
	if n, err := file.WriteAt([]byte("1234"), 0); n != 2 || !errors.Is(err, broken) || content(f, "/f") != "12cd" {
		t.Errorf("torn write: %d, %v, %q", n, err, content(f, "/f"))
	}
}
