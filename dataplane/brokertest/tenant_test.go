package brokertest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	wirebytes "encoding/binary"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestHostileTenant has a principal with every right on topics and groups use
// up the broker. The bounds of memory: 64 MiB for any question, however often
// it asks for the same; for the 500,000 partitions of fetch sessions 128 MiB, for
// large frames the budget of 256 MiB, and both as much again, since the collector
// lets the heap double. Another client is served within 3 s.
func TestHostileTenant(t *testing.T) {
	s := startSecured(t, 1)
	s.topic("orders", 1)
	s.topic("wide", 100)
	s.allow("alice", kmsg.ACLResourceTypeTopic, "orders", kmsg.ACLOperationRead, kmsg.ACLOperationWrite)
	s.allow("greedy", kmsg.ACLResourceTypeTopic, "*", kmsg.ACLOperationAll)
	s.allow("greedy", kmsg.ACLResourceTypeGroup, "*", kmsg.ACLOperationAll)
	s.allow("greedy", kmsg.ACLResourceTypeCluster, "kafka-cluster", kmsg.ACLOperationDescribeConfigs)
	n := s.Brokers[0]
	n.forgetPeak()
	base := n.memory("VmRSS")
	c := s.customer(t, "orders")
	part := func(name string, bound int, f func(t *testing.T, w *rawConn)) {
		t.Run(name, func(t *testing.T) {
			before := n.memory("VmRSS")
			n.forgetPeak()
			began := time.Now()
			f(t, s.client("greedy"))
			c.served(t, 3*time.Second)
			peak := n.memory("VmHWM")
			t.Logf("%v; memory %d MiB at the start, %d before, %d at its peak", time.Since(began).Round(time.Millisecond), base, before, peak)
			if peak > before+bound {
				t.Errorf("memory rose from %d to %d MiB, bound %d", before, peak, bound)
			}
			if n.ended() {
				t.Fatal("the broker has ended")
			}
		})
	}
	const times = 100_000
	part("a topic asked for often", 64, func(t *testing.T, w *rawConn) {
		r := w.must(metadataOf(slices.Repeat([]string{"wide"}, times)...)).(*kmsg.MetadataResponse)
		if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 100 {
			t.Errorf("%d topics", len(r.Topics))
		}
	})
	part("settings asked for often", 64, func(t *testing.T, w *rawConn) {
		for _, res := range []kmsg.DescribeConfigsRequestResource{configResource(kmsg.ConfigResourceTypeTopic, "wide"), configResource(kmsg.ConfigResourceTypeBroker, "0")} {
			req := kmsg.NewPtrDescribeConfigsRequest()
			req.IncludeDocumentation, req.IncludeSynonyms = true, true
			req.Resources = slices.Repeat([]kmsg.DescribeConfigsRequestResource{res}, times)
			if r := w.must(req).(*kmsg.DescribeConfigsResponse); len(r.Resources) != 1 || len(r.Resources[0].Configs) == 0 {
				t.Errorf("%d resources", len(r.Resources))
			}
		}
		req := kmsg.NewPtrDescribeConfigsRequest()
		for i := range times { // other ways to write 0
			req.Resources = append(req.Resources, configResource(kmsg.ConfigResourceTypeBroker, strings.Repeat("0", 2+i%30)))
		}
		if got := codes(w.must(req)); !slices.Equal(got, []int16{kerr.InvalidRequest.Code}) {
			t.Errorf("%v", got)
		}
	})
	part("a group asked for often", 64, func(t *testing.T, w *rawConn) {
		ready(t, w, "team")
		commit := sample(t, 8, "orders", "team").(*kmsg.OffsetCommitRequest)
		long := strings.Repeat("m", 4000)
		commit.Topics[0].Partitions[0].Metadata = &long
		if got := codes(w.must(commit)); !slices.Equal(got, []int16{0}) {
			t.Fatalf("committing: %v", got)
		}
		describe := kmsg.NewPtrDescribeGroupsRequest()
		describe.Groups = slices.Repeat([]string{"team"}, times)
		if r := w.must(describe).(*kmsg.DescribeGroupsResponse); len(r.Groups) != 1 {
			t.Errorf("%d groups described", len(r.Groups))
		}
		fetch := sample(t, 9, "orders", "team").(*kmsg.OffsetFetchRequest)
		g := fetch.Groups[0]
		g.Topics = nil // all
		fetch.Groups = slices.Repeat([]kmsg.OffsetFetchRequestGroup{g}, times)
		if r := w.must(fetch).(*kmsg.OffsetFetchResponse); len(r.Groups) != 1 || len(r.Groups[0].Topics) != 1 {
			t.Errorf("offsets of %d groups", len(r.Groups))
		}
		g.Topics = slices.Repeat([]kmsg.OffsetFetchRequestGroupTopic{{Topic: "orders", Partitions: slices.Repeat([]int32{0}, 100)}}, times/100)
		fetch.Groups = []kmsg.OffsetFetchRequestGroup{g}
		if r := w.must(fetch).(*kmsg.OffsetFetchResponse); len(r.Groups[0].Topics) != 1 || len(r.Groups[0].Topics[0].Partitions) != 1 {
			t.Errorf("offsets of %d topics", len(r.Groups[0].Topics))
		}
		old := kmsg.NewPtrOffsetFetchRequest()
		old.SetVersion(7)
		old.Group = "team"
		old.Topics = slices.Repeat([]kmsg.OffsetFetchRequestTopic{{Topic: "orders", Partitions: slices.Repeat([]int32{0}, 100)}}, times/100)
		resp, err := w.ask(old)
		if err != nil {
			t.Fatal(err)
		}
		if r := resp.(*kmsg.OffsetFetchResponse); len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
			t.Errorf("offsets of %d topics", len(r.Topics))
		}
	})
	part("topics of endless partitions", 64, func(t *testing.T, w *rawConn) {
		for _, count := range []int32{1<<31 - 1, 1 << 20} {
			for _, dry := range []bool{true, false} {
				create := sample(t, 19, "x", "").(*kmsg.CreateTopicsRequest)
				create.ValidateOnly, create.Topics[0].NumPartitions = dry, count
				if got := codes(w.must(create)); !slices.Equal(got, []int16{kerr.InvalidPartitions.Code}) {
					t.Errorf("creating %d partitions: %v", count, got)
				}
				grow := sample(t, 37, "orders", "").(*kmsg.CreatePartitionsRequest)
				grow.ValidateOnly, grow.Topics[0].Count = dry, count
				if got := codes(w.must(grow)); !slices.Equal(got, []int16{kerr.InvalidPartitions.Code}) {
					t.Errorf("growing to %d partitions: %v", count, got)
				}
			}
		}
		many := sample(t, 19, "x", "").(*kmsg.CreateTopicsRequest)
		one := many.Topics[0]
		many.ValidateOnly, many.Topics, many.TimeoutMillis = true, nil, 1000
		for i := range 20_000 { // 200 million partitions in all
			one.Topic, one.NumPartitions = fmt.Sprint("t", i), 10_000
			many.Topics = append(many.Topics, one)
		}
		began := time.Now()
		got := codes(w.must(many))
		t.Logf("20,000 topics of 10,000 partitions: %v after %v", got, time.Since(began).Round(time.Millisecond))
		if !slices.Contains(got, kerr.InvalidPartitions.Code) && !slices.Contains(got, kerr.PolicyViolation.Code) {
			t.Errorf("200 million partitions in one request: %v", got)
		}
	})
	part("fetch sessions without end", 256, func(t *testing.T, w *rawConn) {
		req := fetchFrom("wide", 0, 1<<20)
		req.SessionEpoch, req.MaxWaitMillis = 0, 0
		p := req.Topics[0].Partitions[0]
		req.Topics[0].Partitions = nil
		for i := range 10_000 {
			p.Partition = int32(i)
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
		}
		sessions := map[int32]bool{}
		for range 70 { // 700,000 partitions
			resp, err := w.ask(req)
			if err != nil {
				t.Fatal(err)
			}
			sessions[resp.(*kmsg.FetchResponse).SessionID] = true
		}
		if !sessions[0] || len(sessions) < 40 {
			t.Errorf("%d sessions were made", len(sessions))
		}
	})
	part("large frames that stop before their end", 2*256, func(t *testing.T, w *rawConn) {
		// The offsets of one large batch, but for its end; 600 MB in all.
		head := append(wirebytes.BigEndian.AppendUint32(nil, 99<<20), rawFrame(0, 11)[4:]...)
		most := bytes.Repeat([]byte{0}, 98<<20)
		for range 6 {
			w := s.client("greedy")
			go func() {
				if _, err := w.Write(head); err == nil {
					_, _ = w.Write(most)
				}
			}()
		}
		Await(t, 20*time.Second, "the frames being in memory", func() error {
			if now := n.memory("VmRSS"); now < base+90 {
				return fmt.Errorf("%d MiB", now)
			}
			return nil
		})
		// Who sends a large frame in earnest gets its turn: those who stop give way.
		began := time.Now()
		resp, err := w.ask(produceOf("orders", 1, sized(t, 20<<20)))
		if err != nil {
			t.Fatal(err)
		}
		if got := codes(resp); got[len(got)-1] != kerr.MessageTooLarge.Code {
			t.Errorf("%v", got)
		}
		t.Logf("a request of 20 MB was answered after %v", time.Since(began).Round(time.Millisecond))
	})
}

// ready makes the group's coordinator known and loaded.
func ready(t *testing.T, w *rawConn, group string) {
	t.Helper()
	Await(t, 20*time.Second, "the coordinator", func() error {
		r := w.must(sample(t, 10, "", group)).(*kmsg.FindCoordinatorResponse)
		if err := kerr.ErrorForCode(r.Coordinators[0].ErrorCode); err != nil {
			return err
		}
		d := w.must(sample(t, 15, "", group)).(*kmsg.DescribeGroupsResponse)
		if err := kerr.ErrorForCode(d.Groups[0].ErrorCode); !errors.Is(err, kerr.GroupIDNotFound) {
			return err
		}
		return nil // nobody has made it yet
	})
}
