package coordinator

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// gateLog takes batches one at a time: each waits until it is let through.
type gateLog struct {
	entered chan Batch
	answer  chan error // what is answered, before Append returns
}

func (l *gateLog) Append(_ int32, b Batch, done func(error)) {
	l.entered <- b
	done(<-l.answer)
}
func (l *gateLog) Read(int32, func(Logged) error) error { return nil }
func (l *gateLog) Partitions() int32                    { return 1 }

func keys(b Batch) (s []string) {
	for _, r := range b.Records {
		s = append(s, string(r.Key))
	}
	return s
}

// queued enqueues writes of a key each while an append of "first" is under way.
func queued(l *gateLog, answers chan string, ws ...Batch) (sh *Shard[*int], drained chan struct{}) {
	sh = newShard[*int](l, 0, 1)
	enqueue := func(b Batch) {
		k := keys(b)
		sh.Enqueue(b, func(err error) { answers <- fmt.Sprint(k, err) })
	}
	drained = make(chan struct{})
	enqueue(of("first"))
	go func() { sh.Drain(); close(drained) }()
	<-l.entered
	for _, b := range ws {
		enqueue(b)
	}
	sh.Drain() // another drains: returns at once
	return sh, drained
}

func of(ks ...string) (b Batch) {
	b.Producer = NoProducer
	for _, k := range ks {
		b.Records = append(b.Records, Record{Key: []byte(k)})
	}
	return b
}

func TestWritesThatWaitShareABatch(t *testing.T) {
	l, answers := &gateLog{make(chan Batch), make(chan error)}, make(chan string, 10)
	inTransaction := of("tx")
	inTransaction.Producer = Producer{7, 0}
	_, drained := queued(l, answers, of("a1", "a2"), of("b"), inTransaction, of("c"))
	l.answer <- nil
	for _, want := range []struct {
		keys []string
		err  error
	}{{[]string{"a1", "a2", "b"}, kerr.NotEnoughReplicas}, {[]string{"tx"}, nil}, {[]string{"c"}, nil}} {
		if got := keys(<-l.entered); !slices.Equal(got, want.keys) {
			t.Errorf("a batch of %v, want %v", got, want.keys)
		}
		l.answer <- want.err
	}
	<-drained
	close(answers)
	want := []string{"[first] <nil>", fmt.Sprint([]string{"a1", "a2"}, kerr.NotEnoughReplicas), fmt.Sprint([]string{"b"}, kerr.NotEnoughReplicas), "[tx] <nil>", "[c] <nil>"}
	for _, w := range want {
		if got := <-answers; got != w {
			t.Errorf("%s, want %s", got, w)
		}
	}
}

func TestOneWriteDoesNotFailForAnothersSize(t *testing.T) {
	l, answers := &gateLog{make(chan Batch), make(chan error)}, make(chan string, 10)
	_, drained := queued(l, answers, of("a"), of("large"), of("b"))
	l.answer <- nil
	tooLarge := fmt.Errorf("too much: %w", kerr.MessageTooLarge)
	for _, want := range []struct {
		keys []string
		err  error
	}{{[]string{"a", "large", "b"}, tooLarge}, {[]string{"a"}, nil}, {[]string{"large"}, tooLarge}, {[]string{"b"}, nil}} {
		if got := keys(<-l.entered); !slices.Equal(got, want.keys) {
			t.Errorf("a batch of %v, want %v", got, want.keys)
		}
		l.answer <- want.err
	}
	<-drained
	close(answers)
	for _, w := range []string{"[first] <nil>", "[a] <nil>", fmt.Sprint("[large] ", tooLarge), "[b] <nil>"} {
		if got := <-answers; got != w {
			t.Errorf("%s, want %s", got, w)
		}
	}
}

func TestSharedBatchesAreBounded(t *testing.T) {
	big := Batch{Producer: NoProducer, Records: []Record{{Value: make([]byte, maxGathered/2)}}}
	huge := Batch{Producer: NoProducer, Records: []Record{{Value: make([]byte, 3*maxGathered)}}}
	for _, c := range []struct {
		ws   []write
		want int
	}{
		{[]write{{batch: big}, {batch: big}, {batch: big}}, 1},
		{[]write{{batch: huge}, {batch: big}}, 1},
		{[]write{{batch: of("a")}, {batch: big}, {batch: big}}, 2},
		{[]write{{batch: of("a")}, {batch: of("b")}}, 2},
	} {
		if got := gather(c.ws); got != c.want {
			t.Errorf("%d of %d in a batch, want %d", got, len(c.ws), c.want)
		}
	}
}

// An abandoned shard writes nothing more, whoever waits.
func TestAbandonedShardRefusesWhatWaits(t *testing.T) {
	l, answers := &gateLog{make(chan Batch), make(chan error)}, make(chan string, 10)
	sh, drained := queued(l, answers, of("a"), of("b"))
	sh.abandon(func(*int) {})
	l.answer <- nil
	<-drained
	close(answers)
	for _, w := range []string{"[first] <nil>", fmt.Sprint("[a] ", error(kerr.NotLeaderForPartition)), fmt.Sprint("[b] ", error(kerr.NotLeaderForPartition))} {
		if got := <-answers; got != w {
			t.Errorf("%s, want %s", got, w)
		}
	}
}
