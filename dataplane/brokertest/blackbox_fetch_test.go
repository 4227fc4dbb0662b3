package brokertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/recordbatch"
)

// fetchOf asks for one partition, without waiting and without a session.
func fetchOf(topic string, partition int32, offset int64) *kmsg.FetchRequest {
	req := at(kmsg.NewPtrFetchRequest(), 12)
	req.MaxBytes, req.MinBytes, req.MaxWaitMillis = 1<<20, 0, 5000
	req.SessionID, req.SessionEpoch = 0, -1
	addFetch(req, topic, [16]byte{}, partition, offset)
	return req
}

func addFetch(req *kmsg.FetchRequest, topic string, id [16]byte, partition int32, offset int64) *kmsg.FetchRequestTopicPartition {
	i := slices.IndexFunc(req.Topics, func(t kmsg.FetchRequestTopic) bool { return t.Topic == topic })
	if i < 0 {
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic, rt.TopicID = topic, id
		req.Topics = append(req.Topics, rt)
		i = len(req.Topics) - 1
	}
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, 1<<20
	p.CurrentLeaderEpoch, p.LastFetchedEpoch = -1, -1
	req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	return &req.Topics[i].Partitions[len(req.Topics[i].Partitions)-1]
}

// fetchOne fetches partition 0 from an offset.
func fetchOne(w *wire, topic string, offset int64) kmsg.FetchResponseTopicPartition {
	w.t.Helper()
	resp := ask[*kmsg.FetchResponse](w, fetchOf(topic, 0, offset))
	if resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		w.t.Fatalf("fetching %s from %d: %+v", topic, offset, resp)
	}
	return resp.Topics[0].Partitions[0]
}

// batchesOf splits record data; a batch cut short at the end is left out, as
// every client does.
func batchesOf(t *testing.T, data []byte) []recordbatch.Batch {
	t.Helper()
	var all []recordbatch.Batch
	for b, err := range recordbatch.Split(data) {
		if err != nil {
			break
		}
		all = append(all, b)
	}
	return all
}

