package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/recordbatch"
)

// Rows of the group coordinator.
const (
	commitAlone   = "3 brokers: commit of 6 offsets, 1,000/s, p99"
	commitLatency = "the same beside 15 MB/s of produce, p99"
	rebalanceTime = "3 brokers: rebalance of 100 members"
	offsetsLoad   = "offsets served again after a restart, from the first answer"
	offsetsMemory = "the same: memory (RSS)"
)

// What a coordinator may be of, by FindCoordinator's key types.
const (
	ofGroup int8 = iota
	ofTransactions
)

// coordinatorOf dials the coordinator of a group or of a transactional id, which may
// have to be elected first.
func coordinatorOf(t *target, what int8, key string) (*conn, error) {
	c, err := dial(t.addrs[0])
	if err != nil {
		return nil, err
	}
	defer c.Close()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.SetVersion(2)
	req.CoordinatorKey, req.CoordinatorType = key, what
	for deadline := time.Now().Add(readyWithin); ; time.Sleep(10 * time.Millisecond) {
		resp, err := c.do(req)
		if err != nil {
			return nil, err
		}
		r := resp.(*kmsg.FindCoordinatorResponse)
		if r.ErrorCode == 0 {
			return dial(net.JoinHostPort(r.Host, strconv.Itoa(int(r.Port))))
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("no coordinator of %s: %w", key, kerr.ErrorForCode(r.ErrorCode))
		}
	}
}

