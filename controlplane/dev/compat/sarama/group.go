package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
)

// member reads in a group; what it has read is committed when its session ends, before another one gets the partitions.
type member struct {
	take  func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error
	owned atomic.Int32
	leave func()
}

func (m *member) Setup(s sarama.ConsumerGroupSession) error {
	n := 0
	for _, p := range s.Claims() {
		n += len(p)
	}
	m.owned.Store(int32(n))
	return nil
}

func (m *member) Cleanup(s sarama.ConsumerGroupSession) error {
	m.owned.Store(0)
	s.Commit()
	return nil
}

func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	return m.take(s, c)
}

func join(topic string, fail func(error), take func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error) (*member, error) {
	g, err := sarama.NewConsumerGroup(bootstrap, name, config())
	if err != nil {
		return nil, err
	}
	m := &member{take: take}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			if err := g.Consume(ctx, []string{topic}, m); err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) {
				fail(err)
				return
			}
		}
	})
	m.leave = func() {
		cancel()
		done.Wait()
		if err := g.Close(); err != nil {
			fail(err)
		}
	}
	return m, nil
}

// group lets members of one group read a topic while it is written; one comes late, one leaves.
func group() (string, error) {
	if err := topics(name); err != nil {
		return "", err
	}
	var s seen
	var sent atomic.Int64
	stop, written := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(written)
		if err := write(&sent, stop); err != nil {
			s.fail(err)
		}
	}()
	read := func(session sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		for {
			select {
			case m, ok := <-c.Messages():
				if !ok {
					return nil
				}
				s.take(m)
				session.MarkMessage(m, "")
			case <-session.Context().Done():
				return nil
			}
		}
	}
	var members []*member
	add := func() error {
		m, err := join(name, s.fail, read)
		members = append(members, m)
		return err
	}
	all := func() bool {
		for _, m := range members {
			if m.owned.Load() == 0 {
				return false
			}
		}
		return true
	}
	more := func(n int) error {
		until := s.read() + n
		return s.await(fmt.Sprint(n, " more records"), func() bool { return s.read() >= until })
	}
	owned := func() (n int32) {
		for _, m := range members {
			n += m.owned.Load()
		}
		return n
	}
	for _, step := range []func() error{
		add, add, func() error { return s.await("two members with partitions", all) },
		add, func() error { return s.await("a third with partitions", all) },
		func() error { return more(1000) },
		func() error { members[0].leave(); members = members[1:]; return nil },
		func() error {
			return s.await("all partitions with those who stay", func() bool { return owned() == partitions })
		},
		func() error { return more(1000) },
		func() error { close(stop); <-written; return nil },
		func() error {
			return s.await("all records read", func() bool { return int64(s.read()) == sent.Load() })
		},
	} {
		if err := step(); err != nil {
			return "", err
		}
	}
	for _, m := range members {
		m.leave()
	}
	if s.err != nil {
		return "", s.err
	}
	return fmt.Sprintf("three members, one late, one leaving: %d records, each once and in order of its key, offsets committed", sent.Load()), committedToTheEnd(name)
}

func write(sent *atomic.Int64, stop <-chan struct{}) error {
	p, err := sarama.NewSyncProducer(bootstrap, config())
	if err != nil {
		return err
	}
	for {
		select {
		case <-stop:
			return p.Close()
		case <-time.After(5 * time.Millisecond): // a pace that lets the group rebalance meanwhile
		}
		var batch []*sarama.ProducerMessage
		for range 20 {
			batch = append(batch, message(name, int(sent.Add(1)-1)))
		}
		if err := p.SendMessages(batch); err != nil {
			return err
		}
	}
}
