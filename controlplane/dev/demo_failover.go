package dev

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/controlplane/provision"
)

// failover kills the broker that leads most partitions while records are being
// produced, and shows that nothing acknowledged is lost, doubled or out of order.
func (d *demo) failover(ctx context.Context) error {
	if err := d.makeTopic(ctx, failoverTopic, map[string]string{"min.insync.replicas": "2", "retention.ms": "600000"}); err != nil {
		return err
	}
	cl, err := d.kafka(d.st.Bystander, even(), kgo.ProducerLinger(0))
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := until(ctx, "topic "+failoverTopic, func(ctx context.Context) error { return inSync(ctx, cl, failoverTopic) }); err != nil {
		return err
	}
	from, err := ends(ctx, cl, failoverTopic)
	if err != nil {
		return err
	}
	p := &steady{cl: cl, c: d.counts[d.st.Bystander.ClientID]}
	p.begin(ctx)
	defer p.end()
	if err := d.r.do("kill -9 the broker that leads most partitions, while producing with acks=all", func() (string, error) {
		return d.killLeader(ctx, cl, p)
	}); err != nil {
		return err
	}
	if err := d.r.do("restarted, and back in every in-sync set", func() (string, error) {
		began := time.Now()
		err := until(ctx, "the cluster", func(ctx context.Context) error {
			for _, t := range []string{failoverTopic, pingTopic} {
				if err := inSync(ctx, cl, t); err != nil {
					return err
				}
			}
			return nil
		})
		d.r.row("back in sync", "after another %.1f s", time.Since(began).Seconds())
		return "", err
	}); err != nil {
		return err
	}
	return d.r.do("no acknowledged record lost, none doubled, none out of order", func() (string, error) {
		sent, err := p.end()
		if err != nil {
			return "", err
		}
		if err := d.settle(ctx, &p.c.inRecords, p.before+sent); err != nil {
			return "", err
		}
		to, err := ends(ctx, cl, failoverTopic)
		if err != nil {
			return "", err
		}
		if err := d.checkSequence(ctx, from, to, sent); err != nil {
			return "", err
		}
		d.r.row("records across the kill", "%s sent, acknowledged and read once each, in order; longest wait for an acknowledgement %.1f s", thousands(sent), p.slowest.Seconds())
		return thousands(sent) + " records", nil
	})
}