func commitRequest(group, topic string, partitions int32, offset int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.SetVersion(7)
	req.Group, req.Generation = group, -1
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = topic
	empty := ""
	for p := range partitions {
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = p, offset, -1, &empty
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

// commitOn commits and takes the retriable errors of a coordinator that is getting ready.
func commitOn(c *conn, req *kmsg.OffsetCommitRequest) error {
	for deadline := time.Now().Add(readyWithin); ; time.Sleep(5 * time.Millisecond) {
		resp, err := c.do(req)
		if err != nil {
			return err
		}
		code := resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
		if code == 0 {
			return nil
		}
		if err := kerr.ErrorForCode(code); !kerr.IsRetriable(err) || time.Now().After(deadline) {
			return fmt.Errorf("commit of %s: %w", req.Group, err)
		}
	}
}

// commits has 50 groups commit 20 times a second each, and measures each commit from
// when it was due: a slow one delays the next, and that counts.
func commits(ctx context.Context, t *target, length time.Duration) (p99 float64, err error) {
	const groups, every = 50, 50 * time.Millisecond
	latencies, errs := make([][]time.Duration, groups), make([]error, groups)
	var wg sync.WaitGroup
	for i := range groups {
		c, err := coordinatorOf(t, ofGroup, fmt.Sprint("bench-commit-", i))
		if err != nil {
			return 0, err
		}
		defer c.Close()
		wg.Go(func() {
			req := commitRequest(fmt.Sprint("bench-commit-", i), topic, partitions, 1)
			if errs[i] = commitOn(c, req); errs[i] != nil {
				return
			}
			began := time.Now().Add(time.Duration(i) * every / groups)
			for n := 0; ctx.Err() == nil; n++ {
				due := began.Add(time.Duration(n) * every)
				if due.Sub(began) >= length {
					return
				}
				if err := pause(ctx, time.Until(due)); err != nil {
					errs[i] = err
					return
				}
				resp, err := c.do(req)
				if err == nil {
					err = kerr.ErrorForCode(resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode)
				}
				if err != nil {
					errs[i] = err
					return
				}
				if due.Sub(began) >= time.Second { // the first second is the warm-up
					latencies[i] = append(latencies[i], time.Since(due))
				}
			}
		})
	}
	wg.Wait()
	return percentile(slices.Concat(latencies...), 0.99), errors.Join(errs...)
}

// besides keeps producing batches of 100 KB to every partition, 150 a second in all, until
// what it returns is called.
func besides(ctx context.Context, t *target) (stop func() error, err error) {
	b, err := batch(perBatch, recordbatch.CodecNone)
	if err != nil {
		return nil, err
	}
	led, err := t.leaders(topic, partitions)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	errs := make([]error, len(led))
	var wg sync.WaitGroup
	for p, addr := range led {
		c, err := dial(addr)
		if err != nil {
			cancel()
			wg.Wait()
			return nil, err
		}
		frame := produceFrame(topic, int32(p), -1, b)
		wg.Go(func() {
			defer c.Close()
			tick := time.NewTicker(40 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				if _, errs[p] = c.produce([][]byte{frame}, 1); errs[p] != nil {
					return
				}
			}
		})
	}
	return func() error {
		cancel()
		wg.Wait()
		return errors.Join(errs...)
	}, nil
}

// groupSteps load the coordinators of three brokers.
var groupSteps = []step{
	{warm: 1, run: func(ctx context.Context, o options, t *target, f figures) (err error) {
		f[commitAlone], err = commits(ctx, t, o.latency)
		return err
	}},
	{warm: 1, run: func(ctx context.Context, o options, t *target, f figures) error {
		stop, err := besides(ctx, t)
		if err != nil {
			return err
		}
		f[commitLatency], err = commits(ctx, t, o.latency)
		return errors.Join(err, stop())
	}},
	{warm: 1, run: func(_ context.Context, _ options, t *target, f figures) (err error) {
		f[rebalanceTime], err = rebalances(t, 100, 10)
		return err
	}},
}

// groupMember is one member on a connection of its own.
type groupMember struct {
	c    *conn
	join *kmsg.JoinGroupRequest
}

// rebalance joins with news, so that all have to, and comes back with an assignment.
func (m *groupMember) rebalance(round int) error {
	md := kmsg.NewConsumerMemberMetadata()
	md.Topics, md.UserData = []string{topic}, fmt.Appendf(nil, "%064d", round)
	m.join.Protocols[0].Metadata = md.AppendTo(nil)
	for {
		resp, err := m.c.do(m.join)
		if err != nil {
			return err
		}
		r := resp.(*kmsg.JoinGroupResponse)
		if r.ErrorCode == kerr.MemberIDRequired.Code {
			m.join.MemberID = r.MemberID
			continue
		}
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			if kerr.IsRetriable(err) || r.ErrorCode == kerr.RebalanceInProgress.Code {
				time.Sleep(5 * time.Millisecond)
				continue
			}
			return fmt.Errorf("join: %w", err)
		}
		sync := kmsg.NewPtrSyncGroupRequest()
		sync.SetVersion(3)
		sync.Group, sync.MemberID, sync.Generation = m.join.Group, r.MemberID, r.Generation
		for _, other := range r.Members { // the leader's only
			ga := kmsg.NewSyncGroupRequestGroupAssignment()
			ga.MemberID, ga.MemberAssignment = other.MemberID, make([]byte, 100)
			sync.GroupAssignment = append(sync.GroupAssignment, ga)
		}
		resp, err = m.c.do(sync)
		if err != nil {
			return err
		}
		switch code := resp.(*kmsg.SyncGroupResponse).ErrorCode; code {
		case 0:
			return nil
		case kerr.RebalanceInProgress.Code, kerr.IllegalGeneration.Code:
		default:
			return fmt.Errorf("sync: %w", kerr.ErrorForCode(code))
		}
	}
}

// rebalances is the median in ms of some rounds in which all members of a group join at
// once; a round is over when the last of them has its assignment.
func rebalances(t *target, members, rounds int) (float64, error) {
	group := fmt.Sprintf("bench-rebalance-%d", time.Now().UnixNano())
	all := make([]*groupMember, members)
	for i := range all {
		c, err := coordinatorOf(t, ofGroup, group)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		join := kmsg.NewPtrJoinGroupRequest()
		join.SetVersion(5)
		join.Group, join.ProtocolType = group, "consumer"
		join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 60_000, 60_000
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name = "range"
		join.Protocols = append(join.Protocols, p)
		all[i] = &groupMember{c, join}
	}
	var took []time.Duration
	for round := range rounds + 2 { // the first ones bring the group together
		errs := make([]error, members)
		var wg sync.WaitGroup
		began := time.Now()
		for i, m := range all {
			wg.Go(func() { errs[i] = m.rebalance(round) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return 0, err
		}
		if round >= 2 {
			took = append(took, time.Since(began))
		}
	}
	return percentile(took, 0.5), nil
}

// offsetsTopic is wide, so that a million offsets do not need a million partitions.
const (
	offsetsTopic      = "bench-offsets"
	offsetsPartitions = 1000
)

// offsetSteps restart one broker that has many committed offsets.
var offsetSteps = []step{
	{once: true, run: func(_ context.Context, o options, t *target, _ figures) error {
		if err := createTopic(t, offsetsTopic, offsetsPartitions, nil); err != nil {
			return err
		}
		for g := range o.offsets / offsetsPartitions {
			group := fmt.Sprint("bench-offsets-", g)
			c, err := coordinatorOf(t, ofGroup, group)
			if err != nil {
				return err
			}
			err = commitOn(c, commitRequest(group, offsetsTopic, offsetsPartitions, 7))
			c.Close()
			if err != nil {
				return err
			}
		}
		return nil
	}},
	{run: func(ctx context.Context, o options, t *target, f figures) error {
		if err := t.down(0); err != nil {
			return err
		}
		if _, err := t.up(ctx, 0); err != nil {
			return err
		}
		began := time.Now()
		if err := awaitOffsets(t, o.offsets/offsetsPartitions); err != nil {
			return err
		}
		f[offsetsLoad] = float64(time.Since(began).Microseconds()) / 1000
		var err error
		f[offsetsMemory], err = t.rss()
		return err
	}},
}

// awaitOffsets waits until a group of each partition of the offsets topic tells its
// offsets. Asking goes round those that have not: what is loaded last ends it.
func awaitOffsets(t *target, groups int) error {
	waiting := map[int32]string{} // by partition; both makes have 50
	for g := range groups {
		name := fmt.Sprint("bench-offsets-", g)
		waiting[coordinator.PartitionFor(name, 50)] = name
	}
	c, err := dial(t.addrs[0])
	if err != nil {
		return err
	}
	defer c.Close()
	for deadline := time.Now().Add(readyWithin); len(waiting) > 0; time.Sleep(time.Millisecond) {
		for p, group := range waiting {
			req := kmsg.NewPtrOffsetFetchRequest()
			req.SetVersion(5)
			req.Group = group
			req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: offsetsTopic, Partitions: []int32{0, offsetsPartitions - 1}}}
			resp, err := c.do(req)
			if err != nil {
				return err
			}
			r := resp.(*kmsg.OffsetFetchResponse)
			if r.ErrorCode != 0 {
				if time.Now().After(deadline) {
					return fmt.Errorf("offsets of %s: %w", group, kerr.ErrorForCode(r.ErrorCode))
				}
				continue
			}
			for _, rp := range r.Topics[0].Partitions {
				if rp.Offset != 7 {
					return fmt.Errorf("offset %d of %s-%d after the restart", rp.Offset, group, rp.Partition)
				}
			}
			delete(waiting, p)
		}
	}
	return nil
}
