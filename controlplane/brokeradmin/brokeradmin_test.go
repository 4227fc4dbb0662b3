package brokeradmin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"penstock/dataplane/brokertest"
)

func TestMain(m *testing.M) {
	code := brokertest.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

const password = "control's own"

// open starts real brokers whose only listener is the internal one, and logs in
// as the control plane does.
func open(t *testing.T, brokers int) (*Admin, *brokertest.Cluster) {
	t.Helper()
	c := brokertest.Start(t, brokertest.Options{
		Brokers: brokers, Ports: 1,
		Listeners: func(_ int, ports []int) []string {
			return []string{
				fmt.Sprintf("listeners=INTERNAL://127.0.0.1:%d", ports[0]),
				"listener.security.protocol.map=INTERNAL:SASL_PLAINTEXT",
				"inter.broker.listener.name=INTERNAL",
				"listener.name.internal.sasl.enabled.mechanisms=PLAIN",
				"sasl.mechanism.inter.broker.protocol=PLAIN",
				`listener.name.internal.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="b" user_broker="b" user_control="` + password + `";`,
				"authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
				"super.users=User:broker;User:control",
			}
		},
	})
	a, err := Open(Config{Bootstrap: c.Bootstrap(), Password: password})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	brokertest.Await(t, 30*time.Second, "a whole cluster", func() error {
		h, err := a.Health(t.Context())
		if err == nil && !h.Complete(brokers) {
			err = fmt.Errorf("health is %+v", h)
		}
		return err
	})
	return a, c
}

func TestOnRealBrokers(t *testing.T) {
	a, _ := open(t, 2)
	t.Run("topics", func(t *testing.T) { topics(t, a) })
	t.Run("quotas", func(t *testing.T) { quotas(t, a) })
	t.Run("rules", func(t *testing.T) { rules(t, a) })
	t.Run("revocations", func(t *testing.T) { revocationsOf(t, a) })
	t.Run("wrong password", func(t *testing.T) {
		b, err := Open(Config{Bootstrap: []string{"127.0.0.1:1"}, Password: "x"})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if _, err := b.Health(t.Context()); err == nil {
			t.Error("health of nothing")
		}
	})
}

func topics(t *testing.T, a *Admin) {
	ctx := t.Context()
	want := Topic{Name: "quakes", Partitions: 2, Replication: 2, Configs: map[string]string{"retention.ms": "1000", "min.insync.replicas": "1"}}
	id, err := a.EnsureTopic(ctx, want)
	if err != nil || len(id) != 32 {
		t.Fatalf("id %q, %v", id, err)
	}
	if again, err := a.EnsureTopic(ctx, want); err != nil || again != id {
		t.Fatalf("again: id %q, %v, want %q", again, err, id)
	}
	own := func() map[string]string {
		t.Helper()
		rs, err := a.adm.DescribeTopicConfigs(ctx, "quakes")
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]string{}
		for _, c := range rs[0].Configs {
			if c.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
				m[c.Key] = c.MaybeValue()
			}
		}
		return m
	}
	if got := own(); len(got) != 2 || got["retention.ms"] != "1000" {
		t.Errorf("configs %v", got)
	}
	// One changed, one taken back, more partitions.
	want.Partitions, want.Configs = 5, map[string]string{"retention.ms": "2000"}
	if _, err := a.EnsureTopic(ctx, want); err != nil {
		t.Fatal(err)
	}
	if got := own(); len(got) != 1 || got["retention.ms"] != "2000" {
		t.Errorf("configs %v", got)
	}
	for name, bad := range map[string]Topic{
		"fewer partitions":   {Name: "quakes", Partitions: 1, Replication: 2},
		"other replication":  {Name: "quakes", Partitions: 5, Replication: 1},
		"a bad value":        {Name: "quakes", Partitions: 5, Replication: 2, Configs: map[string]string{"retention.ms": "abc"}},
		"a name not allowed": {Name: "a b", Partitions: 1, Replication: 1},
	} {
		if _, err := a.EnsureTopic(ctx, bad); err == nil || !Permanent(err) {
			t.Errorf("%s: %v, want a permanent refusal", name, err)
		}
	}
	if _, err := a.EnsureTopic(ctx, Topic{Name: "other", Partitions: 1, Replication: 3}); err == nil || Permanent(err) {
		t.Errorf("more replicas than brokers live: %v, want a refusal for now", err)
	}
	for range 2 {
		if err := a.DeleteTopic(ctx, "quakes"); err != nil {
			t.Fatal(err)
		}
	}
	// Made anew, it is another topic.
	if now, err := a.EnsureTopic(ctx, want); err != nil || now == id {
		t.Errorf("id %q, %v", now, err)
	}
}

