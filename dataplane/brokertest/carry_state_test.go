//go:build compat

package brokertest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// glob names things in the folders.
func (f *folder) glob(pattern string) []string {
	f.t.Helper()
	got, err := filepath.Glob(filepath.Join(f.data, "*", pattern))
	if err != nil {
		f.t.Fatal(err)
	}
	return got
}

// verifyState asks for what is not records: topics, starts, epochs, offsets by
// time, groups.
func (f *folder) verifyState() {
	f.t.Helper()
	topics := slices.Sorted(maps.Keys(f.byTopic))
	f.within(func(ctx context.Context, adm *kadm.Client) error {
		list, err := adm.ListTopics(ctx)
		if err != nil {
			return err
		}
		if list.Has("gone") {
			f.t.Errorf("%s: a deleted topic is back", f.who)
		}
		starts, err := adm.ListStartOffsets(ctx, topics...)
		if err != nil {
			return err
		}
		for _, topic := range topics {
			l := f.byTopic[topic]
			if got := list[topic]; got.Err != nil || got.ID != l.id {
				f.t.Errorf("%s: %s has id %v (%v), want %v", f.who, topic, got.ID, got.Err, l.id)
			}
			if got, _ := starts.Lookup(topic, 0); got.Err != nil || got.Offset != l.start {
				f.t.Errorf("%s: %s starts at %d (%v), want %d", f.who, topic, got.Offset, got.Err, l.start)
			}
		}
		configs, err := adm.DescribeTopicConfigs(ctx, topics...)
		if err != nil {
			return err
		}
		for _, rc := range configs {
			for _, c := range rc.Configs {
				if want := f.byTopic[rc.Name].configs[c.Key]; want != nil && c.MaybeValue() != *want {
					f.t.Errorf("%s: %s of %s is %q, want %q", f.who, c.Key, rc.Name, c.MaybeValue(), *want)
				}
			}
		}
		return nil
	})
	f.verifyTimes()
	f.verifyEpochs()
	if len(f.offsets) > 0 {
		f.verifyGroups()
	}
}

// verifyTimes asks for offsets by timestamp.
func (f *folder) verifyTimes() {
	f.t.Helper()
	for topic, l := range f.byTopic {
		// Kafka looks into one segment only, and finds nothing if what it looks for
		// lies there, but below the start of the log.
		if l.compacted || l.start > 0 && f.who == kafka {
			continue
		}
		var rs []*kgo.Record
		times := map[int64]bool{}
		for o, w := range l.recs {
			if o >= l.start {
				rs = append(rs, &w.rec)
				times[w.rec.Timestamp.UnixMilli()] = true
			}
		}
		slices.SortFunc(rs, func(a, b *kgo.Record) int { return cmp.Compare(a.Offset, b.Offset) })
		sorted := slices.Sorted(maps.Keys(times))
		if len(sorted) == 0 {
			continue
		}
		f.within(func(ctx context.Context, adm *kadm.Client) error {
			for i := range 6 {
				at := max(0, sorted[i*(len(sorted)-1)/5]-int64(i%2))
				want := int64(-1)
				for _, r := range rs {
					if r.Timestamp.UnixMilli() >= at {
						want = r.Offset
						break
					}
				}
				if topic == "tx" || topic == "txlate" { // a marker has a time, too
					continue
				}
				got, err := adm.ListOffsetsAfterMilli(ctx, at, topic)
				if err != nil {
					return err
				}
				if o, _ := got.Lookup(topic, 0); want >= 0 && (o.Err != nil || o.Offset != want) {
					f.t.Errorf("%s: the first offset of %s from time %d on is %d (%v), want %d", f.who, topic, at, o.Offset, o.Err, want)
				}
			}
			return nil
		})
	}
}

