package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The lock is for two that make the tables at once, which IF NOT EXISTS alone does not bear.
const schema = `
	SELECT pg_advisory_xact_lock(hashtext('exactly_once'));
	CREATE SCHEMA IF NOT EXISTS exactly_once;
	CREATE TABLE IF NOT EXISTS exactly_once.positions (
		topic text, partition integer, next_offset bigint NOT NULL, PRIMARY KEY (topic, partition));
	CREATE TABLE IF NOT EXISTS exactly_once.totals (
		topic text, key text, records bigint NOT NULL, bytes bigint NOT NULL, PRIMARY KEY (topic, key));`

// ledger is a topic's totals and positions.
type ledger struct {
	db      *pgx.Conn
	topic   string
	next    map[int32]int64 // where each partition goes on, as stored
	counted int64           // records, in this life of the program
}

// total is what a key's row grows by.
type total struct{ records, bytes int64 }

// openLedger reads the positions. A partition that was never read goes on at its log's start.
func openLedger(ctx context.Context, db *pgx.Conn, topic string, starts kadm.ListedOffsets) (*ledger, error) {
	if _, err := db.Exec(ctx, schema); err != nil {
		return nil, fmt.Errorf("make the tables: %w", err)
	}
	var b pgx.Batch
	starts.Each(func(o kadm.ListedOffset) {
		b.Queue(`INSERT INTO exactly_once.positions VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, topic, o.Partition, o.Offset)
	})
	if err := db.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("begin new partitions: %w", err)
	}
	l := &ledger{db: db, topic: topic, next: map[int32]int64{}}
	rows, err := db.Query(ctx, `SELECT partition, next_offset FROM exactly_once.positions WHERE topic = $1`, topic)
	if err != nil {
		return nil, fmt.Errorf("read the positions: %w", err)
	}
	var partition int32
	var next int64
	_, err = pgx.ForEachRow(rows, []any{&partition, &next}, func() error {
		l.next[partition] = next
		return nil
	})
	return l, err
}

// store counts the records and moves the positions behind them: both in one transaction, which is all there is to it.
// When the answer to the commit is lost nobody knows here whether it was done; then this ends with an error, and the
// next start reads it.
func (l *ledger) store(ctx context.Context, records []*kgo.Record) error {
	next := maps.Clone(l.next)
	grown := map[string]total{}
	counted := l.counted
	for _, r := range records {
		next[r.Partition] = r.Offset + 1
		if !r.Attrs.IsControl() {
			t := grown[string(r.Key)]
			grown[string(r.Key)] = total{t.records + 1, t.bytes + int64(len(r.Key)+len(r.Value))}
			counted++
		}
	}
	err := pgx.BeginFunc(ctx, l.db, func(tx pgx.Tx) error {
		if err := l.move(ctx, tx, next); err != nil {
			return err
		}
		return l.add(ctx, tx, grown)
	})
	if err == nil {
		l.next, l.counted = next, counted
	}
	return err
}

// move stores where the partitions go on. That it finds each position where it left it is the fence against another
// of its kind: the row is locked until the commit, and who comes second finds it moved. Partitions go in their order,
// keys likewise below, so that two do not wait for each other.
func (l *ledger) move(ctx context.Context, tx pgx.Tx, next map[int32]int64) error {
	for _, p := range slices.Sorted(maps.Keys(next)) {
		if next[p] == l.next[p] {
			continue
		}
		done, err := tx.Exec(ctx, `UPDATE exactly_once.positions SET next_offset = $4 WHERE topic = $1 AND partition = $2 AND next_offset = $3`,
			l.topic, p, l.next[p], next[p])
		if err != nil {
			return fmt.Errorf("move the position: %w", err)
		}
		if done.RowsAffected() != 1 {
			return fmt.Errorf("partition %d: another one has moved the position from %d; this one ends", p, l.next[p])
		}
	}
	return nil
}

// add counts; keys are text in UTF-8, records without a key count under the empty one.
func (l *ledger) add(ctx context.Context, tx pgx.Tx, grown map[string]total) error {
	keys := slices.SortedFunc(maps.Keys(grown), cmp.Compare)
	records, bytes := make([]int64, len(keys)), make([]int64, len(keys))
	for i, k := range keys {
		records[i], bytes[i] = grown[k].records, grown[k].bytes
	}
	_, err := tx.Exec(ctx, `INSERT INTO exactly_once.totals AS t
		SELECT $1, g.* FROM unnest($2::text[], $3::bigint[], $4::bigint[]) AS g
		ON CONFLICT (topic, key) DO UPDATE SET records = t.records + excluded.records, bytes = t.bytes + excluded.bytes`,
		l.topic, keys, records, bytes)
	if err != nil {
		return fmt.Errorf("add to the totals: %w", err)
	}
	return nil
}

// reached says whether every partition has been read to its end.
func (l *ledger) reached(ends kadm.ListedOffsets) bool {
	all := true
	ends.Each(func(o kadm.ListedOffset) { all = all && l.next[o.Partition] >= o.Offset })
	return all
}

func (l *ledger) report(ctx context.Context, out io.Writer) error {
	var keys, records, bytes int64
	err := l.db.QueryRow(ctx, `SELECT count(*), coalesce(sum(records), 0)::bigint, coalesce(sum(bytes), 0)::bigint
		FROM exactly_once.totals WHERE topic = $1`, l.topic).Scan(&keys, &records, &bytes)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: %d records, %d bytes, %d keys; %d of the records are new\n", l.topic, records, bytes, keys, l.counted)
	return err
}
