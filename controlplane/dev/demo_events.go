package dev

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/controlplane/dev/data"
)

// events produces the real events and reads them back in a group.
func (d *demo) events(ctx context.Context) error {
	all, err := data.Earthquakes()
	if err != nil {
		return err
	}
	if err := d.r.do("usage so far", func() (string, error) { return d.baseline(ctx) }); err != nil {
		return err
	}
	what := fmt.Sprintf("produce %s earthquakes, keyed by network, zstd, acks=all", thousands(int64(len(all))))
	if d.st.Produced {
		d.r.row("events", "%s, produced by an earlier run", thousands(int64(len(all))))
	} else if err := d.r.do(what, func() (string, error) { return d.produceEvents(ctx, all) }); err != nil {
		return err
	}
	return d.r.do("read them in a group, compare every byte and the order within each key", func() (string, error) {
		return d.consumeEvents(ctx, all)
	})
}

func (d *demo) produceEvents(ctx context.Context, all []data.Event) (string, error) {
	cl, err := d.kafka(d.st.Account, kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.RequiredAcks(kgo.AllISRAcks()))
	if err != nil {
		return "", err
	}
	defer cl.Close()
	old, err := ends(ctx, cl, eventsTopic)
	if err != nil {
		return "", err
	}
	for _, end := range old {
		if end > 0 { // a run was killed in the middle of this step: begin it anew
			if err := d.tenant.DeleteTopic(ctx, d.st.ClusterID, eventsTopic); err != nil {
				return "", err
			}
			if err := d.makeTopic(ctx, eventsTopic, map[string]string{"min.insync.replicas": "2", "retention.ms": "-1"}); err != nil {
				return "", err
			}
			break
		}
	}
	records := make([]*kgo.Record, len(all))
	for i, e := range all {
		records[i] = &kgo.Record{Topic: eventsTopic, Key: []byte(e.Network), Value: e.Line, Timestamp: time.UnixMilli(e.Time)}
	}
	began := time.Now()
	if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return "", err
	}
	took := time.Since(began)
	c := d.counts[d.st.Account.ClientID]
	if err := d.settle(ctx, &c.inRecords, int64(len(all))); err != nil {
		return "", err
	}
	d.st.Produced = true
	var plain int
	for _, e := range all {
		plain += len(e.Line)
	}
	d.r.row("events", "%s, %s of JSON in %s of batches, acknowledged by all in-sync replicas in %d ms", thousands(int64(len(all))),
		size(float64(plain)), size(float64(c.in.Load())), took.Milliseconds())
	return fmt.Sprintf("%s in %d batches", size(float64(c.in.Load())), c.inBatches.Load()), d.save()
}

// settle waits until kgo's hooks, which run on goroutines of their own, have
// counted as many records as were acknowledged.
func (d *demo) settle(ctx context.Context, counted interface{ Load() int64 }, want int64) error {
	return until(ctx, "kgo's count", func(context.Context) error {
		if n := counted.Load(); n != want {
			return fmt.Errorf("%d of %d records", n, want)
		}
		return nil
	})
}