// verifyEpochs asks where each leader epoch ends. A finished epoch's end is the
// same whoever is asked.
func (f *folder) verifyEpochs() {
	f.t.Helper()
	cl := f.client()
	defer cl.Close()
	f.within(func(ctx context.Context, adm *kadm.Client) error {
		list, err := adm.ListTopics(ctx, slices.Collect(maps.Keys(f.byTopic))...)
		if err != nil {
			return err
		}
		for topic, l := range f.byTopic {
			latest := list[topic].Partitions[0].LeaderEpoch
			found := map[int32]int64{}
			for e := range latest + 1 {
				epoch, end, err := epochEnd(ctx, cl, topic, e)
				if err != nil {
					return err
				}
				if epoch == e && e < latest {
					found[e] = end
				}
			}
			// Of a compacted topic, and below a start that has moved, epochs may go.
			if l.compacted || l.start > 0 {
				continue
			}
			for e, end := range l.ends {
				if got, ok := found[e]; !ok || got != end {
					f.t.Errorf("%s: epoch %d of %s ends at %d (%v), it was %d", f.who, e, topic, got, ok, end)
				}
			}
			l.ends = found
		}
		return nil
	})
}

// epochEnd is the newest epoch up to the given one that a log has, and its end.
func epochEnd(ctx context.Context, cl *kgo.Client, topic string, epoch int32) (int32, int64, error) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	rp.CurrentLeaderEpoch, rp.LeaderEpoch = -1, epoch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := at(req, 3).RequestWith(ctx, cl.SeedBrokers()[0])
	if err != nil {
		return 0, 0, err
	}
	got := resp.Topics[0].Partitions[0]
	return got.LeaderEpoch, got.EndOffset, kerr.ErrorForCode(got.ErrorCode)
}