// killLeader kills and waits until others lead.
func (d *demo) killLeader(ctx context.Context, cl *kgo.Client, p *steady) (string, error) {
	if err := p.await(ctx, 200); err != nil {
		return "", err
	}
	md, err := kadm.NewClient(cl).Metadata(ctx)
	if err != nil {
		return "", err
	}
	leads := map[int32]int{}
	for _, t := range md.Topics {
		for _, part := range t.Partitions {
			leads[part.Leader]++
		}
	}
	// Of two that lead as many, not the controller: that one may be back before
	// another controller is elected, and then nothing needs to move.
	victim := int32(-1)
	for _, id := range slices.Sorted(maps.Keys(leads)) {
		if victim < 0 || leads[id] > leads[victim] || leads[id] == leads[victim] && victim == md.Controller {
			victim = id
		}
	}
	ref := strconv.Itoa(int(victim))
	dir := d.s.f.path(brokersDir, d.st.ClusterID, ref)
	old, err := provision.Look(dir)
	if err != nil {
		return "", err
	}
	killed := time.Now()
	if err := provision.KillBroker(ctx, dir); err != nil {
		return "", err
	}
	acked := p.acknowledged()
	err = until(ctx, "a new leader", func(ctx context.Context) error {
		now, err := kadm.NewClient(cl).Metadata(ctx, failoverTopic)
		if err != nil {
			return err
		}
		for _, part := range now.Topics[failoverTopic].Partitions {
			// It may be back already and lead again: what counts is that every
			// partition has had another leader since, which raises the epoch.
			was := md.Topics[failoverTopic].Partitions[part.Partition]
			if was.Leader == victim && part.LeaderEpoch <= was.LeaderEpoch && victim != md.Controller || part.Leader < 0 {
				return fmt.Errorf("partition %d is led by %d, epoch %d", part.Partition, part.Leader, part.LeaderEpoch)
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	moved := time.Since(killed)
	if err := p.await(ctx, acked+200); err != nil { // and goes on
		return "", err
	}
	if d.s.o.NoRestart { // then by hand, as an operator would
		if err := provision.LetRun(ctx, dir); err != nil {
			return "", err
		}
	}
	d.r.row("broker killed", "broker %d (pid %d), leader of %d partitions; others lead after %.1f s", victim, old.Broker.PID, leads[victim], moved.Seconds())
	return fmt.Sprintf("broker %d, leader of %d partitions; others lead after %.1f s", victim, leads[victim], moved.Seconds()), nil
}

// steady produces a numbered record to each partition in turn until it is ended.
type steady struct {
	cl     *kgo.Client
	c      *counter
	before int64

	mu      sync.Mutex
	acks    int64
	err     error
	slowest time.Duration

	stop chan struct{}
	once sync.Once
	done chan struct{}
	sent int64
}

func (p *steady) begin(ctx context.Context) {
	p.stop, p.done = make(chan struct{}), make(chan struct{})
	p.before = p.c.inRecords.Load()
	go func() {
		defer close(p.done)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-p.stop:
				if err := p.cl.Flush(ctx); err != nil {
					p.fail(err)
				}
				return
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			began := time.Now()
			part, n := p.sent%partitions, p.sent/partitions
			p.sent++
			p.cl.Produce(ctx, &kgo.Record{Topic: failoverTopic, Partition: int32(part), Key: fmt.Appendf(nil, "key-%d", part), Value: fmt.Appendf(nil, "%d %d", part, n)},
				func(_ *kgo.Record, err error) {
					p.mu.Lock()
					defer p.mu.Unlock()
					if err != nil {
						p.err = errors.Join(p.err, err)
						return
					}
					p.acks++
					p.slowest = max(p.slowest, time.Since(began))
				})
		}
	}()
}

func (p *steady) fail(err error) {
	p.mu.Lock()
	p.err = errors.Join(p.err, err)
	p.mu.Unlock()
}

func (p *steady) acknowledged() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acks
}

// await waits for so many acknowledgements.
func (p *steady) await(ctx context.Context, n int64) error {
	return until(ctx, "the producer", func(context.Context) error {
		if have := p.acknowledged(); have < n {
			return fmt.Errorf("%d of %d records are acknowledged", have, n)
		}
		return nil
	})
}

// end stops it, waits for the last acknowledgement, and tells how many records
// were sent, all of which must have been acknowledged.
func (p *steady) end() (int64, error) {
	p.once.Do(func() { close(p.stop) })
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil && p.acks != p.sent {
		return p.sent, fmt.Errorf("%d records sent, %d acknowledged", p.sent, p.acks)
	}
	return p.sent, p.err
}

// checkSequence reads what was produced: every number once, in order.
func (d *demo) checkSequence(ctx context.Context, from, to map[int32]int64, sent int64) error {
	cl, err := d.kafka(d.st.Bystander, at(failoverTopic, from))
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("not read within a minute"))
	defer cancel()
	next := map[int32]int64{}
	var wrong error
	if err := readTo(ctx, cl, from, to, func(r *kgo.Record) {
		part, n, _ := strings.Cut(string(r.Value), " ")
		if wrong == nil && (part != strconv.Itoa(int(r.Partition)) || n != strconv.FormatInt(next[r.Partition], 10)) {
			wrong = fmt.Errorf("partition %d, offset %d holds %q, want number %d", r.Partition, r.Offset, r.Value, next[r.Partition])
		}
		next[r.Partition]++
	}); err != nil {
		return err
	}
	var total int64
	for _, n := range next {
		total += n
	}
	if wrong == nil && total != sent {
		wrong = fmt.Errorf("%d records read, %d were acknowledged", total, sent)
	}
	return wrong
}
