// Package brokeradmin is the only package of the control plane that changes
// anything on brokers. It is an ordinary, privileged client of Kafka's admin
// protocol: it logs in on the internal listener as the user `control`, with
// PLAIN, and may do what an operator of any Kafka cluster may do.
//
// Every call is idempotent: it looks first, changes only what differs, takes
// "is there already" for success when what is there equals what is wanted, and
// returns when every broker shows the change, so that a caller may say
// "enforced". A call that was cut off may simply be made again.
package brokeradmin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"penstock/tenants"
)

// Config says how to reach a cluster.
type Config struct {
	// Bootstrap lists host:port of the internal listener.
	Bootstrap []string
	// Password is the user control's; empty connects without authentication.
	Password string
	// Settle is how long a call waits for every broker to show a change, default
	// 15 s.
	Settle time.Duration
}

// Admin talks to one cluster. It is safe for concurrent use.
type Admin struct {
	cl     *kgo.Client
	adm    *kadm.Client
	settle time.Duration
}

// Options are the client options with which the control plane reaches a
// cluster, also to read from it.
func Options(c Config) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Bootstrap...),
		kgo.ClientID("penstock-control"),
		kgo.DialTimeout(3 * time.Second),
		kgo.RetryTimeout(15 * time.Second),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}
	if c.Password != "" {
		opts = append(opts, kgo.SASL(plain.Auth{User: tenants.ControlUser, Pass: c.Password}.AsMechanism()))
	}
	return opts
}

// Open makes a client; it connects with the first call.
func Open(c Config) (*Admin, error) {
	if len(c.Bootstrap) == 0 {
		return nil, errors.New("brokeradmin: no bootstrap address")
	}
	if c.Settle == 0 {
		c.Settle = 15 * time.Second
	}
	cl, err := kgo.NewClient(Options(c)...)
	if err != nil {
		return nil, fmt.Errorf("brokeradmin: %w", err)
	}
	return &Admin{cl: cl, adm: kadm.NewClient(cl), settle: c.Settle}, nil
}

// Close ends the client.
func (a *Admin) Close() { a.cl.Close() }

// ErrUnsettled says that a change was made but that not every broker showed it
// in time.
var ErrUnsettled = errors.New("not every broker shows the change yet")

// permanent are the errors that no repetition cures: the wish itself is wrong.
// InvalidReplicationFactor is not among them: a broker gives it when fewer
// brokers live just now than replicas are wanted, and whether the cluster can
// ever have so many was settled before the wish was taken.
var permanent = []*kerr.Error{
	kerr.InvalidConfig, kerr.InvalidPartitions, kerr.InvalidTopicException,
	kerr.InvalidRequest, kerr.PolicyViolation, kerr.InvalidReplicaAssignment, kerr.UnsupportedVersion,
}

// ErrWish is in the chain of errors about a wish that cannot be met.
var ErrWish = errors.New("the cluster cannot take this")

// Permanent reports whether trying again is useless.
func Permanent(err error) bool {
	return errors.Is(err, ErrWish) || slices.ContainsFunc(permanent, func(e *kerr.Error) bool { return errors.Is(err, e) })
}

// Health is what the cluster says of itself.
type Health struct {
	// Brokers are the ids that are registered and alive, in order.
	Brokers []int32
	// Controller is the id of the controller, -1 if there is none.
	Controller int32
	// Leaderless and UnderReplicated count partitions without a leader, and with
	// an ISR smaller than the replicas.
	Leaderless, UnderReplicated int
}

// Complete reports whether these many brokers are there, with a controller, and
// every replica in sync.
func (h Health) Complete(brokers int) bool {
	return len(h.Brokers) >= brokers && h.Controller >= 0 && h.Leaderless == 0 && h.UnderReplicated == 0
}

// Health asks the cluster how it is.
func (a *Admin) Health(ctx context.Context) (Health, error) {
	md, err := a.adm.Metadata(ctx)
	if err != nil {
		return Health{}, fmt.Errorf("ask for metadata: %w", err)
	}
	h := Health{Brokers: md.Brokers.NodeIDs(), Controller: md.Controller}
	slices.Sort(h.Brokers)
	for _, t := range md.Topics {
		for _, p := range t.Partitions {
			if p.Leader < 0 {
				h.Leaderless++
			}
			if len(p.ISR) < len(p.Replicas) {
				h.UnderReplicated++
			}
		}
	}
	return h, nil
}

// everywhere waits until shows is true of every broker.
func (a *Admin) everywhere(ctx context.Context, what string, shows func(ctx context.Context, b *kgo.Broker) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, a.settle)
	defer cancel()
	brokers, err := a.brokers(ctx)
	if err != nil {
		return fmt.Errorf("list brokers: %w", err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, id := range brokers {
		for {
			ok, err := shows(ctx, a.cl.Broker(int(id)))
			if ok && err == nil {
				break
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				if err == nil {
					err = ctx.Err()
				}
				return fmt.Errorf("%s, broker %d: %w: %w", what, id, ErrUnsettled, err)
			}
		}
	}
	return nil
}

// brokers asks the cluster who lives. kadm's ListBrokers gives those that the client heard of
// last, which may have been minutes ago, and would miss one that has come since.
func (a *Admin) brokers(ctx context.Context) ([]int32, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none; nil is all
	resp, err := req.RequestWith(ctx, a.cl)
	if err != nil {
		return nil, err
	}
	ids := make([]int32, len(resp.Brokers))
	for i, b := range resp.Brokers {
		ids[i] = b.NodeID
	}
	return ids, nil
}