// commit moves a simple group on, and makes and deletes another one.
func (f *folder) commit(leg int) {
	f.t.Helper()
	f.within(func(ctx context.Context, adm *kadm.Client) error {
		for i, group := range []string{"simple", fmt.Sprintf("of-leg-%d", leg), "dead"} {
			at := int64(leg*1000 + i)
			os := kadm.Offsets{}
			os.Add(kadm.Offset{Topic: "plain", Partition: 0, At: at, LeaderEpoch: 0, Metadata: "metadata of " + group})
			if err := adm.CommitAllOffsets(ctx, group, os); err != nil {
				return err
			}
			f.offsets[group] = at
		}
		resp, err := adm.DeleteGroups(ctx, "dead")
		if err == nil {
			err = resp.Error()
		}
		delete(f.offsets, "dead")
		return err
	})
	// A group with a member that leaves.
	cl := f.client(kgo.ConsumerGroup("members"), kgo.ConsumeTopics("plain"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if cl.PollRecords(ctx, 10).NumRecords() == 0 {
		f.t.Fatalf("%s: a group's member gets nothing", f.who)
	}
	if err := cl.CommitUncommittedOffsets(ctx); err != nil {
		f.t.Fatalf("%s: a group's commit: %v", f.who, err)
	}
	f.offsets["members"] = cl.CommittedOffsets()["plain"][0].Offset
}

func (f *folder) verifyGroups() {
	f.t.Helper()
	f.within(func(ctx context.Context, adm *kadm.Client) error {
		for group, want := range f.offsets {
			got, err := adm.FetchOffsets(ctx, group)
			if err != nil {
				return err
			}
			o, _ := got.Lookup("plain", 0)
			meta := ""
			if o.LeaderEpoch >= 0 {
				meta = "metadata of " + group
			}
			if group == "members" { // the client writes its member id there
				meta = o.Metadata
			}
			if o.Err != nil || o.At != want || o.Metadata != meta {
				f.t.Errorf("%s: group %s is at %d %q (%v), want %d %q", f.who, group, o.At, o.Metadata, o.Err, want, meta)
			}
		}
		groups, err := adm.ListGroups(ctx) // all have been loaded by now
		if err != nil {
			return err
		}
		for group := range f.offsets {
			if g, ok := groups[group]; !ok || g.State != "Empty" {
				f.t.Errorf("%s: group %s is %q (%v)", f.who, group, g.State, ok)
			}
		}
		if f.readersAt > 0 {
			got, err := adm.FetchOffsets(ctx, "readers")
			if err != nil {
				return err
			}
			if o, _ := got.Lookup("flood", 0); o.At < f.readersAt {
				f.t.Errorf("%s: group readers is at %d, but %d was acknowledged", f.who, o.At, f.readersAt)
			}
		}
		if got, err := adm.FetchOffsets(ctx, "dead"); err != nil || len(got) > 0 {
			f.t.Errorf("%s: a deleted group has offsets: %v, %v", f.who, got, err)
		}
		if f.pending { // an open transaction's commit is not seen, and whoever insists on stable offsets is told to wait
			got, err := adm.FetchOffsets(ctx, "txpending")
			if err != nil {
				return err
			}
			if o, ok := got.Lookup("plain", 0); ok && o.At >= 0 {
				f.t.Errorf("%s: offset %d of an open transaction is seen", f.who, o.At)
			}
			f.wantUnstable(ctx, "txpending")
		}
		return nil
	})
}

// wantUnstable asks for an offset that a transaction has yet to decide on.
func (f *folder) wantUnstable(ctx context.Context, group string) {
	f.t.Helper()
	cl := f.client()
	defer cl.Close()
	req := kmsg.NewPtrOffsetFetchRequest()
	rt := kmsg.NewOffsetFetchRequestGroupTopic()
	rt.Topic, rt.Partitions = "plain", []int32{0}
	rg := kmsg.NewOffsetFetchRequestGroup()
	rg.Group, rg.Topics = group, append(rg.Topics, rt)
	req.RequireStable, req.Groups = true, append(req.Groups, rg)
	resp, err := at(req, 8).RequestWith(ctx, cl.SeedBrokers()[0])
	if err != nil {
		f.t.Fatal(err)
	}
	wantCode(f.t, fmt.Sprintf("%s: a stable offset while a transaction's is pending", f.who), resp.Groups[0].Topics[0].Partitions[0].ErrorCode, kerr.UnstableOffsetCommit)
}

// internals read Kafka's own topics; whoever has the folder may clean them, but
// nothing else may change while it is away.
func (f *folder) internals() reading {
	topics := []string{"__consumer_offsets"}
	if len(f.glob("__transaction_state-*")) > 0 {
		topics = append(topics, "__transaction_state")
	}
	return f.readAll(kgo.ReadUncommitted(), topics...)
}

// verifyInternals compares the internal topics with what they held before the
// move.
func (f *folder) verifyInternals() {
	f.t.Helper()
	if f.before == nil {
		return
	}
	now := f.internals()
	for topic, parts := range f.before {
		for p, was := range parts {
			newest := map[string]int64{}
			at := map[int64]*kgo.Record{}
			for _, r := range now[topic][p] {
				at[r.Offset] = r
				newest[string(r.Key)] = r.Offset
			}
			known := map[int64]bool{}
			for _, r := range was {
				known[r.Offset] = true
				if got := at[r.Offset]; got == nil {
					if newest[string(r.Key)] <= r.Offset && r.Value != nil && !r.Attrs.IsControl() && !r.Attrs.IsTransactional() {
						f.t.Errorf("%s: %s-%d: offset %d is gone, and nothing replaces it", f.who, topic, p, r.Offset)
					}
				} else if err := sameRecord(got, r); err != nil || got.ProducerID != r.ProducerID || got.ProducerEpoch != r.ProducerEpoch || got.Attrs.IsControl() != r.Attrs.IsControl() || got.Attrs.IsTransactional() != r.Attrs.IsTransactional() {
					f.t.Errorf("%s: %s-%d: offset %d is not what it was: %v", f.who, topic, p, r.Offset, err)
				}
			}
			if len(was) > 0 {
				for _, r := range now[topic][p] {
					if r.Offset <= was[len(was)-1].Offset && !known[r.Offset] {
						f.t.Errorf("%s: %s-%d: offset %d was not there", f.who, topic, p, r.Offset)
					}
				}
			}
		}
	}
}
