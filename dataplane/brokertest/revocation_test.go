package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
)

const notBefore = "penstock.auth.not.before"

// cutWithin bounds how long a revoked connection lives: a change of settings reaches a
// broker by ZooKeeper's watch.
const cutWithin = 5 * time.Second

// revoke changes the list of what is revoked, as the control plane does.
func (s *secured) revoke(op kadm.IncrementalOp, entries string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	rs, err := s.adm.AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Op: op, Name: notBefore, Value: &entries}})
	if err != nil || len(rs) != 1 || rs[0].Err != nil {
		s.t.Fatalf("altering %s: %+v, %v", notBefore, rs, err)
	}
}

// TestRevocation takes tokens back and looks at every way in which they could count on.
func TestRevocation(t *testing.T) {
	s := startSecured(t, 2)
	s.topic("orders", 2, "min.insync.replicas=1")
	for _, who := range []string{"alice", "bob"} {
		s.allow(who, kmsg.ACLResourceTypeTopic, "orders", kmsg.ACLOperationRead, kmsg.ACLOperationWrite)
	}
	// What it was issued for by the second matters here, not the clock.
	issued := time.Now().Add(-10 * time.Second)
	of := func(sub, credential string, at time.Time) string {
		return s.token(sub, set("iat", at.Unix()), set("credential", credential))
	}
	old := of("alice", "sec_1", issued)
	login := func(addr, token string) *rawConn {
		t.Helper()
		w := dialWire(t, addr)
		if code, _ := w.login(token); code != 0 {
			t.Fatalf("login: %v", kerr.ErrorForCode(code))
		}
		return w
	}
	refused := func(addr, token string) {
		t.Helper()
		w := dialWire(t, addr)
		if code, _ := w.login(token); code != kerr.SaslAuthenticationFailed.Code {
			t.Errorf("a revoked token was answered %v", kerr.ErrorForCode(code))
		}
		w.mustBeClosed()
	}
	served := func(what string, w *rawConn) {
		t.Helper()
		if got := codes(w.must(metadataOf("orders"))); !slices.Equal(got, []int16{0}) {
			t.Errorf("%s: answered %v", what, got)
		}
	}
	var cut, stay []*rawConn
	for _, n := range s.Brokers {
		cut = append(cut, login(n.Addr, old), login(n.Addr, old))
		stay = append(stay, login(n.Addr, of("bob", "sec_1x", issued)), s.control(s.internal[n.ID]))
		// Waits for data that never comes: a cut that waits for the next request would take half a minute.
		poll := kmsg.NewPtrFetchRequest()
		poll.Version, poll.MaxWaitMillis, poll.MinBytes, poll.MaxBytes, poll.SessionEpoch = 12, 30_000, 1, 1<<20, -1
		ft := kmsg.NewFetchRequestTopic()
		ft.Topic = "orders"
		for p := range int32(2) {
			fp := kmsg.NewFetchRequestTopicPartition()
			fp.Partition, fp.CurrentLeaderEpoch, fp.PartitionMaxBytes = p, -1, 1<<20
			ft.Partitions = append(ft.Partitions, fp)
		}
		poll.Topics = append(poll.Topics, ft)
		w := cut[len(cut)-1]
		if _, err := w.Write(format.AppendRequest(nil, poll, 77)); err != nil {
			t.Fatal(err)
		}
	}

	// measured makes the change and says when the last of the connections was cut.
	measured := func(what string, change func(), conns []*rawConn) {
		t.Helper()
		began := time.Now()
		var wg sync.WaitGroup
		took := make([]time.Duration, len(conns))
		for i, w := range conns {
			wg.Go(func() {
				for { // a poll of a partition that is led elsewhere may be answered before
					_, err := w.frame()
					if errors.Is(err, errClosed) {
						break
					} else if err != nil {
						took[i] = time.Hour
						return
					}
				}
				took[i] = time.Since(began)
			})
		}
		change()
		wg.Wait()
		if worst := slices.Max(took); worst > cutWithin {
			t.Errorf("%s: the last connection was cut after %v", what, worst)
		} else {
			t.Logf("%s: %d connections on %d brokers cut within %v", what, len(conns), len(s.Brokers), worst)
		}
	}

	// A client whose tokens are new goes on, however often it is cut.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Bootstrap()...), kgo.DefaultProduceTopic("orders"),
		kgo.SASL(oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			return oauth.Auth{Token: of("alice", "sec_2", time.Now())}, nil
		})))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	produce := func() {
		t.Helper()
		if err := client.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	produce()

	alice := fmt.Sprintf("User:alice=%d", issued.Add(time.Second).UnixMilli())
	measured("principal", func() {
		s.revoke(kadm.AppendConfig, alice+",User:control="+fmt.Sprint(time.Now().Add(time.Hour).UnixMilli()))
	}, cut)
	for i, w := range stay {
		served(fmt.Sprint("connection ", i, " that has nothing to do with it"), w)
	}
	produce()
	for _, n := range s.Brokers {
		refused(n.Addr, old)
		w := login(n.Addr, of("alice", "sec_1", issued.Add(2*time.Second)))
		served("a token issued since", w)
		// Re-authentication with a revoked one ends the session that stands.
		w.handshake("OAUTHBEARER")
		if code, _ := w.loginBytes(bearer(old)); code != kerr.SaslAuthenticationFailed.Code {
			t.Errorf("re-authenticated with a revoked token: %v", kerr.ErrorForCode(code))
		}
		w.mustBeClosed()
	}

	// One of two secrets: who uses the other one notices nothing.
	one, other := of("alice", "sec_1", time.Now()), of("alice", "sec_2", time.Now())
	cut = nil
	stay = nil
	for _, n := range s.Brokers {
		cut, stay = append(cut, login(n.Addr, one)), append(stay, login(n.Addr, other))
	}
	measured("credential", func() {
		s.revoke(kadm.AppendConfig, fmt.Sprintf("Credential:sec_1=%d", time.Now().Add(time.Minute).UnixMilli()))
	}, cut)
	for i, w := range stay {
		served(fmt.Sprint("connection ", i, " of the other secret"), w)
	}
	produce()

	// A broker that has just started refuses from its first connection on.
	s.Brokers[0].Kill()
	s.Brokers[0].Start()
	for _, token := range []string{old, one} {
		refused(s.Brokers[0].Addr, token)
	}

	// Nobody but who may alter the cluster's settings takes a revocation back.
	w := login(s.Brokers[1].Addr, other)
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	rr := kmsg.NewIncrementalAlterConfigsRequestResource()
	rr.ResourceType = kmsg.ConfigResourceTypeBroker
	rc := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	rc.Name, rc.Op = notBefore, kmsg.IncrementalAlterConfigOpDelete
	rr.Configs = append(rr.Configs, rc)
	req.Resources = append(req.Resources, rr)
	if got := codes(w.must(req)); !slices.Equal(got, []int16{kerr.ClusterAuthorizationFailed.Code}) {
		t.Errorf("a tenant's client altering %s: %v", notBefore, got)
	}
	s.revoke(kadm.SubtractConfig, alice)
	for _, n := range s.Brokers {
		Await(t, cutWithin, "a token whose revocation was taken back", func() error {
			w := dialWire(t, n.Addr)
			defer w.Close()
			if code, _ := w.login(of("alice", "sec_3", issued)); code != 0 {
				return kerr.ErrorForCode(code)
			}
			return nil
		})
	}
}
