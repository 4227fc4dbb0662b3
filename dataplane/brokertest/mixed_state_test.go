//go:build compat

package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

// startMixedSecured is startMixed with a second listener, on which alice and bob log
// in by PLAIN, with ACLs. On the first everybody is a super user.
func startMixedSecured(t *testing.T, ours, kafkas int, settings ...string) (c *Cluster, logins []string) {
	t.Helper()
	logins = make([]string, ours+kafkas)
	c = Start(t, Options{Brokers: ours + kafkas, Apache: kafkas, Ports: 2, Settings: append(slices.Clone(mixedSettings), settings...),
		Listeners: func(id int, p []int) []string {
			if p[0] > 0 {
				logins[id] = fmt.Sprintf("127.0.0.1:%d", p[1])
			}
			return []string{
				fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,LOGIN://127.0.0.1:%d", p[0], p[1]),
				"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT", "inter.broker.listener.name=PLAINTEXT",
				"listener.name.login.sasl.enabled.mechanisms=PLAIN",
				`listener.name.login.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a" user_bob="b";`,
				"authorizer.class.name=kafka.security.authorizer.AclAuthorizer", "super.users=User:ANONYMOUS",
			}
		}})
	for _, n := range c.Brokers {
		n.awaitBrokers(len(c.Brokers))
	}
	return c, logins
}

// TestMixedState changes what the brokers share in ZooKeeper and in internal topics
// through one make, and holds the other to it.
func TestMixedState(t *testing.T) {
	c, logins := startMixedSecured(t, 2, 2, "offsets.topic.num.partitions=4")
	const topic = "t"
	c.assign(topic, mixedRoles)
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	// The changes go to a broker of each make in turn, under controllers of both.
	through := func(id int32) *kadm.Client {
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers[id].Addr))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		return kadm.NewClient(cl)
	}
	for _, m := range []make_{penstock, kafka} {
		if t.Failed() {
			break
		}
		c.control(m)
		t.Run("ACLs, "+m.String()+" controls", func(t *testing.T) {
			c.t = t
			for _, id := range []int32{0, 2} {
				c.aclsThrough(ctx, through(id), id, topic, logins)
			}
		})
		t.Run("quotas, "+m.String()+" controls", func(t *testing.T) {
			c.t = t
			for _, id := range []int32{0, 2} {
				c.quotasThrough(ctx, through(id), id, topic)
			}
		})
		c.t = t
	}
	t.Run("groups", func(t *testing.T) {
		c.t = t
		c.groupsMove(ctx, topic)
	})
	c.t = t
	if t.Failed() {
		return
	}
	t.Run("transactions", func(t *testing.T) {
		c.t = t
		c.transactions(ctx)
	})
	c.t = t
	c.understood()
}

// produceAs sends one record to the partition as alice and waits until it is answered as wanted.
func (c *Cluster) produceAs(ctx context.Context, logins []string, topic string, partition int32, want error, what string) {
	c.t.Helper()
	Await(c.t, 30*time.Second, what, func() error {
		cl, err := kgo.NewClient(kgo.SeedBrokers(logins...), kgo.SASL(plain.Auth{User: "alice", Pass: "a"}.AsMechanism()),
			kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableIdempotentWrite(), kgo.MetadataMinAge(50*time.Millisecond),
			kgo.UnknownTopicRetries(1))
		if err != nil {
			return err
		}
		defer cl.Close()
		err = cl.ProduceSync(ctx, &kgo.Record{Partition: partition, Value: []byte("v")}).FirstErr()
		if !errors.Is(err, want) {
			return fmt.Errorf("answered %v, wanted %v", err, want)
		}
		return nil
	})
}

