package brokeradmin

import (
	"context"
	"fmt"
	"maps"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Quota is what one user may take of the whole cluster; nil is no limit.
type Quota struct {
	BytesIn, BytesOut *int64   // a second
	RequestPercentage *float64 // of one thread's time
}

// Kafka's names of the three.
const (
	producerByteRate  = "producer_byte_rate"
	consumerByteRate  = "consumer_byte_rate"
	requestPercentage = "request_percentage"
)

// share is what each broker enforces, so that all of them together come to the
// whole: brokers count for themselves and do not know of each other. A client
// whose load is not spread evenly gets less than its whole.
func (q Quota) share(brokers int) map[string]float64 {
	m := map[string]float64{}
	n := float64(max(brokers, 1))
	if q.BytesIn != nil {
		m[producerByteRate] = math.Ceil(float64(*q.BytesIn) / n)
	}
	if q.BytesOut != nil {
		m[consumerByteRate] = math.Ceil(float64(*q.BytesOut) / n)
	}
	if q.RequestPercentage != nil {
		m[requestPercentage] = *q.RequestPercentage / n
	}
	return m
}

// SetQuota brings the quota of a user on a cluster of this many brokers to the
// wish. The zero Quota lifts all limits.
func (a *Admin) SetQuota(ctx context.Context, user string, q Quota, brokers int) error {
	want := q.share(brokers)
	have, err := quotaOf(ctx, a.cl, user)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrAlterClientQuotasRequest()
	entry := kmsg.NewAlterClientQuotasRequestEntry()
	entity := kmsg.NewAlterClientQuotasRequestEntryEntity()
	entity.Type, entity.Name = "user", &user
	entry.Entity = append(entry.Entity, entity)
	for _, key := range []string{producerByteRate, consumerByteRate, requestPercentage} {
		w, wanted := want[key]
		h, there := have[key]
		if wanted == there && w == h {
			continue
		}
		op := kmsg.NewAlterClientQuotasRequestEntryOp()
		op.Key, op.Value, op.Remove = key, w, !wanted
		entry.Ops = append(entry.Ops, op)
	}
	if len(entry.Ops) > 0 {
		req.Entries = append(req.Entries, entry)
		resp, err := req.RequestWith(ctx, a.cl)
		if err != nil {
			return fmt.Errorf("alter quota of %s: %w", user, err)
		}
		for _, e := range resp.Entries {
			if err := codeError(e.ErrorCode, e.ErrorMessage); err != nil {
				return fmt.Errorf("alter quota of %s: %w", user, err)
			}
		}
	}
	return a.everywhere(ctx, "quota of "+user, func(ctx context.Context, b *kgo.Broker) (bool, error) {
		now, err := quotaOf(ctx, b, user)
		return maps.Equal(now, want), err
	})
}

func quotaOf(ctx context.Context, r kmsg.Requestor, user string) (map[string]float64, error) {
	req := kmsg.NewPtrDescribeClientQuotasRequest()
	req.Strict = true // the user alone, not the user with a client id
	c := kmsg.NewDescribeClientQuotasRequestComponent()
	c.EntityType, c.MatchType, c.Match = "user", kmsg.QuotasMatchTypeExact, &user
	req.Components = append(req.Components, c)
	resp, err := req.RequestWith(ctx, r)
	if err == nil {
		err = codeError(resp.ErrorCode, resp.ErrorMessage)
	}
	if err != nil {
		return nil, fmt.Errorf("describe quota of %s: %w", user, err)
	}
	m := map[string]float64{}
	for _, e := range resp.Entries {
		for _, v := range e.Values {
			m[v.Key] = v.Value
		}
	}
	return m, nil
}

func codeError(code int16, message *string) error {
	err := kerr.ErrorForCode(code)
	if err != nil && message != nil && *message != "" {
		return fmt.Errorf("%w: %s", err, *message)
	}
	return err
}
