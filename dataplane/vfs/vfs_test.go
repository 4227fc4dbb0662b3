package vfs

import (
	"errors"
	"io/fs"
	"math/rand"
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
			if err := errors.Join(f.Truncate(4), f.Truncate(6), f.Sync(), c.fs.Rename(d+"/x", d+"/y"), c.fs.SyncDir(d)); err != nil {
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
	lost, torn, kept := 0, 0, 0
	for seed := range int64(300) {
		m := NewMem()
		f := write(t, m, "/f", "safe", 0)
		if err := errors.Join(f.Sync(), m.SyncDir("/")); err != nil {
			t.Fatal(err)
		}
		write(t, m, "/f", "12345678", 4)
		write(t, m, "/unnamed", "x", 0)
		after := m.Crash(rand.New(rand.NewSource(seed)))
		switch s := content(after, "/f"); {
		case s == "safe":
			lost++
		case s == "safe12345678":
			kept++
		case len(s) > 4 && s == "safe12345678"[:len(s)]:
			torn++
		default:
			t.Fatalf("seed %d: %q", seed, s)
		}
		if content(m, "/f") != "safe12345678" {
			t.Fatal("the crash changed the living")
		}
	}
	if lost == 0 || torn == 0 || kept == 0 {
		t.Fatalf("lost %d, torn %d, kept %d: each must happen", lost, torn, kept)
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
		OpTruncate: func() error { return file.Truncate(9) }, OpSync: file.Sync, OpRename: func() error { return f.Rename("/f", "/g") },
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
