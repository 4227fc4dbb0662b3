package devtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/oauth"

	"penstock/controlplane/api/wire"
	"penstock/controlplane/client"
	"penstock/controlplane/dev"
)

// tenant calls the API as the demonstration's tenant, with patience for a
// control plane that is being killed.
func tenant(t *testing.T, in *dev.Info) *client.Client {
	c := client.New(client.Config{BaseURL: in.API, ClientID: in.Tenant.ClientID, ClientSecret: in.Tenant.ClientSecret, Retries: 30})
	t.Cleanup(c.Close)
	return c
}

// account is a service account with all rights to topics and groups that start
// with its name.
type account struct {
	id, secret, url string
}

func newAccount(t *testing.T, in *dev.Info, api *client.Client, cluster, name string) account {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sa, err := api.CreateServiceAccount(ctx, cluster, wire.CreateServiceAccount{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []wire.CreateACL{
		{ResourceType: "topic", ResourceName: name, Operation: "write"},
		{ResourceType: "topic", ResourceName: name, Operation: "read"},
		{ResourceType: "group", ResourceName: name, Operation: "read"},
		{ResourceType: "cluster", PatternType: "literal", Operation: "idempotent_write"},
	} {
		r.ServiceAccountID, r.Permission, r.Host = sa.Secret.ClientID, "allow", "*"
		if r.PatternType == "" {
			r.PatternType = "prefixed"
		}
		a, err := api.CreateACL(ctx, cluster, r)
		if err == nil {
			_, err = api.WaitACL(ctx, cluster, a.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return account{sa.Secret.ClientID, sa.Secret.ClientSecret, in.TokenURL}
}

func newTopic(t *testing.T, api *client.Client, cluster, name string, partitions int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := api.CreateTopic(ctx, cluster, wire.CreateTopic{Name: name, Partitions: partitions, ReplicationFactor: 3,
		Configs: map[string]string{"min.insync.replicas": "2"}})
	if err == nil {
		_, err = api.WaitTopic(ctx, cluster, name)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (a account) token(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tok, err := client.FetchToken(ctx, nil, a.url, a.id, a.secret, "")
	if err != nil {
		t.Fatal(err)
	}
	return tok.AccessToken
}

// kafka makes a client that logs in with this token.
func kafka(t *testing.T, bootstrap, token string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.SASL(oauth.Oauth(func(context.Context) (oauth.Auth, error) { return oauth.Auth{Token: token}, nil })),
		kgo.DialTimeout(2 * time.Second), kgo.MetadataMinAge(100 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// describe asks a broker for a topic, past the client's cache.
func describe(ctx context.Context, r kmsg.Requestor, topic string) (*kmsg.MetadataResponseTopic, error) {
	req := kmsg.NewPtrMetadataRequest()
	mt := kmsg.NewMetadataRequestTopic()
	mt.Topic = &topic
	req.Topics = append(req.Topics, mt)
	resp, err := req.RequestWith(ctx, r)
	if err != nil {
		return nil, err
	}
	return &resp.Topics[0], kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}

// whole waits until every partition of the topic has its whole replica set in
// sync.
func whole(t *testing.T, cl *kgo.Client, topic string, within time.Duration) {
	t.Helper()
	await(t, within, topic+" is whole", func(ctx context.Context) error {
		d, err := describe(ctx, cl, topic)
		if err != nil {
			return err
		}
		for _, p := range d.Partitions {
			if p.Leader < 0 || len(p.ISR) != len(p.Replicas) {
				return fmt.Errorf("partition %d: leader %d, in sync %v of %v", p.Partition, p.Leader, p.ISR, p.Replicas)
			}
		}
		return nil
	})
}

// ledger produces numbered records, eight keys in turn, with an idempotent
// acks=all producer, and notes what was acknowledged.
type ledger struct {
	cl   *kgo.Client
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	sent    int
	acked   map[string]bool
	errs    []error
	slowest time.Duration
}

func startLedger(t *testing.T, cl *kgo.Client, topic string) *ledger {
	ctx, cancel := context.WithCancel(t.Context())
	l := &ledger{cl: cl, stop: cancel, done: make(chan struct{}), acked: map[string]bool{}}
	go func() {
		defer close(l.done)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			k, v, began := fmt.Sprint(i%8), fmt.Sprintf("%d/%09d", i%8, i), time.Now()
			l.mu.Lock()
			l.sent++
			l.mu.Unlock()
			cl.Produce(context.Background(), &kgo.Record{Topic: topic, Key: []byte(k), Value: []byte(v)}, func(_ *kgo.Record, err error) {
				l.mu.Lock()
				defer l.mu.Unlock()
				if err != nil {
					l.errs = append(l.errs, fmt.Errorf("record %s was given up: %w", v, err))
					return
				}
				l.acked[v] = true
				l.slowest = max(l.slowest, time.Since(began))
			})
		}
	}()
	t.Cleanup(func() { cancel(); <-l.done })
	return l
}

func (l *ledger) acknowledged() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// goesOn waits for n more acknowledgements.
func (l *ledger) goesOn(t *testing.T, n int, within time.Duration) {
	t.Helper()
	from := l.acknowledged()
	await(t, within, fmt.Sprintf("%d more records acknowledged", n), func(context.Context) error {
		if have := l.acknowledged() - from; have < n {
			return fmt.Errorf("%d are", have)
		}
		return nil
	})
}

// verify ends the producer and reads everything: each acknowledged record once,
// none doubled, in order within its key.
func (l *ledger) verify(t *testing.T, reader *kgo.Client) {
	t.Helper()
	l.stop()
	<-l.done
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.cl.Flush(ctx); err != nil {
		t.Fatalf("not everything was answered: %v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := errors.Join(l.errs...); err != nil {
		t.Error(err)
	}
	seen, last := map[string]int{}, map[string]string{}
	for missing := len(l.acked); missing > 0; {
		f := reader.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d of %d acknowledged records are missing", missing, len(l.acked))
		}
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		f.EachRecord(func(r *kgo.Record) {
			k, v := string(r.Key), string(r.Value)
			if seen[v]++; seen[v] > 1 {
				t.Errorf("record %s is there %d times", v, seen[v])
			}
			if v <= last[k] {
				t.Errorf("key %s: %s comes after %s", k, v, last[k])
			}
			last[k] = v
			if l.acked[v] && seen[v] == 1 {
				missing--
			}
		})
	}
	t.Logf("%d records sent, %d acknowledged, all there once and in order; longest wait for an acknowledgement %v",
		l.sent, len(l.acked), l.slowest.Round(time.Millisecond))
}

// reads logs in to a cluster and asks for the topic "in".
func reads(ctx context.Context, api *client.Client, cluster, token string) error {
	c, err := api.Cluster(ctx, cluster)
	if err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(c.Bootstrap, ",")...),
		kgo.SASL(oauth.Oauth(func(context.Context) (oauth.Auth, error) { return oauth.Auth{Token: token}, nil })))
	if err != nil {
		return err
	}
	defer cl.Close()
	d, err := describe(ctx, cl, "in")
	if err != nil {
		return fmt.Errorf("as the tenant's client: %w", err)
	}
	if len(d.Partitions) != 3 {
		return fmt.Errorf("as the tenant's client: %d partitions", len(d.Partitions))
	}
	return nil
}
