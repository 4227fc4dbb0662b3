//go:build compat

package brokertest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/brokertest/apache"
	"penstock/dataplane/coordinator"
	"penstock/dataplane/recordbatch"
)

var (
	decodedRecord = regexp.MustCompile(`^\| offset: .* key: (\{.*\}) payload: (\{.*\}|<DELETE>)$`)
	decodedMarker = regexp.MustCompile(`^\| offset: .* endTxnMarker: (COMMIT|ABORT) coordinatorEpoch: \d+$`)
	// decoded39 is what Kafka 3.9 prints of __transaction_state.
	decoded39 = regexp.MustCompile(`^\| offset: .* key: transaction_metadata::transactionalId=\S+ payload: (producerId:\d+,|<DELETE>)`)
)

// decoded has Kafka's tool decode a stopped broker's logs of an internal topic and counts
// the records by what it takes them for, "COMMIT" and "ABORT" among them: "1 v3" is a key of
// kind 1 with a value of version 3, "1 gone" its tombstone; "fields" has the names of all
// fields that it finds in values. What it does not decode is returned.
func (n *Node) decoded(t *testing.T, version, topic string) (kinds, fields map[string]int, undecoded []string) {
	t.Helper()
	mode := map[string]string{"__consumer_offsets": "--offsets-decoder", "__transaction_state": "--transaction-log-decoder"}[topic]
	logs, err := filepath.Glob(filepath.Join(n.LogDir, topic+"-*", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("%v, %v", logs, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd, err := apache.Tool(ctx, version, "dump-log", nil, mode, "--files", strings.Join(logs, ","))
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("dump-log: %v\n%s", err, tail(out, 2000))
	}
	kinds, fields = map[string]int{}, map[string]int{}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSuffix(line, "\n")
		if m := decodedMarker.FindStringSubmatch(line); m != nil {
			kinds[m[1]]++
			continue
		}
		if version == apache.V39 && decoded39.MatchString(line) {
			continue
		}
		if m := decodedRecord.FindStringSubmatch(line); m != nil {
			var key struct{ Type string }
			var value struct {
				Version string
				Data    map[string]any
			}
			err := json.Unmarshal([]byte(m[1]), &key)
			what := "gone"
			if err == nil && m[2] != "<DELETE>" {
				err = json.Unmarshal([]byte(m[2]), &value)
				what = "v" + value.Version
			}
			if err == nil && key.Type != "" {
				kinds[key.Type+" "+what]++
				for f := range value.Data {
					fields[f]++
				}
				continue
			}
		}
		switch {
		case strings.HasPrefix(line, "| offset: "):
			undecoded = append(undecoded, line)
		case strings.HasPrefix(line, "baseOffset: ") && strings.Contains(line, " isvalid: true"):
			if strings.Contains(line, " isTransactional: true ") {
				kinds["transactional"]++
			}
		case strings.HasPrefix(line, "Dumping "), strings.HasPrefix(line, "Log starting offset: "):
		default:
			undecoded = append(undecoded, line)
		}
	}
	return kinds, fields, undecoded
}

// Kafka's tools decode every kind of record that ours writes into __consumer_offsets and
// __transaction_state, tombstones and what is in transactions (committed, aborted, open)
// among them. The black-box suite has most kinds written; the rest follows here.
func TestKafkaDecodesEveryKindOfRecord(t *testing.T) {
	c := Start(t, Options{})
	n := c.Brokers[0]
	b := &target{addr: n.Addr}
	if !t.Run("suite", func(t *testing.T) { runBlackBox(t, b) }) {
		return
	}
	topic := b.topic(t, 2)
	w := b.coordinator(t, "expiring")
	expiring := commitOf(3, "expiring", "", -1, topic.name, map[int32]int64{0: 7})
	expiring.RetentionTimeMillis = 3_600_000
	wantCode(t, "a commit with a retention of its own", commit(w, expiring), nil)
	for _, how := range []string{"commit", "abort", "open"} {
		p := b.offsetsProducer(t, how)
		p.addGroup("in-transactions")
		wantCode(t, how, p.commit(p.commitOf(3, "in-transactions", topic.name, 0, 5)), nil)
		if how != "open" {
			p.end(3, how == "commit")
		}
	}

	// What only others leave behind, and ours writes about: a record of kind 4, which Kafka 4.0
	// wrote and ours removes, and a producer whose epochs are nearly used up.
	old := b.consumerOf(t, "old", "m1", topic.name)
	old.mustBeat()
	worn := kmsg.NewTxnMetadataValue()
	worn.Version, worn.ProducerID, worn.ProducerEpoch, worn.TimeoutMillis = 1, 1<<40, 32_764, 60_000
	worn.State, worn.LastUpdateTimestamp = kmsg.TransactionStateCompleteCommit, time.Now().UnixMilli()
	worn.Topics = []kmsg.TxnMetadataValueTopic{}
	seed := func(topic, name string, key, value []byte) {
		t.Helper()
		rec := []recordbatch.Record{{Timestamp: time.Now().UnixMilli(), Key: key, Value: value}}
		req := produceTo(-1, map[string]map[int32][]byte{topic: {coordinator.PartitionFor(name, 4): build(t, recordbatch.NoProducer(), rec)}})
		wantCode(t, "a record of "+topic, ask[*kmsg.ProduceResponse](w, req).Topics[0].Partitions[0].ErrorCode, nil)
	}
	seed("__consumer_offsets", "old", append([]byte{0, 4, 0, 3}, "old"...), []byte{0, 0, 1, 0})
	wornKey := kmsg.TxnMetadataKey{TransactionalID: "worn"}
	seed("__transaction_state", "worn", wornKey.AppendTo(nil), worn.AppendTo(nil))
	restart := func() {
		t.Helper()
		n.Stop()
		n.Start()
		w = b.coordinator(t, "old")
	}
	restart()
	b.consumerOf(t, "old", "m2", topic.name).mustBeat()
	p := b.offsetsProducer(t, "worn")
	for range 4 {
		Await(t, 20*time.Second, "the next transaction", func() error {
			return kerr.ErrorForCode(p.commit(p.commitOf(5, "in-transactions", topic.name, 1, 5)))
		})
		p.end(5, true)
	}
	if p.pid == 1<<40 {
		t.Errorf("the producer has epoch %d of its old id", p.epoch)
	}

	// All transactional ids expire but those with a transaction.
	f, err := os.OpenFile(n.Properties, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("transactional.id.expiration.ms=1\ntransaction.remove.expired.transaction.cleanup.interval.ms=100\n")
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	restart()
	Await(t, 30*time.Second, "only the open transaction's id", func() error {
		resp := ask[*kmsg.ListTransactionsResponse](w, at(kmsg.NewPtrListTransactionsRequest(), 0))
		var open bool
		for _, s := range resp.TransactionStates {
			if open = open || s.TransactionalID == "open"; s.TransactionState != "Ongoing" {
				return fmt.Errorf("%s is in state %s", s.TransactionalID, s.TransactionState)
			}
		}
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil || !open {
			return fmt.Errorf("%d transactions, %w", len(resp.TransactionStates), err)
		}
		return nil
	})
	n.Stop()

	offsets := []string{"1 v1", "1 v3", "1 gone", "2 v3", "2 gone", "4 v0", "4 gone", "transactional", "COMMIT", "ABORT"}
	for _, kind := range []string{"3", "5", "6", "7", "8"} {
		offsets = append(offsets, kind+" v0", kind+" gone")
	}
	for _, c := range []struct {
		version, topic string
		kinds, fields  []string
	}{
		{apache.V44, "__consumer_offsets", append(slices.Clone(offsets), "16 v0", "16 gone"), []string{"expireTimestamp", "metadataHash", "classicMemberMetadata", "assignmentTimestamp"}},
		{apache.V44, "__transaction_state", []string{"0 v1", "0 gone"}, []string{"previousProducerId", "nextProducerId", "clientTransactionVersion"}},
		{apache.V39, "__consumer_offsets", offsets, nil},
		{apache.V39, "__transaction_state", nil, nil},
	} {
		kinds, fields, undecoded := n.decoded(t, c.version, c.topic)
		t.Logf("Kafka %s, %s: %v", c.version, c.topic, kinds)
		for _, k := range c.kinds {
			if kinds[k] == 0 {
				t.Errorf("Kafka %s finds no %q in %s", c.version, k, c.topic)
			}
			delete(kinds, k)
		}
		for _, f := range c.fields {
			if fields[f] == 0 {
				t.Errorf("Kafka %s finds no %s in %s", c.version, f, c.topic)
			}
		}
		if len(kinds) > 0 {
			t.Errorf("Kafka %s finds besides %v in %s", c.version, kinds, c.topic)
		}
		// Kafka 3.9 does not know regular expressions, and says so: what is said of a kind that
		// is unknown is noticed.
		unknown := 0
		for _, line := range undecoded {
			if c.version == apache.V39 && strings.Contains(line, "Unknown record type 16 at offset") {
				unknown++
				continue
			}
			t.Errorf("Kafka %s, %s: %s", c.version, c.topic, line)
		}
		if (unknown > 0) != (c.version == apache.V39 && c.topic == "__consumer_offsets") {
			t.Errorf("Kafka %s, %s: %d records unknown", c.version, c.topic, unknown)
		}
	}
}
