package cluster

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const channel = "penstock_hint"

// Hint tells listeners, when tx commits, that something about the subject (a
// cluster's id) may have changed. It is only a hint: who waits must also poll.
func Hint(ctx context.Context, tx pgx.Tx, subject string) error {
	_, err := tx.Exec(ctx, `SELECT pg_notify($1, $2)`, channel, subject)
	return err
}

// Listener wakes its subscribers when a hint arrives. It holds one connection
// of its own and makes a new one when that is lost; hints in between are lost
// too, which subscribers bear by polling.
type Listener struct {
	cfg    *pgx.ConnConfig
	log    *slog.Logger
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	subs map[chan struct{}]struct{}
}

// Listen starts a Listener; log nil discards.
func Listen(cfg *pgx.ConnConfig, log *slog.Logger) *Listener {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &Listener{cfg: cfg, log: log, cancel: cancel, done: make(chan struct{}), subs: map[chan struct{}]struct{}{}}
	go l.run(ctx)
	return l
}

// Subscribe gives a channel that gets a value after one or more hints, and the
// function that ends the subscription.
func (l *Listener) Subscribe() (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	l.mu.Lock()
	l.subs[ch] = struct{}{}
	l.mu.Unlock()
	return ch, func() {
		l.mu.Lock()
		delete(l.subs, ch)
		l.mu.Unlock()
	}
}

// Close ends the listener and waits for it.
func (l *Listener) Close() {
	l.cancel()
	<-l.done
}

func (l *Listener) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ch := range l.subs {
		select {
		case ch <- struct{}{}:
		default: // it has not looked at the last one yet: one wake covers both
		}
	}
}

func (l *Listener) run(ctx context.Context) {
	defer close(l.done)
	for ctx.Err() == nil {
		if err := l.listen(ctx); err != nil && ctx.Err() == nil {
			l.log.Warn("lost the connection for change hints, polling meanwhile", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

func (l *Listener) listen(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, l.cfg)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		conn.Close(closing)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	l.wake() // whatever came while nobody listened
	for {
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
		l.wake()
	}
}
