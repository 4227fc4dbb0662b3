// Command compat lets sarama work in a group and in transactions, for the matrix of `make compat`. It is a module of its own: the product does not depend on sarama.
package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	keys       = 60
	partitions = 6
)

var (
	bootstrap = strings.Split(os.Getenv("BOOTSTRAP"), ",")
	name      = os.Getenv("NAME")
)

func main() {
	scenario := map[string]func() (string, error){"group": group, "transactions": transactions}[os.Args[1]]
	said, err := scenario()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(said)
}

// config is for brokers that serve what Kafka 4 does; sarama asks for no more.
func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V4_1_0_0
	c.Producer.Idempotent, c.Net.MaxOpenRequests = true, 1
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes, c.Producer.Return.Errors = true, true
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Group.Heartbeat.Interval, c.Consumer.Group.Session.Timeout = 500*time.Millisecond, 10*time.Second
	return c
}

// seen is what was read: the values of a key are 0, 1, 2, ..., so the next one expected is all that has to be known to notice any record
// that is missing, twice or out of order.
type seen struct {
	mu    sync.Mutex
	next  [keys]int
	count int
	err   error
}

func (s *seen) take(m *sarama.ConsumerMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var k, v int
	if _, err := fmt.Sscan(string(m.Key)+" "+string(m.Value), &k, &v); err != nil || k < 0 || k >= keys {
		s.failed(fmt.Errorf("read key %q, value %q", m.Key, m.Value))
		return
	}
	if v != s.next[k] {
		s.failed(fmt.Errorf("key %d: read %d, want %d", k, v, s.next[k]))
	}
	s.next[k]++
	s.count++
}

func (s *seen) failed(err error) {
	if s.err == nil {
		s.err = err
	}
}

func (s *seen) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed(err)
}

func (s *seen) read() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

func (s *seen) await(what string, cond func() bool) error {
	for began := time.Now(); !cond(); time.Sleep(20 * time.Millisecond) {
		s.mu.Lock()
		err := s.err
		s.mu.Unlock()
		if err != nil {
			return err
		}
		if time.Since(began) > 4*time.Minute {
			return fmt.Errorf("not within four minutes: %s", what)
		}
	}
	return nil
}

func topics(names ...string) error {
	admin, err := sarama.NewClusterAdmin(bootstrap, config())
	if err != nil {
		return err
	}
	defer admin.Close()
	isr := "2"
	for _, n := range names {
		detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 3, ConfigEntries: map[string]*string{"min.insync.replicas": &isr}}
		if err := admin.CreateTopic(n, detail, false); err != nil {
			return err
		}
	}
	return nil
}

// committedToTheEnd wants the group to have committed the topic's ends.
func committedToTheEnd(topic string) error {
	cl, err := sarama.NewClient(bootstrap, config())
	if err != nil {
		return err
	}
	defer cl.Close()
	admin, err := sarama.NewClusterAdminFromClient(cl)
	if err != nil {
		return err
	}
	committed, err := admin.ListConsumerGroupOffsets(name, nil)
	if err != nil {
		return err
	}
	for p := range int32(partitions) {
		end, err := cl.GetOffset(topic, p, sarama.OffsetNewest)
		if err != nil {
			return err
		}
		got := committed.GetBlock(topic, p)
		if end > 0 && (got == nil || got.Offset != end) {
			return fmt.Errorf("partition %d: committed %+v, its end is %d", p, got, end)
		}
	}
	return nil
}

func message(topic string, i int) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(fmt.Sprint(i % keys)), Value: sarama.StringEncoder(fmt.Sprint(i / keys))}
}
