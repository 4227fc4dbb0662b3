package commitlog

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"penstock/dataplane/recordbatch"
)

// letGo drops what is due below cleaned, as the cleaner does after a start.
func letGo(t tb, l *Log, cleaned int64, now time.Time) {
	t.Helper()
	o := CleanOptions{FirstDirty: cleaned, UpTo: cleaned, Now: now}
	must(t, l.FindHorizons(context.Background(), o))
	o.HorizonsOnly = true
	_, err := l.Clean(context.Background(), o)
	must(t, err)
	if due, known := l.NextHorizon(cleaned); !known || due <= now.UnixMilli() {
		t.Fatalf("something is still due at %d of %d, %v", due, now.UnixMilli(), known)
	}
}

// wantIndexed fails if an entry of a transaction index has no abort marker in the log,
// or if a transaction counts as open.
func wantIndexed(t tb, l *Log) {
	t.Helper()
	found, err := l.collectAborted(l.segments()[0].base, math.MaxInt64)
	must(t, err)
	at := markers(t, l)
	for _, x := range found {
		if !slices.Contains(at, x.last) {
			t.Fatalf("index entry %+v has no marker; markers are at %v", x, at)
		}
	}
	if l.FirstUnstableOffset() != math.MaxInt64 {
		t.Fatalf("unstable from %d, though no transaction is open", l.FirstUnstableOffset())
	}
}

// A snapshot that knows a transaction as open outlives what compaction removes of it:
// a start that reads segments through from there must not take it for open again.
func TestSnapshotDoesNotOpenATransactionThatIsCompactedAway(t *testing.T) {
	for _, abort := range []bool{true, false} {
		for _, c := range []struct {
			name       string
			drop, tell bool // the marker is dropped before, or after, the start
		}{{"marker gone", true, false}, {"marker there", false, false}, {"marker goes later", false, true}} {
			cfg := compacted
			cfg.SegmentBytes = 250 // so that segments stay apart
			l, fsys := newLog(t, cfg)
			put(t, l, "x=1")                             // 0
			txnWords(t, l, 1, 0, "a=1")                  // 1
			put(t, l, "y=1")                             // 2
			must(t, rollNow(l))                          // leaves a snapshot with the open transaction
			must(t, l.Flush())                           //
			appendTo(t, l, txnMarker(1, 0, abort, 0), 0) // 3
			put(t, l, "a=2")                             // 4
			must(t, rollNow(l))
			txnWords(t, l, 1, 1, "b=1") // 5
			commits(t, l, 1)            // 6
			must(t, rollNow(l))
			put(t, l, "z=1") // 7
			l.SetHighWatermark(l.EndOffset())
			cleaned := cleanAt(t, l, 0, at(0)).End
			if c.drop {
				letGo(t, l, cleaned, at(hour))
			}
			must(t, l.Flush())
			must(t, l.abandon())
			l = openTest(t, fsys, cfg, OpenOptions{RecoveryPoint: 4, CleanedUpTo: cleaned})
			l.SetHighWatermark(l.EndOffset())
			wantIndexed(t, l)
			if c.tell {
				letGo(t, l, cleaned, at(hour))
			}
			wantIndexed(t, l)
			if got := words(committed(t, l)); got != "0:x=1 2:y=1 4:a=2 5:b=1 7:z=1" {
				t.Errorf("%s, aborted %v: committed are %s", c.name, abort, got)
			}
			wantMarkers := []int64{3, 6}
			if c.drop || c.tell {
				wantMarkers = []int64{6}
			}
			if got := markers(t, l); !slices.Equal(got, wantMarkers) {
				t.Errorf("%s, aborted %v: markers at %v, want %v", c.name, abort, got, wantMarkers)
			}
			must(t, l.abandon())
		}
	}
}

