package commitlog

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"penstock/dataplane/vfs"
)

// txnPath is where the tests keep an index that belongs to no segment.
const txnPath = dir + "/00000000000000000100" + txnSuffix

func newTxns(t tb) (*txnIndex, vfs.FS) {
	t.Helper()
	fsys := vfs.NewMem()
	must(t, fsys.MkdirAll(dir))
	x := newTxnIndex(fsys, txnPath)
	return &x, fsys
}

func collected(t tb, x *txnIndex, from, upTo int64) (pids []int64, complete bool) {
	t.Helper()
	got, complete, err := x.collect(nil, from, upTo)
	must(t, err)
	for _, a := range got {
		pids = append(pids, a.producerID)
	}
	return pids, complete
}

func TestTxnIndexEntryHasKafkasBytes(t *testing.T) {
	x, fsys := newTxns(t)
	must(t, x.append(abortedTxn{producerID: 1, first: 0x0203, last: 0x0405, lso: 0x0607}))
	got, err := vfs.ReadFile(fsys, txnPath, 100)
	must(t, err)
	want := []byte{
		0, 0, // version
		0, 0, 0, 0, 0, 0, 0, 1,
		0, 0, 0, 0, 0, 0, 2, 3,
		0, 0, 0, 0, 0, 0, 4, 5,
		0, 0, 0, 0, 0, 0, 6, 7,
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("got  %v\nwant %v", got, want)
	}
	must(t, x.closeFile())
}

func TestTxnIndexMakesNoFileBeforeItsFirstEntry(t *testing.T) {
	x, fsys := newTxns(t)
	must(t, x.load(100))
	must(t, x.reset())
	must(t, x.truncate(0))
	if got, complete := collected(t, x, 0, 1000); got != nil || complete {
		t.Errorf("an empty index gave %v, complete %v", got, complete)
	}
	must(t, x.closeFile())
	if vfs.Exists(fsys, txnPath) {
		t.Error("a file without an entry was made")
	}
}

func TestTxnIndexCollectsWhatOverlapsARange(t *testing.T) {
	x, _ := newTxns(t)
	// Producer 2 is open from 105 on; 3 begins before this segment.
	for _, a := range []abortedTxn{{1, 100, 110, 105}, {3, 90, 112, 105}, {2, 105, 120, 121}, {1, 130, 140, 141}} {
		must(t, x.append(a))
	}
	f := func(from, upTo int64, complete bool, want ...int64) {
		t.Helper()
		got, c := collected(t, x, from, upTo)
		if !slices.Equal(got, want) || c != complete {
			t.Errorf("[%d, %d): %v, complete %v; want %v, %v", from, upTo, got, c, want, complete)
		}
	}
	f(100, 105, true, 1)       // the first entry's lso ends the search
	f(100, 106, true, 1, 3, 2) // 105 is in the range
	f(110, 111, true, 1, 3, 2) // the marker itself is the last of a transaction
	f(111, 112, true, 3, 2)
	f(113, 121, true, 2)
	f(121, 130, true) // between two
	f(121, 131, true, 1)
	f(121, 142, false, 1) // a later segment may have more
	f(141, 200, false)
	f(0, 1000, false, 1, 3, 2, 1)
	must(t, x.closeFile())
	f(100, 105, true, 1) // from a file that is opened for it
}

func TestTxnIndexIsCutAtAnOffset(t *testing.T) {
	for _, c := range []struct {
		at   int64
		left []int64
	}{{121, []int64{1, 2}}, {120, []int64{1}}, {111, []int64{1}}, {110, nil}, {0, nil}} {
		x, fsys := newTxns(t)
		must(t, x.append(abortedTxn{1, 100, 110, 111}))
		must(t, x.append(abortedTxn{2, 105, 120, 121}))
		must(t, x.truncate(c.at))
		if got, _ := collected(t, x, 0, 1000); !slices.Equal(got, c.left) {
			t.Errorf("cut at %d: %v, want %v", c.at, got, c.left)
		}
		// What was cut can be written anew, and a new reading sees the same.
		must(t, x.append(abortedTxn{7, 121, 130, 131}))
		must(t, x.closeFile())
		again := newTxnIndex(fsys, txnPath)
		must(t, again.load(100))
		if got, _ := collected(t, &again, 0, 1000); !slices.Equal(got, append(c.left, 7)) {
			t.Errorf("cut at %d and read again: %v", c.at, got)
		}
	}
}