func (c *Cluster) aclsThrough(ctx context.Context, adm *kadm.Client, id int32, topic string, logins []string) {
	t := c.t
	t.Helper()
	who := fmt.Sprintf("%s's broker %d", c.maker(id), id)
	type acl struct {
		pattern kadm.ACLPattern
		name    string
	}
	for _, a := range []acl{{kadm.ACLPatternLiteral, topic}, {kadm.ACLPatternPrefixed, topic[:1]}, {kadm.ACLPatternLiteral, "*"}} {
		b := kadm.NewACLs().Topics(a.name).ResourcePatternType(a.pattern).Allow("User:alice").AllowHosts("*").Operations(kadm.OpWrite, kadm.OpDescribe)
		rs, err := adm.CreateACLs(ctx, b)
		if err != nil || slices.ContainsFunc(rs, func(r kadm.CreateACLsResult) bool { return r.Err != nil }) {
			t.Fatal(err, rs)
		}
		for p, replicas := range mixedRoles[1:3] { // one led by each make
			c.produceAs(ctx, logins, topic, int32(p+1), nil, fmt.Sprintf("alice, allowed through %s by %v %s, writes to %s", who, a.pattern, a.name, c.maker(replicas[0])))
		}
		c.each(func(n *Node, cl *kgo.Client) {
			ds, err := kadm.NewClient(cl).DescribeACLs(ctx, kadm.NewACLs().AnyResource().ResourcePatternType(kadm.ACLPatternAny).Allow().AllowHosts().Deny().DenyHosts().Operations())
			if err != nil {
				t.Fatal(err)
			}
			var have []string
			for _, d := range ds {
				for _, one := range d.Described {
					have = append(have, fmt.Sprint(one.Principal, one.Host, one.Type, one.Name, one.Pattern, one.Operation, one.Permission))
				}
			}
			if len(have) != 2 {
				t.Errorf("broker %d (%s) describes %v after a change through %s", n.ID, c.maker(n.ID), have, who)
			}
		})
		ds, err := adm.DeleteACLs(ctx, b)
		if err != nil || slices.ContainsFunc(ds, func(r kadm.DeleteACLsResult) bool { return r.Err != nil }) {
			t.Fatal(err, ds)
		}
		for p, replicas := range mixedRoles[1:3] {
			c.produceAs(ctx, logins, topic, int32(p+1), kerr.TopicAuthorizationFailed, fmt.Sprintf("alice, refused through %s, writes to %s", who, c.maker(replicas[0])))
		}
	}
}

func (c *Cluster) quotasThrough(ctx context.Context, adm *kadm.Client, id int32, topic string) {
	t := c.t
	t.Helper()
	client := "greedy"
	entity := kadm.ClientQuotaEntity{{Type: "client-id", Name: &client}}
	alter := func(op kadm.AlterClientQuotaOp) {
		t.Helper()
		rs, err := adm.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{{Entity: entity, Ops: []kadm.AlterClientQuotaOp{op}}})
		if err != nil || rs[0].Err != nil {
			t.Fatal(err, rs)
		}
	}
	throttled := func(want bool, what string) {
		t.Helper()
		for p, replicas := range mixedRoles[1:3] {
			cl := c.Client(kgo.ClientID(client), naming())
			what := fmt.Sprintf("%s, broker %d of %s", what, replicas[0], c.maker(replicas[0]))
			Await(t, 45*time.Second, what, func() error {
				req := produceOf(topic, 1, sized(t, 50_000))
				req.Topics[0].Partitions[0].Partition = int32(p + 1)
				resp, err := cl.Broker(int(replicas[0])).RetriableRequest(ctx, req)
				if err != nil {
					return err
				}
				r := resp.(*kmsg.ProduceResponse)
				if r.Topics[0].Partitions[0].ErrorCode != 0 || (r.ThrottleMillis > 0) != want {
					return fmt.Errorf("error %d, throttled for %d ms", r.Topics[0].Partitions[0].ErrorCode, r.ThrottleMillis)
				}
				return nil
			})
			cl.Close()
		}
	}
	who := fmt.Sprintf("%s's broker %d", c.maker(id), id)
	alter(kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Value: 10_000})
	throttled(true, "a quota set through "+who)
	c.each(func(n *Node, cl *kgo.Client) {
		ds, err := kadm.NewClient(cl).DescribeClientQuotas(ctx, true, []kadm.DescribeClientQuotaComponent{{Type: "client-id", MatchName: &client}})
		if err != nil || len(ds) != 1 || len(ds[0].Values) != 1 || ds[0].Values[0].Value != 10_000 {
			t.Errorf("broker %d (%s) describes %v, %v", n.ID, c.maker(n.ID), ds, err)
		}
	})
	alter(kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Remove: true})
	throttled(false, "a quota removed through "+who)
}