// values are the records' values with their offsets.
func values(t *testing.T, data []byte) (all []string) {
	t.Helper()
	for _, b := range batchesOf(t, data) {
		if err := recordbatch.Records(b, func(r recordbatch.Record) error {
			all = append(all, fmt.Sprintf("%d:%s", r.Offset, r.Value))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

var fetchCases = []blackBoxCase{
	{"Fetch/v4 to v17 give the records from the batch of the offset on", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		mustProduce(w, topic.name, batch(t, "a", "b"), 0)
		mustProduce(w, topic.name, batch(t, "c", "d"), 2)
		mustProduce(w, topic.name, batch(t, "e"), 4)
		for v := int16(4); v < 18; v++ {
			for offset, want := range []string{"0:a 1:b 2:c 3:d 4:e", "0:a 1:b 2:c 3:d 4:e", "2:c 3:d 4:e", "2:c 3:d 4:e", "4:e", ""} {
				req := at(fetchOf(topic.name, 0, int64(offset)), v)
				req.Topics[0].TopicID = topic.id
				resp := ask[*kmsg.FetchResponse](w, req)
				wantCode(t, "fetch", resp.ErrorCode, nil)
				if len(resp.Topics) != 1 || (v < 13 && resp.Topics[0].Topic != topic.name) || (v >= 13 && resp.Topics[0].TopicID != topic.id) {
					t.Fatalf("v%d: %+v", v, resp.Topics)
				}
				p := resp.Topics[0].Partitions[0]
				if got := strings.Join(values(t, p.RecordBatches), " "); got != want || p.ErrorCode != 0 {
					t.Errorf("v%d from %d: %q and %d, want %q", v, offset, got, p.ErrorCode, want)
				}
				if p.HighWatermark != 5 || p.LastStableOffset != 5 || (v >= 5 && p.LogStartOffset != 0) || (v >= 11 && p.PreferredReadReplica != -1) {
					t.Errorf("v%d: %+v", v, p)
				}
				if p.AbortedTransactions != nil {
					t.Errorf("v%d: a list of aborted transactions for read_uncommitted", v)
				}
			}
		}
	}},
	{"Fetch/stored batches are what was sent but for offset and epoch", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		for i, codec := range []recordbatch.Codec{recordbatch.CodecNone, recordbatch.CodecGzip, recordbatch.CodecSnappy, recordbatch.CodecLZ4, recordbatch.CodecZstd} {
			o := recordbatch.NoProducer()
			o.Codec = codec
			sent := build(t, o, records("a", strings.Repeat("b", 1000)))
			mustProduce(w, topic.name, sent, int64(2*i))
			got := batchesOf(t, fetchOne(w, topic.name, int64(2*i)).RecordBatches)
			if len(got) != 1 || got[0].BaseOffset() != int64(2*i) || got[0].LeaderEpoch() != 0 || string(got[0][16:]) != string(sent[16:]) {
				t.Errorf("codec %v: the batch has changed", codec)
			}
		}
	}},
	{"Fetch/the first batch comes whole whatever the limits", func(t *testing.T, b *target) {
		topic := b.topic(t, 2, "max.message.bytes=4000000")
		w := b.dial(t)
		mustProduce(w, topic.name, batch(t, strings.Repeat("x", 2<<20)), 0)
		req := produceTo(-1, map[string]map[int32][]byte{topic.name: {1: batch(t, "small")}})
		ask[*kmsg.ProduceResponse](w, req)
		fetch := fetchOf(topic.name, 0, 0)
		fetch.MaxBytes, fetch.MinBytes, fetch.Topics[0].Partitions[0].PartitionMaxBytes = 1024, 1, 1024
		addFetch(fetch, topic.name, [16]byte{}, 1, 0)
		resp := ask[*kmsg.FetchResponse](w, fetch)
		for _, p := range resp.Topics[0].Partitions {
			if got := len(values(t, p.RecordBatches)); (p.Partition == 0) != (got == 1) {
				t.Errorf("partition %d: %d records", p.Partition, got)
			}
		}
		// An empty first partition does not use the favour up.
		fetch.Topics[0].Partitions[0], fetch.Topics[0].Partitions[1] = fetch.Topics[0].Partitions[1], fetch.Topics[0].Partitions[0]
		fetch.Topics[0].Partitions[0].FetchOffset = 1
		resp = ask[*kmsg.FetchResponse](w, fetch)
		for _, p := range resp.Topics[0].Partitions {
			if got := len(values(t, p.RecordBatches)); (p.Partition == 0) != (got == 1) {
				t.Errorf("after an empty one, partition %d: %d records", p.Partition, got)
			}
		}
		// v3+ knows the favour for the whole reply only: a later partition is bounded by its own limit.
		fetch.Topics[0].Partitions[0].FetchOffset, fetch.MaxBytes = 0, 8<<20
		resp = ask[*kmsg.FetchResponse](w, fetch)
		for _, p := range resp.Topics[0].Partitions {
			if got := len(values(t, p.RecordBatches)); (p.Partition == 1) != (got == 1) {
				t.Errorf("after a small one, partition %d: %d records", p.Partition, got)
			}
		}
	}},
	{"Fetch/limits bound partitions and the reply", func(t *testing.T, b *target) {
		topic := b.topic(t, 2)
		w := b.dial(t)
		one := len(batch(t, strings.Repeat("x", 1000)))
		for range 10 {
			for p := range int32(2) {
				ask[*kmsg.ProduceResponse](w, produceTo(-1, map[string]map[int32][]byte{topic.name: {p: batch(t, strings.Repeat("x", 1000))}}))
			}
		}
		req := fetchOf(topic.name, 0, 0)
		req.Topics[0].Partitions[0].PartitionMaxBytes = int32(3*one + 10)
		addFetch(req, topic.name, [16]byte{}, 1, 0)
		req.MaxBytes = int32(5*one + 20)
		got := map[int32]int{}
		bytes := 0
		for _, p := range ask[*kmsg.FetchResponse](w, req).Topics[0].Partitions {
			got[p.Partition] = len(values(t, p.RecordBatches))
			bytes += len(p.RecordBatches)
		}
		if got[0] != 3 || got[1] != 2 || bytes > int(req.MaxBytes) {
			t.Errorf("%v batches in %d bytes, want 3 and 2", got, bytes)
		}
	}},
	{"Fetch/a long poll ends when enough has come", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w, p := b.dial(t), b.dial(t)
		req := fetchOf(topic.name, 0, 0)
		req.MinBytes, req.MaxWaitMillis = int32(2*len(batch(t, "a"))), 20_000
		began := time.Now()
		w.send(req)
		mustProduce(p, topic.name, batch(t, "a"), 0)
		_ = w.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		if _, err := w.r.Peek(1); err == nil {
			t.Fatal("answered before enough had come")
		}
		_ = w.SetReadDeadline(time.Now().Add(30 * time.Second))
		mustProduce(p, topic.name, batch(t, "b"), 1)
		resp, err := w.receive(req)
		if err != nil {
			t.Fatal(err)
		}
		if got := values(t, resp.(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches); len(got) != 2 || time.Since(began) > 10*time.Second {
			t.Errorf("%v after %v", got, time.Since(began))
		}
	}},
	{"Fetch/a long poll ends by its time", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		mustProduce(w, topic.name, batch(t, "a"), 0)
		req := fetchOf(topic.name, 0, 0)
		req.MinBytes, req.MaxWaitMillis = 1<<20, 400
		began := time.Now()
		p := ask[*kmsg.FetchResponse](w, req).Topics[0].Partitions[0]
		if d := time.Since(began); len(values(t, p.RecordBatches)) != 1 || d < 390*time.Millisecond || d > 5*time.Second {
			t.Errorf("%d bytes after %v", len(p.RecordBatches), d)
		}
		req.MaxWaitMillis = 0
		began = time.Now()
		ask[*kmsg.FetchResponse](w, req)
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("a fetch that waits for nothing took %v", d)
		}
	}},
	{"Fetch/an error ends a long poll at once", func(t *testing.T, b *target) {
		topic, empty := b.topic(t, 1), b.topic(t, 1)
		w := b.dial(t)
		for what, req := range map[string]*kmsg.FetchRequest{
			"out of range": func() *kmsg.FetchRequest {
				r := fetchOf(empty.name, 0, 0)
				addFetch(r, topic.name, [16]byte{}, 0, 9)
				return r
			}(),
			"unknown": func() *kmsg.FetchRequest {
				r := fetchOf(empty.name, 0, 0)
				addFetch(r, topic.name, [16]byte{}, 7, 0)
				return r
			}(),
		} {
			req.MinBytes, req.MaxWaitMillis = 1, 10_000
			began := time.Now()
			ask[*kmsg.FetchResponse](w, req)
			if d := time.Since(began); d > 5*time.Second && !(b.kafka && what == "unknown") {
				t.Errorf("%s: %v", what, d)
			}
		}
	}},
	{"Fetch/offsets out of range", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		mustProduce(w, topic.name, batch(t, "a", "b"), 0)
		for offset, want := range map[int64]*kerr.Error{-1: kerr.OffsetOutOfRange, 2: nil, 3: kerr.OffsetOutOfRange, 1 << 60: kerr.OffsetOutOfRange} {
			p := fetchOne(w, topic.name, offset)
			wantCode(t, fmt.Sprint("offset ", offset), p.ErrorCode, want)
			if want != nil && (p.HighWatermark != -1 || p.LogStartOffset != -1 || p.LastStableOffset != -1) {
				t.Errorf("offset %d: %+v", offset, p)
			}
		}
	}},
	{"Fetch/unknown topics, ids and partitions", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		wantCode(t, "topic", fetchOne(w, b.name("absent"), 0).ErrorCode, kerr.UnknownTopicOrPartition)
		req := fetchOf(topic.name, 5, 0)
		p := ask[*kmsg.FetchResponse](w, req).Topics[0].Partitions[0]
		wantCode(t, "partition", p.ErrorCode, kerr.UnknownTopicOrPartition)
		if p.HighWatermark != -1 {
			t.Errorf("%+v", p)
		}
		for v := int16(13); v < 18; v++ {
			req := at(fetchOf(topic.name, 0, 0), v)
			req.Topics[0].TopicID = [16]byte{9, 9}
			addFetch(req, "good", topic.id, 0, 0)
			resp := ask[*kmsg.FetchResponse](w, req)
			wantCode(t, "the reply", resp.ErrorCode, nil)
			for _, rt := range resp.Topics {
				want := kerr.UnknownTopicID
				if rt.TopicID == topic.id {
					want = nil
				}
				wantCode(t, fmt.Sprintf("v%d id %x", v, rt.TopicID), rt.Partitions[0].ErrorCode, want)
			}
			if len(resp.Topics) != 2 {
				t.Errorf("%d topics", len(resp.Topics))
			}
		}
	}},
	{"Fetch/leader epochs fence", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		mustProduce(w, topic.name, batch(t, "a"), 0)
		for epoch, want := range map[int32]*kerr.Error{-1: nil, 0: nil, 1: kerr.UnknownLeaderEpoch} {
			req := fetchOf(topic.name, 0, 0)
			req.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
			wantCode(t, fmt.Sprint("epoch ", epoch), ask[*kmsg.FetchResponse](w, req).Topics[0].Partitions[0].ErrorCode, want)
		}
	}},
	{"Fetch/an epoch that ended earlier diverges", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		mustProduce(w, topic.name, batch(t, "a", "b"), 0)
		req := fetchOf(topic.name, 0, 1)
		req.Topics[0].Partitions[0].LastFetchedEpoch = 0
		p := ask[*kmsg.FetchResponse](w, req).Topics[0].Partitions[0]
		if p.ErrorCode != 0 || p.DivergingEpoch.Epoch != -1 || len(p.RecordBatches) == 0 {
			t.Errorf("%+v", p)
		}
	}},
	{"Fetch/isolation levels", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		mustProduce(w, topic.name, batch(t, "a"), 0)
		for v := int16(4); v < 18; v++ {
			for level := range int8(2) {
				req := at(fetchOf(topic.name, 0, 0), v)
				req.Topics[0].TopicID, req.IsolationLevel = topic.id, level
				p := ask[*kmsg.FetchResponse](w, req).Topics[0].Partitions[0]
				if len(values(t, p.RecordBatches)) != 1 || p.LastStableOffset != 1 || len(p.AbortedTransactions) != 0 || (level == 1) != (p.AbortedTransactions != nil) {
					t.Errorf("v%d level %d: %+v", v, level, p)
				}
			}
		}
	}},
	{"Fetch/many topics in any order are all answered", func(t *testing.T, b *target) {
		w := b.dial(t)
		one, two := b.topic(t, 3), b.topic(t, 3)
		req := fetchOf(two.name, 2, 0)
		for _, p := range []int32{1, 0, 7} {
			addFetch(req, one.name, [16]byte{}, p, 0)
			addFetch(req, two.name, [16]byte{}, p-1, 0)
		}
		n := 0
		for _, rt := range ask[*kmsg.FetchResponse](w, req).Topics {
			n += len(rt.Partitions)
		}
		if n != 7 {
			t.Errorf("%d partitions of 7 are answered", n)
		}
	}},
}

