package devtest

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/controlplane/api/wire"
)

// cuts hears of connections that brokers close, by their ids.
type cuts chan int32

func (c cuts) OnBrokerDisconnect(b kgo.BrokerMetadata, _ net.Conn) {
	select {
	case c <- b.NodeID:
	default:
	}
}

// testRevocation deletes a secret, then its account, and measures from the call to the
// API until the brokers have cut the connections that were logged in with its token.
func testRevocation(t *testing.T) {
	f := service(t)
	in := f.info(t)
	api := tenant(t, in)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const name = "revoked"
	first := newAccount(t, in, api, in.Cluster.ID, name)
	newTopic(t, api, in.Cluster.ID, name, 3)
	made, err := api.AddSecret(ctx, in.Cluster.ID, first.id, wire.CreateSecret{})
	if err != nil {
		t.Fatal(err)
	}
	sa, err := api.ServiceAccount(ctx, in.Cluster.ID, first.id)
	if err != nil || len(sa.Secrets) != 2 {
		t.Fatalf("%+v, %v", sa, err)
	}
	old := sa.Secrets[0].ID
	if old == made.ID {
		old = sa.Secrets[1].ID
	}
	tokens := []string{first.token(t), account{first.id, made.ClientSecret, in.TokenURL}.token(t)}
	var cut []cuts
	var clients []*kgo.Client
	for _, token := range tokens {
		c := make(cuts, 100)
		cl := kafka(t, in.Cluster.Bootstrap, token, kgo.DefaultProduceTopic(name), kgo.WithHooks(c), kgo.FetchMaxWait(time.Minute),
			kgo.ConsumeTopics(name), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		// One record from each of the three brokers, then a poll at each that nothing ends.
		for p := range int32(3) {
			if err := cl.ProduceSync(ctx, &kgo.Record{Partition: p, Value: []byte("x")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		for seen := map[int32]bool{}; len(seen) < 3; {
			fs := cl.PollFetches(ctx)
			if err := fs.Err(); err != nil {
				t.Fatal(err)
			}
			fs.EachRecord(func(r *kgo.Record) { seen[r.Partition] = true })
		}
		polling, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for polling.Err() == nil {
				cl.PollFetches(polling)
			}
		}()
		t.Cleanup(func() { stop(); <-done })
		cut, clients = append(cut, c), append(clients, cl)
	}
	revoke := func(what string, i int, do func() error) {
		t.Helper()
		for len(cut[i]) > 0 { // what has been closed before is no cut
			<-cut[i]
		}
		began := time.Now()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		for by := map[int32]bool{}; len(by) < 3; {
			select {
			case id := <-cut[i]:
				by[id] = by[id] || id >= 0
				if !by[id] {
					delete(by, id)
				}
			case <-ctx.Done():
				t.Fatalf("%s: connections live on, only those of brokers %v were cut", what, by)
			}
		}
		t.Logf("%s: cut by all brokers %v after the call was made", what, time.Since(began).Round(time.Millisecond))
		again := kafka(t, in.Cluster.Bootstrap, tokens[i], kgo.RetryTimeout(time.Second))
		await(t, 10*time.Second, what+": the token is refused", func(ctx context.Context) error {
			if err := again.Ping(ctx); !errors.Is(err, kerr.SaslAuthenticationFailed) {
				return errors.Join(errors.New("not refused"), err)
			}
			return nil
		})
	}
	revoke("deleted secret", 0, func() error { return api.RevokeSecret(ctx, in.Cluster.ID, first.id, old) })
	if n := len(cut[1]); n > 0 {
		t.Errorf("%d connections of the other secret were cut", n)
	}
	if err := clients[1].ProduceSync(ctx, kgo.StringRecord("y")).FirstErr(); err != nil {
		t.Errorf("the other secret's client: %v", err)
	}
	revoke("deleted account", 1, func() error { return api.DeleteServiceAccount(ctx, in.Cluster.ID, first.id) })
}
