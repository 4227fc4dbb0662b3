package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"
)

// catchUp stops the last broker, produces while it is away, starts it and measures
// from its first answer until every partition has all its replicas in sync again.
func catchUp(ctx context.Context, o options, t *target, f figures) error {
	const topic = "bench-behind"
	if err := createTopic(t, topic, partitions, map[string]string{"min.insync.replicas": "1"}); err != nil {
		return err
	}
	away := len(t.addrs) - 1
	if err := t.down(away); err != nil {
		return err
	}
	inSync := func(replicas int) error {
		return awaitMetadata(t.addrs[0], topic, func(m *kmsg.MetadataResponse) bool {
			for _, p := range m.Topics[0].Partitions {
				if len(p.ISR) != replicas || p.Leader < 0 {
					return false
				}
			}
			return true
		})
	}
	if err := inSync(away); err != nil {
		return err
	}
	requests := int(o.behind * 1e9 / (perBatch * recordSize))
	if _, err := produce(ctx, t, load{topic: topic, requests: requests, records: perBatch, acks: -1}); err != nil {
		return err
	}
	unix.Sync()
	if _, err := t.up(ctx, away); err != nil {
		return err
	}
	before, err := t.cpu()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := inSync(len(t.addrs)); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := t.cpu()
	bytes := float64(requests) * perBatch * recordSize
	f["3 brokers: a follower far behind catches up"] = bytes / 1e6 / took.Seconds()
	f["the same: CPU of all"] = (after - before).Seconds() / (bytes / 1e9)
	return err
}