var sessionCases = []blackBoxCase{
	{"fetch sessions/later replies name only what is new", func(t *testing.T, b *target) {
		topic := b.topic(t, 3)
		w, p := b.dial(t), b.dial(t)
		for v := int16(7); v < 18; v++ {
			full := at(fetchOf(topic.name, 0, 0), v)
			full.Topics[0].TopicID = topic.id
			for i := int32(1); i < 3; i++ {
				addFetch(full, topic.name, topic.id, i, 0)
			}
			end := int64(v-7) * 2
			full.Topics[0].Partitions[0].FetchOffset = end
			full.SessionEpoch, full.MaxWaitMillis = 0, 0
			first := ask[*kmsg.FetchResponse](w, full)
			if first.ErrorCode != 0 || first.SessionID == 0 || len(first.Topics) != 1 || len(first.Topics[0].Partitions) != 3 {
				t.Fatalf("v%d: %+v", v, first)
			}
			next := func(epoch int32, change func(*kmsg.FetchRequest)) *kmsg.FetchResponse {
				t.Helper()
				req := at(fetchOf(topic.name, 0, 0), v)
				req.Topics = nil
				req.SessionID, req.SessionEpoch, req.MaxWaitMillis = first.SessionID, epoch, 0
				if change != nil {
					change(req)
				}
				return ask[*kmsg.FetchResponse](w, req)
			}
			if r := next(1, nil); r.ErrorCode != 0 || len(r.Topics) != 0 || r.SessionID != first.SessionID {
				t.Errorf("v%d: nothing is new, and the reply has %+v", v, r)
			}
			mustProduce(p, topic.name, batch(t, "a"), end)
			if r := next(2, nil); len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 || len(values(t, r.Topics[0].Partitions[0].RecordBatches)) != 1 {
				t.Errorf("v%d: the new record is missing: %+v", v, r)
			}
			moved := func(req *kmsg.FetchRequest) { addFetch(req, topic.name, topic.id, 0, end+1) }
			if r := next(3, moved); len(r.Topics) != 0 {
				t.Errorf("v%d: nothing after the record, and the reply has %+v", v, r)
			}
			if r := next(3, nil); r.ErrorCode != kerr.InvalidFetchSessionEpoch.Code || len(r.Topics) != 0 {
				t.Errorf("v%d: an epoch twice: %v", v, kerr.ErrorForCode(r.ErrorCode))
			}
			forget := func(req *kmsg.FetchRequest) {
				f := kmsg.NewFetchRequestForgottenTopic()
				f.Topic, f.TopicID, f.Partitions = topic.name, topic.id, []int32{0}
				req.ForgottenTopics = append(req.ForgottenTopics, f)
			}
			if r := next(4, forget); r.ErrorCode != 0 || len(r.Topics) != 0 {
				t.Errorf("v%d: %+v", v, r)
			}
			mustProduce(p, topic.name, batch(t, "a"), end+1)
			if r := next(5, nil); len(r.Topics) != 0 {
				t.Errorf("v%d: a forgotten partition is in the reply", v)
			}
			closing := next(-1, nil)
			if closing.ErrorCode != 0 || closing.SessionID != 0 {
				t.Errorf("v%d: closing the session: %+v", v, closing)
			}
			wantCode(t, "the closed session", next(6, nil).ErrorCode, kerr.FetchSessionIDNotFound)
		}
	}},
	{"fetch sessions/a topic made anew under its name is another one", func(t *testing.T, b *target) {
		w := b.dial(t)
		for _, v := range []int16{12, 13, 17} {
			old := b.topic(t, 1)
			mustProduce(w, old.name, batch(t, "old", "old"), 0)
			full := at(fetchOf(old.name, 0, 2), v)
			full.Topics[0].TopicID = old.id
			full.SessionEpoch, full.MaxWaitMillis = 0, 0
			first := ask[*kmsg.FetchResponse](w, full)
			if first.ErrorCode != 0 || first.SessionID == 0 {
				t.Fatalf("v%d: %+v", v, first)
			}
			epoch := int32(0)
			next := func(change func(*kmsg.FetchRequest)) *kmsg.FetchResponse {
				t.Helper()
				req := at(fetchOf(old.name, 0, 0), v)
				req.Topics = nil
				epoch++
				req.SessionID, req.SessionEpoch, req.MaxWaitMillis = first.SessionID, epoch, 0
				if change != nil {
					change(req)
				}
				return ask[*kmsg.FetchResponse](w, req)
			}
			del := at(kmsg.NewPtrDeleteTopicsRequest(), 5)
			del.TopicNames, del.TimeoutMillis = []string{old.name}, 10_000
			wantCode(t, "the deletion", ask[*kmsg.DeleteTopicsResponse](w, del).Topics[0].ErrorCode, nil)
			var anew [16]byte
			Await(t, time.Minute, "the topic made anew", func() error {
				req, rt := at(kmsg.NewPtrCreateTopicsRequest(), 7), kmsg.NewCreateTopicsRequestTopic()
				rt.Topic, rt.NumPartitions, rt.ReplicationFactor = old.name, 1, 1
				req.Topics, req.TimeoutMillis = append(req.Topics, rt), 10_000
				made := ask[*kmsg.CreateTopicsResponse](w, req).Topics[0]
				anew = made.TopicID
				return kerr.ErrorForCode(made.ErrorCode)
			})
			if anew == old.id {
				t.Fatal("it has the old id")
			}
			awaitProduce(w, old.name, batch(t, "new"), nil)
			if v == 12 { // by name: the session goes on, at an offset that the new log does not have
				r := next(nil)
				if r.ErrorCode != 0 || len(r.Topics) != 1 || r.Topics[0].Partitions[0].ErrorCode != kerr.OffsetOutOfRange.Code {
					t.Errorf("v%d: %+v", v, r)
				}
				continue
			}
			r := next(nil)
			if r.ErrorCode != 0 || len(r.Topics) != 1 || r.Topics[0].TopicID != old.id || len(r.Topics[0].Partitions[0].RecordBatches) > 0 {
				t.Fatalf("v%d: %+v", v, r)
			}
			if err := kerr.ErrorForCode(r.Topics[0].Partitions[0].ErrorCode); err != kerr.UnknownTopicID && err != kerr.InconsistentTopicID {
				t.Errorf("v%d: the old topic is answered with %v", v, err)
			}
			r = next(func(req *kmsg.FetchRequest) {
				f := kmsg.NewFetchRequestForgottenTopic()
				f.TopicID, f.Partitions = old.id, []int32{0}
				req.ForgottenTopics = append(req.ForgottenTopics, f)
				addFetch(req, old.name, anew, 0, 0)
			})
			if r.ErrorCode != 0 || len(r.Topics) != 1 || r.Topics[0].TopicID != anew || len(values(t, r.Topics[0].Partitions[0].RecordBatches)) != 1 {
				t.Errorf("v%d: the new topic in the same session: %+v", v, r)
			}
		}
	}},
	{"fetch sessions/an unknown session", func(t *testing.T, b *target) {
		w := b.dial(t)
		req := fetchOf(b.topic(t, 1).name, 0, 0)
		req.SessionID, req.SessionEpoch = 12345, 3
		resp := ask[*kmsg.FetchResponse](w, req)
		wantCode(t, "unknown session", resp.ErrorCode, kerr.FetchSessionIDNotFound)
		if resp.SessionID != 0 || len(resp.Topics) != 0 {
			t.Errorf("%+v", resp)
		}
	}},
	{"fetch sessions/names and ids do not mix", func(t *testing.T, b *target) {
		w := b.dial(t)
		topic := b.topic(t, 1)
		full := fetchOf(topic.name, 0, 0)
		full.SessionEpoch, full.MaxWaitMillis = 0, 0
		first := ask[*kmsg.FetchResponse](w, full)
		req := at(fetchOf(topic.name, 0, 0), 13)
		req.Topics[0].TopicID = topic.id
		req.SessionID, req.SessionEpoch = first.SessionID, 1
		wantCode(t, "ids in a session of names", ask[*kmsg.FetchResponse](w, req).ErrorCode, kerr.FetchSessionTopicIDError)
	}},
	{"fetch sessions/a partition with an error stays in the replies", func(t *testing.T, b *target) {
		w := b.dial(t)
		topic := b.topic(t, 1)
		full := fetchOf(topic.name, 0, 9)
		full.SessionEpoch, full.MaxWaitMillis = 0, 0
		first := ask[*kmsg.FetchResponse](w, full)
		wantCode(t, "first", first.Topics[0].Partitions[0].ErrorCode, kerr.OffsetOutOfRange)
		req := fetchOf(topic.name, 0, 0)
		req.Topics, req.SessionID, req.SessionEpoch, req.MaxWaitMillis = nil, first.SessionID, 1, 0
		again := ask[*kmsg.FetchResponse](w, req)
		if len(again.Topics) != 1 {
			t.Fatalf("%+v", again)
		}
		wantCode(t, "again", again.Topics[0].Partitions[0].ErrorCode, kerr.OffsetOutOfRange)
	}},
}