// groupsMove has groups commit offsets, and moves their coordinators from make to make.
func (c *Cluster) groupsMove(ctx context.Context, topic string) {
	t := c.t
	t.Helper()
	const groups = 12
	at := map[string]int64{}
	commit := func(by int64) {
		t.Helper()
		adm := c.admin()
		for i := range groups {
			group := fmt.Sprint("group-", i)
			if by > 1 && i == 3 {
				continue // it is deleted soon
			}
			at[group] += by + int64(i)
			var os kadm.Offsets
			os.Add(kadm.Offset{Topic: topic, Partition: 0, At: at[group], LeaderEpoch: -1, Metadata: fmt.Sprint("m", at[group])})
			Await(t, 30*time.Second, "a commit of "+group, func() error {
				rs, err := adm.CommitOffsets(ctx, group, os)
				if err == nil {
					err = rs.Error()
				}
				return err
			})
		}
	}
	fetch := func(what string) {
		t.Helper()
		adm := c.admin()
		for group, want := range at {
			Await(t, 30*time.Second, what+": the offset of "+group, func() error {
				rs, err := adm.FetchOffsets(ctx, group)
				if err == nil {
					err = rs.Error()
				}
				if err != nil {
					return err
				}
				if o, ok := rs.Lookup(topic, 0); !ok || o.At != want || o.Metadata != fmt.Sprint("m", want) {
					t.Fatalf("%s: %s has %+v, wanted %d", what, group, o, want)
				}
				return nil
			})
		}
	}
	commit(1)
	c.AwaitWhole("__consumer_offsets", time.Minute)
	deleted := func(what string) {
		t.Helper()
		Await(t, 30*time.Second, what+": an answer about the deleted group", func() error {
			rs, err := c.admin().FetchOffsets(ctx, "group-3") // the client gives up where it first meets a broker that is down
			if err == nil {
				err = rs.Error()
			}
			if err == nil && len(rs) > 0 {
				t.Fatalf("%s: the deleted group has %v", what, rs)
			}
			return err
		})
	}
	for _, gone := range []make_{kafka, penstock, kafka} {
		for _, id := range c.of(gone) {
			c.Brokers[id].Stop()
		}
		fetch(fmt.Sprintf("without %s", gone))
		if _, ok := at["group-3"]; !ok {
			deleted(fmt.Sprintf("without %s", gone))
		}
		commit(100)
		if gone == kafka { // a group is deleted where ours coordinates, and must stay so
			Await(t, 30*time.Second, "the deletion of a group", func() error {
				rs, err := c.admin().DeleteGroups(ctx, "group-3") // as above
				if err == nil {
					err = rs.Error()
				}
				if errors.Is(err, kerr.GroupIDNotFound) {
					err = nil
				}
				return err
			})
			delete(at, "group-3")
		}
		for _, id := range c.of(gone) {
			c.Brokers[id].Start()
		}
		c.AwaitWhole("__consumer_offsets", time.Minute)
		fetch(fmt.Sprintf("%s is back", gone))
		deleted(fmt.Sprintf("%s is back", gone))
	}
	c.sameLogs("__consumer_offsets")
}

// transactions are coordinated by Kafka, on partitions that it leads and ours
// follows; then ours leads them.
func (c *Cluster) transactions(ctx context.Context) {
	t := c.t
	t.Helper()
	const topic = "exact"
	c.assign("__transaction_state", [][]int32{{2, 3}, {3, 2}}, "cleanup.policy=compact")
	c.assign(topic, [][]int32{{2, 0}, {3, 1}})
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers[2].Addr, c.Brokers[3].Addr), kgo.TransactionalID("tx"), kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var want []string
	for i := range 10 {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for p := range int32(2) {
			v := fmt.Sprintf("%d/%d", p, i)
			if err := cl.ProduceSync(ctx, &kgo.Record{Partition: p, Value: []byte(v)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if i%3 != 0 {
				want = append(want, v)
			}
		}
		if err := cl.EndTransaction(ctx, kgo.TransactionEndTry(i%3 != 0)); err != nil {
			t.Fatal(err)
		}
	}
	read := func(what string) {
		t.Helper()
		r := c.Client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		defer r.Close()
		var have []string
		limit, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		for len(have) < len(want) {
			f := r.PollFetches(limit)
			if err := f.Err(); err != nil {
				t.Fatalf("%s: %d of %d: %v", what, len(have), len(want), err)
			}
			f.EachRecord(func(rec *kgo.Record) { have = append(have, string(rec.Value)) })
		}
		slices.SortFunc(have, strings.Compare)
		slices.SortFunc(want, strings.Compare)
		if !slices.Equal(have, want) {
			t.Errorf("%s: read %q, wanted %q", what, have, want)
		}
	}
	read("led by Kafka")
	c.sameLogs(topic)
	c.control(kafka)
	for _, id := range c.of(kafka) {
		c.Brokers[id].Stop()
	}
	read("led by ours")
	for _, id := range c.of(kafka) {
		c.Brokers[id].Start()
	}
	c.AwaitWhole(topic, time.Minute)
}
