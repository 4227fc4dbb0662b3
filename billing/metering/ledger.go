package metering

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"penstock/tenants/usage"
)

// Message is one record of a usage topic.
type Message struct {
	Offset int64
	Value  []byte
}

// errMoved says that the stored offset is not where this reader left it:
// another reader is at work, or was.
var errMoved = errors.New("another reader has moved the offset")

// ErrUnreadable is in the chain of errors about a record that must not be
// guessed at. Reading of the cluster stops there: skipping it would lose usage
// in silence, and a later version of this program may be able to read it.
var ErrUnreadable = errors.New("usage record cannot be read")

// counterKey names one cumulative counter of one boot of one broker.
type counterKey struct {
	broker    int32
	boot      int64
	principal string
	direction usage.Direction
}

// counter is its newest known value.
type counter struct {
	seq                      int64
	bytes, records, requests int64
	at                       time.Time
}

// hourKey names one hourly sum.
type hourKey struct {
	principal string
	direction usage.Direction
	hour      time.Time
}

// sums is what an hour grows by.
type sums struct{ bytes, records, requests int64 }

// place is one partition of one cluster's usage topic.
type place struct {
	tenant, cluster string
	partition       int32
}

// load reads where the partition was read to; a partition that was never read
// begins at 0.
func load(ctx context.Context, tx pgx.Tx, p place) (next int64, err error) {
	_, err = tx.Exec(ctx, `INSERT INTO usage_offsets (tenant_id, cluster_id, partition, next_offset, read_at)
		VALUES ($1, $2, $3, 0, 'epoch') ON CONFLICT DO NOTHING`, p.tenant, p.cluster, p.partition)
	if err == nil {
		err = tx.QueryRow(ctx, `SELECT next_offset FROM usage_offsets WHERE tenant_id = $1 AND cluster_id = $2 AND partition = $3 FOR UPDATE`,
			p.tenant, p.cluster, p.partition).Scan(&next)
	}
	if err != nil {
		return 0, fmt.Errorf("read the offset: %w", err)
	}
	return next, nil
}

// store applies messages (whose own word on their cluster, Kafka's random id,
// says nothing that the topic does not), which begin at or after expected, and moves the
// offset behind them, all in tx. It is exactly once in two ways: the offset and
// what was read up to it are stored together, and a counter takes a value only
// from a higher sequence number, so that messages that come twice, for whatever
// reason, change nothing. Values being cumulative, a message that never came is
// made good by the next.
func store(ctx context.Context, tx pgx.Tx, p place, expected int64, msgs []Message) (next int64, err error) {
	stored, err := load(ctx, tx, p)
	if err != nil {
		return 0, err
	}
	if stored != expected {
		return 0, fmt.Errorf("%w from %d to %d", errMoved, expected, stored)
	}
	if len(msgs) == 0 {
		return expected, nil
	}
	recs := make([]*usage.Record, len(msgs))
	for i, m := range msgs {
		r, err := usage.Decode(m.Value)
		if err != nil {
			return 0, fmt.Errorf("%w: partition %d, offset %d: %w", ErrUnreadable, p.partition, m.Offset, err)
		}
		recs[i] = r
	}
	have, err := counters(ctx, tx, p, recs)
	if err != nil {
		return 0, err
	}
	changed, hours := advance(have, recs)
	if err := write(ctx, tx, p, have, changed, hours); err != nil {
		return 0, err
	}
	next = msgs[len(msgs)-1].Offset + 1
	_, err = tx.Exec(ctx, `UPDATE usage_offsets SET next_offset = $4 WHERE tenant_id = $1 AND cluster_id = $2 AND partition = $3`,
		p.tenant, p.cluster, p.partition, next)
	return next, err
}

