package eos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"penstock/dataplane/brokertest/nemesis"
)

// job is what a member is told, in its environment.
type job struct {
	Name     string // of this process; no other has had it
	TxnID    string // of its place, so that who takes its place fences it
	Group    string
	From, To string
	Seeds    []string
	First    bool    // it speaks the first version of the transaction protocol
	Abort    float64 // this share of its transactions is aborted on purpose
	Die      float64 // with this chance it is killed at a request of a transaction, or its answer
	Batch    int     // at most so many records a transaction
	LogLevel int     // kgo's
}

const jobVariable = "PENSTOCK_EOS_MEMBER"

// IsMember says that this process was started as a member.
func IsMember() bool { return os.Getenv(jobVariable) != "" }

// MemberMain consumes, passes on and commits in one transaction after the other
// until it is told to end (SIGTERM) or is given an error that it cannot go on after:
// whoever started it then starts it anew. It tells its deeds on descriptor 3.
func MemberMain() int {
	var j job
	if err := json.Unmarshal([]byte(os.Getenv(jobVariable)), &j); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	doomed := make(chan os.Signal, 1)
	signal.Notify(doomed, doom)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	m := &member{job: j, doomed: doomed, report: json.NewEncoder(os.NewFile(3, "report"))}
	if err := m.run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s %s ends: %v\n", time.Now().Format("15:04:05.000"), j.Name, err)
		return 1
	}
	return 0
}

type member struct {
	job
	report *json.Encoder
	doomed <-chan os.Signal
	s      *kgo.GroupTransactSession
	n      int // transactions
}

// timing is what all clients here are set to: they notice faults in seconds.
func timing(overhead time.Duration) []kgo.Opt {
	return []kgo.Opt{
		kgo.DialTimeout(2 * time.Second), kgo.RequestTimeoutOverhead(overhead), kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second),
		kgo.ProduceRequestTimeout(3 * time.Second), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()),
	}
}

// txnTimeout is after how long the coordinator ends a transaction of a client that is
// gone.
const txnTimeout = 6 * time.Second

// sessionTimeout is after how long a group goes on without a member.
const sessionTimeout = 4 * time.Second

func (m *member) open() error {
	overhead := 2 * time.Second
	opts := []kgo.Opt{
		kgo.SeedBrokers(m.Seeds...), kgo.ClientID(m.Name), kgo.TransactionalID(m.TxnID), kgo.TransactionTimeout(txnTimeout),
		kgo.ConsumerGroup(m.Group), kgo.ConsumeTopics(m.From), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.SessionTimeout(sessionTimeout), kgo.HeartbeatInterval(300 * time.Millisecond), kgo.RebalanceTimeout(6 * time.Second),
		kgo.WithHooks(deaths{m.Die, m.doomed}),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevel(m.LogLevel), func() string { return time.Now().Format("15:04:05.000 ") + m.Name + " " })),
	}
	if m.First {
		// A request that its sender has given up, and that arrives after all, can be taken
		// for one of the next transaction in this version of the protocol (KIP-890). So
		// this client waits longer than any broker is stopped for.
		overhead = 15 * time.Second
		opts = append(opts, kgo.MaxVersions(kversion.V3_7_0()))
	}
	var err error
	m.s, err = kgo.NewGroupTransactSession(append(opts, timing(overhead)...)...)
	return err
}

func (m *member) run(ctx context.Context) error {
	if err := m.open(); err != nil {
		return err
	}
	defer m.s.Close()
	for {
		polled := m.s.PollRecords(ctx, m.Batch)
		if ctx.Err() != nil {
			return nil
		}
		if records := polled.Records(); len(records) > 0 {
			if err := m.pass(records); err != nil {
				return err
			}
		}
	}
}

// doom is the signal to die when the next offsets of a transaction are answered for:
// they are stored, and nobody has asked for their commit.
const doom = syscall.SIGUSR1

// deaths kill the process as soon as a request of a transaction is written, or its
// answer is there: between the steps that the coordinators take, where a signal from
// outside seldom comes.
type deaths struct {
	chance float64
	doomed <-chan os.Signal
}

func (d deaths) strike(key int16) {
	switch kmsg.Key(key) {
	case kmsg.Produce, kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn, kmsg.TxnOffsetCommit, kmsg.EndTxn:
		if rand.Float64() < d.chance {
			die()
		}
	}
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // until the signal is here nothing more is sent
}

// OnBrokerWrite is called when a request is in the socket.
func (d deaths) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	d.strike(key)
}

// OnBrokerRead is called when an answer is read.
func (d deaths) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	d.strike(key)
	if err != nil || kmsg.Key(key) != kmsg.TxnOffsetCommit {
		return
	}
	select {
	case <-d.doomed:
		die()
	default:
	}
}

// pass passes records on in one transaction. It knows no context: who ends one halfway
// does not know its outcome.
func (m *member) pass(records []*kgo.Record) error {
	ctx := context.Background()
	name := fmt.Sprintf("%s.%d", m.Name, m.n)
	m.n++
	next := map[int32]int64{}
	out := make([]*kgo.Record, len(records))
	for i, r := range records {
		next[r.Partition] = r.Offset + 1
		out[i] = &kgo.Record{Topic: m.To, Key: r.Key, Value: []byte(passOn(string(r.Value), name))}
	}
	m.tell(Event{Txn: name, Deed: Begins, Next: next})
	if err := m.s.Begin(); err != nil {
		m.tell(Event{Txn: name, Deed: Aborted, Err: err.Error()}) // it never began
		return err
	}
	results := m.s.ProduceSync(ctx, out...)
	commit := results.FirstErr() == nil && rand.Float64() >= m.Abort
	sent := places(results)
	deed := GivesUp
	if commit {
		deed = Asks
	}
	e := Event{Txn: name, Deed: deed, Sent: sent}
	if err := results.FirstErr(); err != nil {
		e.Err = err.Error()
	}
	m.tell(e)
	committed, err := m.s.End(ctx, kgo.TransactionEndTry(commit))
	switch {
	case err != nil:
		m.tell(Event{Txn: name, Deed: Unsure, Err: err.Error()})
	case committed:
		m.tell(Event{Txn: name, Deed: Committed})
	default:
		m.tell(Event{Txn: name, Deed: Aborted})
	}
	return err
}

// places are where records were acknowledged.
func places(results kgo.ProduceResults) (sent []Place) {
	for _, r := range results {
		if r.Err != nil {
			continue
		}
		if in, _, ok := parse(string(r.Record.Value)); ok {
			sent = append(sent, Place{r.Record.Partition, r.Record.Offset, in})
		}
	}
	return sent
}

// tell writes a line. A member whose reader is gone must not go on.
func (m *member) tell(e Event) {
	e.At = nemesis.Monotonic()
	if err := m.report.Encode(e); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// readReport hands over the lines of a member's report up to its end. The last line
// of one that was killed may be cut.
func readReport(in io.Reader, tell func(Event)) {
	for lines := json.NewDecoder(in); ; {
		var e Event
		if lines.Decode(&e) != nil {
			return
		}
		tell(e)
	}
}