func quotas(t *testing.T, a *Admin) {
	ctx := t.Context()
	in, out, pct := int64(1001), int64(2000), 50.0
	for range 2 {
		if err := a.SetQuota(ctx, "sa_x", Quota{BytesIn: &in, BytesOut: &out, RequestPercentage: &pct}, 2); err != nil {
			t.Fatal(err)
		}
	}
	// Each of two brokers enforces half, rounded up.
	got, err := quotaOf(ctx, a.cl, "sa_x")
	if err != nil || len(got) != 3 || got[producerByteRate] != 501 || got[consumerByteRate] != 1000 || got[requestPercentage] != 25 {
		t.Errorf("%v, %v", got, err)
	}
	if err := a.SetQuota(ctx, "sa_x", Quota{BytesOut: &in}, 2); err != nil {
		t.Fatal(err)
	}
	if got, err := quotaOf(ctx, a.cl, "sa_x"); err != nil || len(got) != 1 || got[consumerByteRate] != 501 {
		t.Errorf("%v, %v", got, err)
	}
	for range 2 {
		if err := a.SetQuota(ctx, "sa_x", Quota{}, 2); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := quotaOf(ctx, a.cl, "sa_x"); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func rules(t *testing.T, a *Admin) {
	ctx := t.Context()
	all := []ACL{
		{User: "sa_x", Host: "*", ResourceType: "topic", ResourceName: "quakes", PatternType: "literal", Operation: "write", Permission: "allow"},
		{User: "sa_x", Host: "*", ResourceType: "topic", ResourceName: "quakes", PatternType: "prefixed", Operation: "write", Permission: "allow"},
		{User: "sa_x", Host: "*", ResourceType: "group", ResourceName: "*", PatternType: "literal", Operation: "read", Permission: "allow"},
		{User: "sa_x", Host: "*", ResourceType: "cluster", PatternType: "literal", Operation: "idempotent_write", Permission: "allow"},
		{User: "sa_y", Host: "127.0.0.1", ResourceType: "transactional_id", ResourceName: "t", PatternType: "literal", Operation: "all", Permission: "deny"},
	}
	count := func() int {
		t.Helper()
		rs, err := a.adm.DescribeACLs(ctx, kadm.NewACLs().AnyResource().Allow().AllowHosts().Deny().DenyHosts().Operations().ResourcePatternType(kadm.ACLPatternAny))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, r := range rs {
			n += len(r.Described)
		}
		return n
	}
	for range 2 {
		for _, r := range all {
			if err := a.EnsureACL(ctx, r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := count(); n != len(all) {
		t.Errorf("%d rules, want %d", n, len(all))
	}
	for i, r := range all {
		for range 2 {
			if err := a.DeleteACL(ctx, r); err != nil {
				t.Fatal(err)
			}
		}
		if n := count(); n != len(all)-1-i {
			t.Errorf("%d rules after %d deletions", n, i+1)
		}
	}
	if err := a.EnsureACL(ctx, ACL{User: "x", Host: "*", ResourceType: "moon", PatternType: "literal", Operation: "read", Permission: "allow"}); !errors.Is(err, ErrWish) {
		t.Errorf("unknown resource type: %v", err)
	}
}

func TestChangesWaitForEveryBroker(t *testing.T) {
	a, c := open(t, 2)
	// A broker that is gone is not waited for, a broker that is back is.
	c.Brokers[1].Kill()
	in := int64(1000)
	brokertest.Await(t, 30*time.Second, "a quota with one broker gone", func() error {
		return a.SetQuota(t.Context(), "sa_x", Quota{BytesIn: &in}, 2)
	})
	c.Brokers[1].Start()
	brokertest.Await(t, 30*time.Second, "the quota on the broker that came back", func() error {
		got, err := quotaOf(t.Context(), a.cl.Broker(1), "sa_x")
		if err == nil && got[producerByteRate] != 500 {
			err = fmt.Errorf("it has %v", got)
		}
		return err
	})
	if _, err := a.EnsureTopic(t.Context(), Topic{Name: "after", Partitions: 2, Replication: 2}); err != nil {
		t.Fatal(err)
	}
}

// What the client heard last of the cluster says nothing of a broker that has come since.
func TestABrokerThatHasComeSinceIsWaitedFor(t *testing.T) {
	a, c := open(t, 2)
	asked := func() (n int, err error) {
		err = a.everywhere(t.Context(), "nothing", func(context.Context, *kgo.Broker) (bool, error) {
			n++
			return true, nil
		})
		return n, err
	}
	c.Brokers[1].Kill()
	brokertest.Await(t, 30*time.Second, "one broker left", func() error {
		n, err := asked()
		if err == nil && n != 1 {
			err = fmt.Errorf("%d brokers", n)
		}
		return err
	})
	c.Brokers[1].Start()
	brokertest.Await(t, 30*time.Second, "another client hearing of both", func() error {
		b, err := Open(Config{Bootstrap: c.Bootstrap()[:1], Password: password})
		if err != nil {
			return err
		}
		defer b.Close()
		h, err := b.Health(t.Context())
		if err == nil && len(h.Brokers) < 2 {
			err = fmt.Errorf("health is %+v", h)
		}
		return err
	})
	if n, err := asked(); err != nil || n != 2 {
		t.Errorf("%d brokers were asked, 2 live: %v", n, err)
	}
}

func TestOptionsCanRead(t *testing.T) {
	if _, err := Open(Config{}); err == nil {
		t.Error("no bootstrap was taken")
	}
	cl, err := kgo.NewClient(Options(Config{Bootstrap: []string{"127.0.0.1:1"}})...)
	if err != nil {
		t.Fatal(err)
	}
	cl.Close()
}

// A topic that needs all brokers is refused while one of them is being started
// again: the broker counts those that live, and the wish is none the worse.
func TestTooFewBrokersJustNowIsNotForGood(t *testing.T) {
	if err := fmt.Errorf("create topic quakes: %w", kerr.InvalidReplicationFactor); Permanent(err) {
		t.Errorf("%v is taken for a refusal for good", err)
	}
	if err := fmt.Errorf("create topic quakes: %w", kerr.InvalidConfig); !Permanent(err) {
		t.Errorf("%v is tried again and again", err)
	}
}

func revocationsOf(t *testing.T, a *Admin) {
	ctx := t.Context()
	at := time.Now().Truncate(time.Millisecond)
	list := func() []string {
		t.Helper()
		rs, err := a.adm.DescribeBrokerConfigs(ctx, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, r := range rs {
			for _, c := range r.Configs {
				if c.Key == notBefore {
					out = append(out, c.MaybeValue())
				}
			}
		}
		return out
	}
	one, two := Revocation{Name: "Credential:sec_1", At: at}, Revocation{Name: "User:a,b=c", At: at.Add(time.Hour)}
	for _, r := range []Revocation{one, one, two} {
		if err := a.EnsureRevoked(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	both := fmt.Sprintf("Credential:sec_1=%d,User:a%%2Cb%%3Dc=%d", at.UnixMilli(), at.Add(time.Hour).UnixMilli())
	if got := list(); !slices.Equal(got, []string{both, both}) {
		t.Errorf("brokers go by %q, want %q", got, both)
	}
	for range 2 {
		if err := a.DropRevoked(ctx, one); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.DropRevoked(ctx, two); err != nil {
		t.Fatal(err)
	}
	if got := list(); !slices.Equal(got, []string{"", ""}) {
		t.Errorf("brokers go by %q", got)
	}
	if err := a.EnsureRevoked(ctx, Revocation{Name: "Group:x", At: at}); err == nil || !Permanent(err) {
		t.Errorf("an unknown kind: %v, want a permanent refusal", err)
	}
}