func TestTxnIndexRefusesDamage(t *testing.T) {
	good := abortedTxn{1, 100, 110, 111}
	for name, entries := range map[string][]abortedTxn{
		"marker below the segment":    {{1, 90, 99, 100}},
		"ends before it begins":       {{1, 111, 110, 112}},
		"negative producer":           {{-1, 100, 110, 111}},
		"negative stable offset":      {{1, 100, 110, -1}},
		"markers that do not ascend":  {good, good},
		"second marker below a first": {good, {2, 100, 105, 106}},
	} {
		x, fsys := newTxns(t)
		var b []byte
		for _, e := range entries {
			enc := e.encode()
			b = append(b, enc[:]...)
		}
		must(t, vfs.WriteFileAtomic(fsys, txnPath, b))
		if err := x.load(100); !errors.Is(err, errTxnIndex) {
			t.Errorf("%s: %v", name, err)
		}
	}
	x, fsys := newTxns(t)
	e := good.encode()
	for _, b := range [][]byte{e[:33], append(e[:], 0), append([]byte{0, 1}, e[2:]...)} {
		must(t, vfs.WriteFileAtomic(fsys, txnPath, b))
		if err := x.load(100); !errors.Is(err, errTxnIndex) {
			t.Errorf("%d bytes: %v", len(b), err)
		}
	}
	if x.count != 0 || x.last != -1 {
		t.Errorf("entries of a bad file are kept: %+v", x)
	}
	must(t, x.reset())
	must(t, x.append(good))
	if err := x.append(good); !errors.Is(err, errTxnIndex) {
		t.Errorf("the same transaction twice: %v", err)
	}
	must(t, x.closeFile())
	must(t, x.load(100))
	must(t, x.remove())
	if vfs.Exists(fsys, txnPath) {
		t.Error("a removed file is still there")
	}
}

// FuzzTxnIndex loads any bytes: what is taken ascends, and is found again by a
// search as by looking at all.
func FuzzTxnIndex(f *testing.F) {
	var good []byte
	for _, a := range []abortedTxn{{1, 100, 110, 105}, {3, 90, 112, 105}, {2, 105, 120, 121}} {
		e := a.encode()
		good = append(good, e[:]...)
	}
	f.Add(good, int64(100), int64(106))
	f.Add(good[:34], int64(111), int64(112))
	f.Add([]byte{0}, int64(0), int64(0))
	f.Fuzz(func(t *testing.T, b []byte, from, upTo int64) {
		x, fsys := newTxns(t)
		must(t, vfs.WriteFileAtomic(fsys, txnPath, b))
		if err := x.load(0); err != nil {
			return
		}
		var again []byte
		var want []abortedTxn
		must(t, x.each(func(a abortedTxn) error {
			e := a.encode()
			again = append(again, e[:]...)
			if a.last >= from && a.first < upTo {
				want = append(want, a)
			}
			return nil
		}))
		if !bytes.Equal(again, b) {
			t.Fatalf("%x was read as %x", b, again)
		}
		got, complete, err := x.collect(nil, from, upTo)
		must(t, err)
		if !complete && !slices.Equal(got, want) || len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
			t.Fatalf("[%d, %d): %v (complete %v), want %v", from, upTo, got, complete, want)
		}
		must(t, x.truncate(from))
		must(t, x.each(func(a abortedTxn) error {
			if a.last >= from {
				t.Fatalf("%+v is left after a cut at %d", a, from)
			}
			return nil
		}))
		must(t, x.closeFile())
	})
}