func (d *demo) consumeEvents(ctx context.Context, all []data.Event) (string, error) {
	group := "seismologists-" + d.run
	cl, err := d.kafka(d.st.Account, kgo.ConsumerGroup(group), kgo.ConsumeTopics(eventsTopic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	if err != nil {
		return "", err
	}
	defer cl.Close()
	to, err := ends(ctx, cl, eventsTopic)
	if err != nil {
		return "", err
	}
	var got []*kgo.Record
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("the group did not read all within a minute"))
	defer cancel()
	if err := readTo(ctx, cl, nil, to, func(r *kgo.Record) { got = append(got, r) }); err != nil {
		return "", err
	}
	if err := compare(got, all); err != nil {
		return "", err
	}
	if err := cl.CommitUncommittedOffsets(ctx); err != nil {
		return "", fmt.Errorf("commit: %w", err)
	}
	committed, err := kadm.NewClient(cl).FetchOffsets(ctx, group)
	if err != nil {
		return "", fmt.Errorf("fetch committed offsets: %w", err)
	}
	for p, end := range to {
		if o, ok := committed.Lookup(eventsTopic, p); end > 0 && (!ok || o.At != end) {
			return "", fmt.Errorf("partition %d: committed %d, want %d", p, o.At, end)
		}
	}
	if err := cl.LeaveGroupContext(ctx); err != nil {
		return "", fmt.Errorf("leave the group: %w", err)
	}
	d.r.row("read back", "%s events by group %s, byte for byte, in order within %d keys, offsets committed", thousands(int64(len(got))), group, len(byKey(all)))
	return fmt.Sprintf("%s events, offsets committed by group %s", thousands(int64(len(got))), group), nil
}

func byKey(all []data.Event) map[string][][]byte {
	m := map[string][][]byte{}
	for _, e := range all {
		m[e.Network] = append(m[e.Network], e.Line)
	}
	return m
}

// compare checks that got holds exactly the events, in their order within each
// key, each with its own time.
func compare(got []*kgo.Record, all []data.Event) error {
	if len(got) != len(all) {
		return fmt.Errorf("%d events came back, want %d", len(got), len(all))
	}
	want := byKey(all)
	times := map[string]int64{}
	for _, e := range all {
		times[string(e.Line)] = e.Time
	}
	for _, r := range got {
		k := string(r.Key)
		if len(want[k]) == 0 {
			return fmt.Errorf("one more event of network %q than was sent: %s", k, r.Value)
		}
		if !bytes.Equal(r.Value, want[k][0]) {
			return fmt.Errorf("network %q, partition %d, offset %d: got %s, want %s", k, r.Partition, r.Offset, r.Value, want[k][0])
		}
		want[k] = want[k][1:]
		if r.Timestamp.UnixMilli() != times[string(r.Value)] {
			return fmt.Errorf("partition %d, offset %d: time %d, want %d", r.Partition, r.Offset, r.Timestamp.UnixMilli(), times[string(r.Value)])
		}
	}
	return nil
}

// rewind reads again from an offset, and from a time.
func (d *demo) rewind(ctx context.Context) error {
	all, err := data.Earthquakes()
	if err != nil {
		return err
	}
	if err := d.r.do("read again from an offset", func() (string, error) { return d.rewindToOffset(ctx) }); err != nil {
		return err
	}
	return d.r.do("read again from a time", func() (string, error) { return d.rewindToTime(ctx, all) })
}

// readAgain reads the events from these offsets to their ends with a client of
// its own.
func (d *demo) readAgain(ctx context.Context, from, to map[int32]int64) ([]*kgo.Record, error) {
	cl, err := d.kafka(d.st.Account, at(eventsTopic, from))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("not read within a minute"))
	defer cancel()
	var got []*kgo.Record
	err = readTo(ctx, cl, from, to, func(r *kgo.Record) { got = append(got, r) })
	return got, err
}

func (d *demo) eventEnds(ctx context.Context) (*kgo.Client, map[int32]int64, error) {
	cl, err := d.kafka(d.st.Account)
	if err != nil {
		return nil, nil, err
	}
	to, err := ends(ctx, cl, eventsTopic)
	if err != nil {
		cl.Close()
		return nil, nil, err
	}
	return cl, to, nil
}

func (d *demo) rewindToOffset(ctx context.Context) (string, error) {
	cl, to, err := d.eventEnds(ctx)
	if err != nil {
		return "", err
	}
	defer cl.Close()
	var longest int32
	for p, end := range to {
		if end > to[longest] {
			longest = p
		}
	}
	from := map[int32]int64{longest: to[longest] / 2}
	got, err := d.readAgain(ctx, from, map[int32]int64{longest: to[longest]})
	if err != nil {
		return "", err
	}
	for i, r := range got {
		if want := from[longest] + int64(i); r.Offset != want {
			return "", fmt.Errorf("offset %d where %d was due", r.Offset, want)
		}
	}
	if n := int64(len(got)); n != to[longest]-from[longest] {
		return "", fmt.Errorf("%d events from offset %d, want %d", n, from[longest], to[longest]-from[longest])
	}
	d.r.row("rewind by offset", "partition %d from %d: %d events", longest, from[longest], len(got))
	return fmt.Sprintf("partition %d from offset %d, %d events", longest, from[longest], len(got)), nil
}

func (d *demo) rewindToTime(ctx context.Context, all []data.Event) (string, error) {
	cl, to, err := d.eventEnds(ctx)
	if err != nil {
		return "", err
	}
	defer cl.Close()
	when := all[2*len(all)/3].Time
	listed, err := kadm.NewClient(cl).ListOffsetsAfterMilli(ctx, when, eventsTopic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return "", fmt.Errorf("offsets after a time: %w", err)
	}
	from := map[int32]int64{}
	for p, o := range listed[eventsTopic] {
		from[p] = o.Offset
	}
	got, err := d.readAgain(ctx, from, to)
	if err != nil {
		return "", err
	}
	// The events stand in the order of their times.
	i, _ := slices.BinarySearchFunc(all, when, func(e data.Event, t int64) int { return int(min(1, max(-1, e.Time-t))) })
	if err := compare(got, all[i:]); err != nil {
		return "", err
	}
	at := time.UnixMilli(when).UTC().Format("2006-01-02 15:04:05")
	d.r.row("rewind by time", "from %s UTC: %d events", at, len(got))
	return fmt.Sprintf("from %s UTC, %d events", at, len(got)), nil
}
