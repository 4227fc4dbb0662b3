// Package audit keeps a hash-chained record of every change, one chain a
// tenant, written in the transaction that makes the change.
//
// A row's hash is SHA-256 over the hash before it and the row's fields, each
// preceded by its length as eight bytes, big-endian, in this order: tenant,
// sequence number and time (microseconds since 1970, both as decimal), id,
// actor, action, resource, request id, detail (JSON text as stored). The first
// row follows 32 zero bytes. The tenant's row in audit_heads is locked while a
// row is added, so a chain has no forks; it holds the last sequence number and
// hash, so a cut tail shows.
package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"penstock/tenants"
)

// System is the chain of the fleet's own deeds, which belong to no tenant.
const System = "system"

// ErrBroken is in the chain of every error of Verify that means tampering.
var ErrBroken = errors.New("audit chain broken")

// Entry is one deed.
type Entry struct {
	TenantID  string
	Actor     string // who: an account's id, or the process that reconciles
	Action    string // such as cluster.create
	Resource  string // id of what was changed
	RequestID string
	Detail    map[string]any // what changed; never a secret
}

// Row is an entry as stored.
type Row struct {
	TenantID  string
	Seq       int64
	ID        string
	At        time.Time
	Actor     string
	Action    string
	Resource  string
	RequestID string
	Detail    string
	PrevHash  []byte
	Hash      []byte
}

// Append adds an entry to its tenant's chain, in the caller's transaction. The
// chain stays locked until that ends: call it last.
func Append(ctx context.Context, tx pgx.Tx, e Entry) error {
	if e.Detail == nil {
		e.Detail = map[string]any{}
	}
	detail, err := json.Marshal(e.Detail) // sorts map keys: the same deed is the same text
	if err != nil {
		return fmt.Errorf("audit: detail: %w", err)
	}
	if _, err := tx.Exec(ctx, `INSERT INTO audit_heads (tenant_id, seq, hash) VALUES ($1, 0, $2)
		ON CONFLICT (tenant_id) DO NOTHING`, e.TenantID, make([]byte, sha256.Size)); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	r := Row{TenantID: e.TenantID, ID: tenants.NewID(tenants.PrefixAudit), Actor: e.Actor, Action: e.Action,
		Resource: e.Resource, RequestID: e.RequestID, Detail: string(detail)}
	err = tx.QueryRow(ctx, `SELECT seq + 1, hash, clock_timestamp() FROM audit_heads WHERE tenant_id = $1 FOR UPDATE`,
		e.TenantID).Scan(&r.Seq, &r.PrevHash, &r.At)
	if err != nil {
		return fmt.Errorf("audit: chain head: %w", err)
	}
	r.Hash = r.sum()
	if _, err := tx.Exec(ctx, `INSERT INTO audit (tenant_id, seq, id, at, actor, action, resource, request_id, detail, prev_hash, hash)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`, r.TenantID, r.Seq, r.ID, r.At, r.Actor, r.Action,
		r.Resource, r.RequestID, r.Detail, r.PrevHash, r.Hash); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if _, err := tx.Exec(ctx, `UPDATE audit_heads SET seq = $2, hash = $3 WHERE tenant_id = $1`, r.TenantID, r.Seq, r.Hash); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// Event adds a row to the tenant's events, in the caller's transaction.
func Event(ctx context.Context, tx pgx.Tx, tenant, kind, subject string, payload map[string]any) error {
	if payload == nil {
		payload = map[string]any{}
	}
	_, err := tx.Exec(ctx, `INSERT INTO events (tenant_id, id, kind, subject, payload) VALUES ($1, $2, $3, $4, $5)`,
		tenant, tenants.NewID(tenants.PrefixEvent), kind, subject, payload)
	if err != nil {
		return fmt.Errorf("event %s: %w", kind, err)
	}
	return nil
}

// Verify walks a tenant's whole chain and gives its length; an error that
// wraps ErrBroken names the first row that does not fit.
func Verify(ctx context.Context, tx pgx.Tx, tenant string) (int64, error) {
	rows, err := tx.Query(ctx, `SELECT tenant_id, seq, id, at, actor, action, resource, request_id, detail, prev_hash, hash
		FROM audit WHERE tenant_id = $1 ORDER BY seq`, tenant)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var n int64
	prev := make([]byte, sha256.Size)
	for rows.Next() {
		var r Row
		if err := rows.Scan(&r.TenantID, &r.Seq, &r.ID, &r.At, &r.Actor, &r.Action, &r.Resource, &r.RequestID,
			&r.Detail, &r.PrevHash, &r.Hash); err != nil {
			return n, err
		}
		n++
		if r.Seq != n || !bytes.Equal(r.PrevHash, prev) || !bytes.Equal(r.Hash, r.sum()) {
			return n, fmt.Errorf("%w at row %d of %s", ErrBroken, n, tenant)
		}
		prev = r.Hash
	}
	if err := rows.Err(); err != nil {
		return n, err
	}
	var seq int64
	var head []byte
	err = tx.QueryRow(ctx, `SELECT seq, hash FROM audit_heads WHERE tenant_id = $1`, tenant).Scan(&seq, &head)
	if errors.Is(err, pgx.ErrNoRows) && n == 0 {
		return 0, nil
	}
	if err != nil {
		return n, err
	}
	if seq != n || !bytes.Equal(head, prev) {
		return n, fmt.Errorf("%w: the head of %s says %d rows, there are %d", ErrBroken, tenant, seq, n)
	}
	return n, nil
}

func (r *Row) sum() []byte {
	h := sha256.New()
	h.Write(r.PrevHash)
	for _, f := range []string{r.TenantID, strconv.FormatInt(r.Seq, 10), strconv.FormatInt(r.At.UnixMicro(), 10),
		r.ID, r.Actor, r.Action, r.Resource, r.RequestID, r.Detail} {
		field(h, f)
	}
	return h.Sum(nil)
}

func field(h hash.Hash, s string) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(s)))
	h.Write(n[:])
	h.Write([]byte(s))
}
