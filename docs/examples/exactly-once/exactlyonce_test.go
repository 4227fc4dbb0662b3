package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"penstock/dataplane/brokertest"
)

var kills = flag.Int("kills", 36, "how often the program is killed")

func TestExactlyOnce(t *testing.T) {
	c := brokertest.Start(t, brokertest.Options{Binary: broker})
	for _, test := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"killed-at-random-moments-it-counts-each-record-once", killedAtRandomMomentsItCountsEachRecordOnce},
		{"the-kills-find-an-offset-stored-apart", theKillsFindAnOffsetStoredApart},
		{"two-at-once-count-each-record-once", twoAtOnceCountEachRecordOnce},
		{"asked-to-end-it-ends", askedToEndItEnds},
		{"records-gone-before-they-were-counted-are-an-error", recordsThatAreGoneBeforeTheyWereCountedAreAnError},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, newWorld(t, c)) })
	}
}

// killOnce starts the program with enough to do and kills it: now and then at a random moment of its start, else at a
// random moment after its first transaction. start is how long the latter takes. It says whether the program had stored
// anything by then.
func (w *world) killOnce(program string, start *time.Duration) bool {
	w.t.Helper()
	w.produce(1000)
	before, _ := w.stored()
	l := w.start(program, "-batch", "10")
	defer l.kill()
	if *start > 0 && rand.N(4) == 0 {
		time.Sleep(rand.N(*start))
	} else if took, ok := l.stores(before); ok {
		*start = took
		time.Sleep(rand.N(20 * time.Millisecond))
	}
	l.kill()
	after, _ := w.stored()
	return after > before
}

func killedAtRandomMomentsItCountsEachRecordOnce(t *testing.T, w *world) {
	var start time.Duration
	worked := 0
	for i := range *kills {
		if w.killOnce(example, &start) {
			worked++
		}
		if read, counted := w.stored(); read != counted {
			t.Fatalf("after kill %d: %d records read, %d counted", i+1, read, counted)
		}
	}
	said := w.finish(example)
	w.exact()
	if worked < *kills/3 {
		t.Errorf("only %d of %d lives had stored anything when they were killed", worked, *kills)
	}
	t.Logf("killed %d times, %d of them at work; %s", *kills, worked, said)
	if again := w.finish(example); !strings.HasSuffix(again, "; 0 of the records are new\n") {
		t.Errorf("with nothing new it said %q", again)
	}
	w.exact()
}

// Stored one after the other, result and offset do not survive the same kills: they do hit the moments that matter.
func theKillsFindAnOffsetStoredApart(t *testing.T, w *world) {
	var start time.Duration
	for i := range 200 {
		w.killOnce(apart, &start)
		if read, counted := w.stored(); read != counted {
			t.Logf("after kill %d: %d records read, %d counted", i+1, read, counted)
			return
		}
	}
	t.Error("200 kills have not found it")
}

func twoAtOnceCountEachRecordOnce(t *testing.T, w *world) {
	w.produce(1000)
	one, two := w.start(example, "-batch", "10"), w.start(example, "-batch", "10")
	// Both are at the same place sooner or later, and one of them is second.
	for began := time.Now(); !one.ended() && !two.ended(); {
		if time.Since(began) > time.Minute {
			t.Fatal("neither has noticed the other")
		}
		w.produce(100)
	}
	one.kill()
	two.kill()
	w.finish(example)
	w.exact()
}

func askedToEndItEnds(t *testing.T, w *world) {
	w.produce(1000)
	l := w.start(example, "-batch", "10")
	l.stores(0)
	if err := l.ID.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := l.Err(); err != nil {
		t.Fatalf("%v: %s", err, l.output())
	}
	w.finish(example)
	w.exact()
}

func recordsThatAreGoneBeforeTheyWereCountedAreAnError(t *testing.T, w *world) {
	w.produce(1000)
	w.finish(example)
	w.produce(1000)
	adm := kadm.NewClient(w.to)
	ends, err := adm.ListEndOffsets(t.Context(), w.topic)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := adm.DeleteRecords(t.Context(), ends.Offsets()); err != nil {
		t.Fatal(err)
	}
	w.produce(10)
	before := fmt.Sprint(w.stored())
	l := w.start(example, "-once")
	if err := l.Err(); err == nil || !strings.Contains(l.output(), "OFFSET_OUT_OF_RANGE") {
		t.Errorf("%v: %s", err, l.output())
	}
	if after := fmt.Sprint(w.stored()); after != before {
		t.Errorf("it has counted: %s, before %s", after, before)
	}
}