// advance applies the records to the counters, in order, and gives the changed
// ones and what the hours grow by. It is pure. Growth belongs to the hour in
// which the broker read its counter.
func advance(have map[counterKey]counter, recs []*usage.Record) (changed []counterKey, hours map[hourKey]sums) {
	hours = map[hourKey]sums{}
	for _, r := range recs {
		for _, e := range r.Entries {
			k := counterKey{r.Broker, r.BootEpoch, e.Principal, e.Direction}
			old, known := have[k]
			if known && r.Seq <= old.seq {
				continue
			}
			// Values never fall within a boot. Should one, then the higher one was
			// billed already; it stands until it is passed again.
			now := counter{r.Seq, max(e.Bytes, old.bytes), max(e.Records, old.records), max(e.Requests, old.requests), r.At}
			have[k] = now
			if !slices.Contains(changed, k) {
				changed = append(changed, k)
			}
			h := hourKey{e.Principal, e.Direction, r.At.UTC().Truncate(time.Hour)}
			s := hours[h]
			s.bytes += now.bytes - old.bytes
			s.records += now.records - old.records
			s.requests += now.requests - old.requests
			hours[h] = s
		}
	}
	return changed, hours
}

// counters reads the counters of every boot that the records speak of. The
// partition's offset row is locked, and a boot writes to one partition only, so
// nobody else changes them.
func counters(ctx context.Context, tx pgx.Tx, p place, recs []*usage.Record) (map[counterKey]counter, error) {
	var brokers []int32
	var boots []int64
	seen := map[[2]int64]bool{}
	for _, r := range recs {
		if k := [2]int64{int64(r.Broker), r.BootEpoch}; !seen[k] {
			seen[k] = true
			brokers, boots = append(brokers, r.Broker), append(boots, r.BootEpoch)
		}
	}
	rows, err := tx.Query(ctx, `SELECT broker_id, boot_epoch, principal, direction, seq, bytes, records, requests, at
		FROM usage_counters JOIN unnest($3::integer[], $4::bigint[]) AS want (b, e) ON broker_id = b AND boot_epoch = e
		WHERE tenant_id = $1 AND cluster_id = $2 FOR UPDATE OF usage_counters`, p.tenant, p.cluster, brokers, boots)
	if err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	defer rows.Close()
	have := map[counterKey]counter{}
	for rows.Next() {
		var k counterKey
		var c counter
		if err := rows.Scan(&k.broker, &k.boot, &k.principal, &k.direction, &c.seq, &c.bytes, &c.records, &c.requests, &c.at); err != nil {
			return nil, fmt.Errorf("read counters: %w", err)
		}
		have[k] = c
	}
	return have, rows.Err()
}

func write(ctx context.Context, tx pgx.Tx, p place, have map[counterKey]counter, changed []counterKey, hours map[hourKey]sums) error {
	var b pgx.Batch
	for _, k := range changed {
		c := have[k]
		b.Queue(`INSERT INTO usage_counters (tenant_id, cluster_id, broker_id, boot_epoch, principal, direction, seq, bytes, records, requests, at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
			ON CONFLICT (tenant_id, cluster_id, broker_id, boot_epoch, principal, direction) DO UPDATE
			SET seq = excluded.seq, bytes = excluded.bytes, records = excluded.records, requests = excluded.requests, at = excluded.at`,
			p.tenant, p.cluster, k.broker, k.boot, k.principal, k.direction, c.seq, c.bytes, c.records, c.requests, c.at)
	}
	for k, s := range hours {
		if s == (sums{}) {
			continue
		}
		b.Queue(`INSERT INTO usage_hourly AS h (tenant_id, cluster_id, principal, direction, hour, bytes, records, requests)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
			ON CONFLICT (tenant_id, cluster_id, principal, direction, hour) DO UPDATE
			SET bytes = h.bytes + excluded.bytes, records = h.records + excluded.records, requests = h.requests + excluded.requests`,
			p.tenant, p.cluster, k.principal, k.direction, k.hour, s.bytes, s.records, s.requests)
	}
	if b.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("write the ledger: %w", err)
	}
	return nil
}

// markRead notes that at this time the partition had been read to its end.
func markRead(ctx context.Context, tx pgx.Tx, p place, at time.Time) error {
	_, err := tx.Exec(ctx, `UPDATE usage_offsets SET read_at = greatest(read_at, $4) WHERE tenant_id = $1 AND cluster_id = $2 AND partition = $3`,
		p.tenant, p.cluster, p.partition, at)
	return err
}
