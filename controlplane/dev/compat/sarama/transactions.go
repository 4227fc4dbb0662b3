package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
)

const records = 1500

// worker moves records from one topic to another, records and offsets in one transaction. A producer has one transaction at a time, and
// the claims of a member are read side by side: they take turns.
type worker struct {
	*member
	source, target string
	mu             sync.Mutex
	producer       sarama.AsyncProducer
	n              int
	commits        atomic.Int32
	moved, aborted *atomic.Int64
}

func newWorker(number int, source, target string, s *seen, moved, aborted *atomic.Int64) (*worker, error) {
	c := config()
	c.Producer.Transaction.ID = fmt.Sprint(name, "-", number)
	c.Producer.Return.Successes = false
	p, err := sarama.NewAsyncProducer(bootstrap, c)
	if err != nil {
		return nil, err
	}
	go func() {
		for err := range p.Errors() {
			s.fail(err)
		}
	}()
	w := &worker{source: source, target: target, producer: p, moved: moved, aborted: aborted}
	w.member, err = join(source, s.fail, w.work)
	return w, err
}

// work collects what comes within a moment and moves it.
func (w *worker) work(session sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for {
		var batch []*sarama.ConsumerMessage
		select {
		case m, ok := <-c.Messages():
			if !ok {
				return nil
			}
			batch = append(batch, m)
		case <-session.Context().Done():
			return nil
		}
		for more := time.After(20 * time.Millisecond); len(batch) < 30 && more != nil; {
			select {
			case m, ok := <-c.Messages():
				if !ok {
					return nil // these are read again by who gets the partition
				}
				batch = append(batch, m)
			case <-more:
				more = nil
			case <-session.Context().Done():
				return nil
			}
		}
		if err := w.move(batch, session); err != nil {
			return err
		}
	}
}

// move is one transaction; every third one is aborted first, and done again.
func (w *worker) move(batch []*sarama.ConsumerMessage, session sarama.ConsumerGroupSession) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n++; w.n%3 == 0 {
		if err := w.transaction(batch); err != nil {
			return err
		}
		if err := w.producer.AbortTxn(); err != nil {
			return err
		}
		w.aborted.Add(int64(len(batch)))
	}
	if err := w.transaction(batch); err != nil {
		return err
	}
	if err := w.producer.CommitTxn(); err != nil {
		return err
	}
	w.moved.Add(int64(len(batch)))
	w.commits.Add(1)
	return nil
}

func (w *worker) transaction(batch []*sarama.ConsumerMessage) error {
	if err := w.producer.BeginTxn(); err != nil {
		return err
	}
	for _, m := range batch {
		w.producer.Input() <- &sarama.ProducerMessage{Topic: w.target, Key: sarama.ByteEncoder(m.Key), Value: sarama.ByteEncoder(m.Value)}
	}
	return w.producer.AddMessageToTxn(batch[len(batch)-1], name, nil)
}

func transactions() (string, error) {
	source, target := name+"-in", name+"-out"
	if err := topics(source, target); err != nil {
		return "", err
	}
	p, err := sarama.NewSyncProducer(bootstrap, config())
	if err != nil {
		return "", err
	}
	for from := 0; from < records; from += 100 {
		var batch []*sarama.ProducerMessage
		for i := range 100 {
			batch = append(batch, message(source, from+i))
		}
		if err := p.SendMessages(batch); err != nil {
			return "", err
		}
	}
	if err := p.Close(); err != nil {
		return "", err
	}
	var s seen
	var moved, aborted atomic.Int64
	one, err := newWorker(1, source, target, &s, &moved, &aborted)
	if err != nil {
		return "", err
	}
	two, err := newWorker(2, source, target, &s, &moved, &aborted)
	if err != nil {
		return "", err
	}
	if err := s.await("both at work", func() bool { return one.commits.Load() > 1 && two.commits.Load() > 1 }); err != nil {
		return "", err
	}
	one.leave()
	if err := s.await("all moved", func() bool { return moved.Load() >= records }); err != nil {
		return "", err
	}
	two.leave()
	for _, w := range []*worker{one, two} {
		if err := w.producer.Close(); err != nil {
			return "", err
		}
	}
	if err := committedToTheEnd(source); err != nil {
		return "", err
	}
	all, err := readAll(target, sarama.ReadUncommitted, func(*sarama.ConsumerMessage) {}, records+int(aborted.Load()))
	if err != nil {
		return "", err
	}
	if _, err := readAll(target, sarama.ReadCommitted, s.take, records); err != nil {
		return "", err
	}
	if s.err != nil {
		return "", s.err
	}
	if aborted.Load() == 0 || s.count != records || all != records+int(aborted.Load()) {
		return "", fmt.Errorf("%d committed, %d in all, %d aborted", s.count, all, aborted.Load())
	}
	return fmt.Sprintf("two workers, one leaving: %d records, each once and in order of its key, aborted ones not seen", records), nil
}

// readAll reads the topic until nothing has come for two seconds and there were enough, and gives the number of records.
func readAll(topic string, level sarama.IsolationLevel, take func(*sarama.ConsumerMessage), enough int) (int, error) {
	c := config()
	c.Consumer.IsolationLevel = level
	consumer, err := sarama.NewConsumer(bootstrap, c)
	if err != nil {
		return 0, err
	}
	defer consumer.Close()
	all := make(chan *sarama.ConsumerMessage)
	for p := range int32(partitions) {
		pc, err := consumer.ConsumePartition(topic, p, sarama.OffsetOldest)
		if err != nil {
			return 0, err
		}
		defer pc.AsyncClose()
		go func() {
			for m := range pc.Messages() {
				all <- m
			}
		}()
	}
	for n, began := 0, time.Now(); ; {
		select {
		case m := <-all:
			take(m)
			n++
		case <-time.After(2 * time.Second): // no event tells that nothing more comes
			if n >= enough {
				return n, nil
			}
			if time.Since(began) > time.Minute {
				return n, fmt.Errorf("of %s came %d records, want %d", topic, n, enough)
			}
		}
	}
}