// A follower may get a marker with a delete horizon, since its leader has nothing left
// of the transaction, and have the transaction's data itself: the marker stays for as
// long as that, whether the horizon is over or not.
func TestMarkerWithAHorizonStaysWhileTheTransactionHasDataHere(t *testing.T) {
	for _, restart := range []bool{false, true} {
		for _, abort := range []bool{false, true} {
			leader, _ := newLog(t, compacted)
			follower, fsys := newLog(t, compacted)
			follow := func() {
				t.Helper()
				raw := readAll(t, leader, follower.EndOffset(), leader.EndOffset(), 1<<20)
				_, err := follower.AppendFollower(slices.Clone(raw))
				must(t, err)
			}
			txnWords(t, leader, 1, 0, "a=1")                  // 0
			txnWords(t, leader, 2, 0, "c=1")                  // 1
			follow()                                          // has the data, and lags from here
			appendTo(t, leader, txnMarker(1, 0, abort, 0), 0) // 2
			appendTo(t, leader, txnMarker(2, 0, abort, 0), 0) // 3
			put(t, leader, "b=1")                             // 4
			must(t, rollNow(leader))
			txnWords(t, leader, 1, 1, "d=1") // 5, so that 0 is not the last batch of the producer; 1 is
			commits(t, leader, 1)            // 6
			put(t, leader, "a=2", "c=2")     // 7 8
			must(t, rollNow(leader))
			put(t, leader, "z=1") // 9
			leader.SetHighWatermark(leader.EndOffset())
			cleanAt(t, leader, 0, at(0))
			cleanAt(t, leader, 0, at(time.Minute))
			follow()
			follower.SetHighWatermark(follower.EndOffset())
			must(t, rollNow(follower))

			// The follower's segments end elsewhere: what replaced the data is not clean yet.
			cleaned, err := follower.Clean(context.Background(), CleanOptions{UpTo: 5, Now: at(0), Map: newMap(t, 100)})
			must(t, err)
			if restart {
				must(t, follower.Close())
				follower = openTest(t, fsys, compacted, OpenOptions{CleanShutdown: true})
				follower.SetHighWatermark(follower.EndOffset())
			}
			letGo(t, follower, cleaned.End, at(3*hour))
			wantIndexed(t, follower)
			want := "0:a=1 1:c=1 4:b=1 5:d=1 7:a=2 8:c=2 9:z=1"
			if abort {
				want = "4:b=1 5:d=1 7:a=2 8:c=2 9:z=1"
			}
			check := func() {
				t.Helper()
				if got := words(committed(t, follower)); got != want {
					t.Errorf("restart %v, aborted %v: committed are %s", restart, abort, got)
				}
			}
			check()
			must(t, follower.Flush())
			must(t, follower.abandon())
			follower = openTest(t, fsys, compacted, OpenOptions{})
			follower.SetHighWatermark(follower.EndOffset())
			wantIndexed(t, follower)
			check()
			must(t, leader.abandon())
			must(t, follower.abandon())
		}
	}
}

// A folder that Kafka has cleaned may hold such a marker below what is clean.
func TestMarkersOfKafkasAreLookedAtBeforeTheyGo(t *testing.T) {
	l, fsys := newLog(t, compacted)
	txnWords(t, l, 1, 0, "a=1")    // 0
	m := txnMarker(1, 0, false, 0) // 1
	stamped, _, err := recordbatch.Filter(nil, m, recordbatch.FilterOptions{Keep: func(*recordbatch.Entry) bool { return true }, Horizon: 1, Marker: true})
	must(t, err)
	appendTo(t, l, stamped, 0)
	put(t, l, "b=-") // 2
	must(t, rollNow(l))
	must(t, l.Close())
	l = openTest(t, fsys, compacted, OpenOptions{CleanShutdown: true})
	l.SetHighWatermark(l.EndOffset())
	letGo(t, l, 3, at(hour))
	if got := markers(t, l); !slices.Equal(got, []int64{1}) {
		t.Errorf("markers at %v, and a record of the transaction is there", got)
	}
	cleanAt(t, l, 0, at(hour)) // gives the tombstone a horizon
	letGo(t, l, 3, at(3*hour))
	if got := markers(t, l); !slices.Equal(got, []int64{1}) {
		t.Errorf("markers at %v after a clean, and a record of the transaction is there", got)
	}
	wantIndexed(t, l)
	must(t, l.abandon())
}

// A clean that ends inside an aborted transaction, whose marker lies above it or in the
// segment behind, takes its records below the end away and no committed ones for their
// sake; the rest stays hidden, after a start that knows of it by a snapshot only, too.
func TestCleanMayEndInsideATransaction(t *testing.T) {
	for upTo := int64(3); upTo <= 9; upTo++ {
		for recovery := int64(0); recovery <= 11; recovery++ {
			l, fsys := newLog(t, compacted)
			put(t, l, "a=1", "b=1", "c=1") // 0 1 2
			txnWords(t, l, 1, 0, "a=2")    // 3
			put(t, l, "x=1")               // 4
			must(t, rollNow(l))
			txnWords(t, l, 1, 1, "b=2") // 5
			put(t, l, "y=1")            // 6
			must(t, rollNow(l))
			txnWords(t, l, 1, 2, "c=2") // 7
			must(t, rollNow(l))
			aborts(t, l, 1)             // 8
			txnWords(t, l, 1, 3, "d=1") // 9
			must(t, rollNow(l))
			commits(t, l, 1) // 10
			l.SetHighWatermark(l.EndOffset())
			want := "map[a:1 b:1 c:1 d:1 x:1 y:1]"
			for _, more := range []int64{0, 9} { // and once more, to the end
				st, err := l.Clean(context.Background(), CleanOptions{UpTo: max(upTo, more), Now: at(0), Map: newMap(t, 100)})
				must(t, err)
				must(t, l.Flush())
				must(t, l.abandon())
				l = openTest(t, fsys, compacted, OpenOptions{RecoveryPoint: recovery, CleanedUpTo: st.End})
				l.SetHighWatermark(l.EndOffset())
				wantIndexed(t, l)
				if got := fmt.Sprint(newest(committed(t, l))); got != want {
					t.Errorf("clean up to %d, recovery from %d: %s", max(upTo, more), recovery, got)
				}
			}
			must(t, l.abandon())
		}
	}
}
