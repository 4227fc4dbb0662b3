package coordination

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/dataplane/coordination/zktest"
	"penstock/dataplane/protocol"
)

func testBroker(id int32, port int32) Broker {
	return Broker{ID: id, JMXPort: -1, Rack: "r1", Endpoints: []Endpoint{
		{Listener: "CLIENT", SecurityProtocol: "SASL_PLAINTEXT", Host: "127.0.0.1", Port: port},
		{Listener: "INTERNAL", SecurityProtocol: "SASL_PLAINTEXT", Host: "::1", Port: port + 1},
	}}
}

func TestBrokerJSONIsKafkas(t *testing.T) {
	b := testBroker(3, 9092)
	data, err := encodeBroker(b, time.UnixMilli(1700000000000))
	must(t, err)
	want := `{"version":5,"host":null,"port":-1,"jmx_port":-1,"timestamp":"1700000000000","endpoints":["CLIENT://127.0.0.1:9092","INTERNAL://[::1]:9093"],"rack":"r1","listener_security_protocol_map":{"CLIENT":"SASL_PLAINTEXT","INTERNAL":"SASL_PLAINTEXT"},"features":{}}`
	if string(data) != want {
		t.Errorf("got  %s\nwant %s", data, want)
	}
	back, err := decodeBroker(3, data)
	must(t, err)
	if !reflect.DeepEqual(back, b) {
		t.Errorf("got %+v", back)
	}
	b.Features = map[string]FeatureRange{"transaction.version": {0, 2}}
	data, err = encodeBroker(b, time.UnixMilli(1700000000000))
	must(t, err)
	if want := strings.Replace(want, `"features":{}`, `"features":{"transaction.version":{"min_version":0,"max_version":2}}`, 1); string(data) != want {
		t.Errorf("got  %s\nwant %s", data, want)
	}
	back, err = decodeBroker(3, data)
	must(t, err)
	if !reflect.DeepEqual(back, b) {
		t.Errorf("got %+v", back)
	}
	strange := strings.Replace(string(data), `"features":{`, `"features":{"a":"b","c":{"min_version":3,"max_version":1},"d":null,"e":{"min_version":70000},`, 1)
	back, err = decodeBroker(3, []byte(strange))
	must(t, err)
	if len(back.Features) != 2 || back.Features["transaction.version"] != (FeatureRange{0, 2}) || back.Features["d"] != (FeatureRange{}) {
		t.Errorf("got %+v", back.Features)
	}
	// As Kafka 3.9 writes it.
	kafka := `{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://h:9092"],"jmx_port":-1,"port":9092,"host":"h","version":5,"timestamp":"1"}`
	got, err := decodeBroker(1, []byte(kafka))
	must(t, err)
	if e, ok := got.Endpoint("plaintext"); !ok || e.Host != "h" || e.Port != 9092 || got.Rack != "" {
		t.Errorf("got %+v", got)
	}
}

func TestLogDirEventIsKafkas(t *testing.T) {
	c := connect(t, Config{Connect: zktest.Shared(t).Addr() + zktest.Path(), SessionTimeout: 10 * time.Second})
	must(t, c.EnsureLayout(t.Context()))
	must(t, c.NotifyLogDirFailure(t.Context(), 7))
	names, err := c.Children(t.Context(), LogDirEventsPath)
	must(t, err)
	if len(names) != 1 || names[0] != "log_dir_event_0000000000" {
		t.Fatalf("children %v", names)
	}
	data, _, err := c.Get(t.Context(), LogDirEventsPath+"/"+names[0])
	if must(t, err); string(data) != `{"version":1,"broker":7,"event":1}` {
		t.Errorf("content %s", data)
	}
	if id, err := DecodeLogDirEvent(data); id != 7 || err != nil {
		t.Errorf("read as %d, %v", id, err)
	}
	for _, bad := range []string{"", "{}", `{"version":1,"broker":-1,"event":1}`, `{"broker":"7"}`, "[]"} {
		if id, err := DecodeLogDirEvent([]byte(bad)); err == nil {
			t.Errorf("%q was read as %d", bad, id)
		}
	}
}

func TestTopicAndStateJSONAreKafkas(t *testing.T) {
	kafka := `{"removing_replicas":{},"partitions":{"0":[1,2],"1":[2,1]},"topic_id":"rmcl5O2ISTukjkw0Ix2vVA","adding_replicas":{},"version":3}`
	a, err := DecodeTopic([]byte(kafka))
	must(t, err)
	if !slices.Equal(a.Partitions[1], []int32{2, 1}) || a.ID == (protocol.UUID{}) {
		t.Fatalf("got %+v", a)
	}
	if got, want := string(EncodeTopic(a)), `{"version":3,"topic_id":"rmcl5O2ISTukjkw0Ix2vVA","partitions":{"0":[1,2],"1":[2,1]},"adding_replicas":{},"removing_replicas":{}}`; got != want {
		t.Errorf("got %s", got)
	}
	s, err := DecodeState([]byte(`{"controller_epoch":7,"leader":1,"version":1,"leader_epoch":4,"isr":[1,2],"leader_recovery_state":1}`))
	must(t, err)
	if got, want := string(EncodeState(s)), `{"controller_epoch":7,"leader":1,"version":1,"leader_epoch":4,"isr":[1,2],"leader_recovery_state":1}`; got != want {
		t.Errorf("got %s", got)
	}
	if got := string(EncodeState(PartitionState{Leader: -1})); got != `{"controller_epoch":0,"leader":-1,"version":1,"leader_epoch":0,"isr":[]}` {
		t.Errorf("got %s", got)
	}
}

func FuzzDecodeZnodes(f *testing.F) {
	f.Add([]byte(`{"version":5,"host":null,"port":-1,"endpoints":["A://[::1]:9"]}`))
	f.Add([]byte(`{"removing_replicas":{},"partitions":{"0":[1,2]},"topic_id":"rmcl5O2ISTukjkw0Ix2vVA","version":3}`))
	f.Add([]byte(`{"controller_epoch":7,"leader":1,"version":1,"leader_epoch":4,"isr":[1,2]}`))
	f.Add([]byte(`{"version":1,"brokers":{"2":{},"10":{"transaction.version":{"min_version":0,"max_version":2}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if of, err := decodeFeatures(data); err == nil {
			again, err := encodeFeatures(of)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := decodeFeatures(again); err != nil || len(back) != len(of) {
				t.Fatalf("%v became %v, %v", of, back, err)
			}
		}
		if b, err := decodeBroker(1, data); err == nil {
			if _, err := encodeBroker(b, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		if a, err := DecodeTopic(data); err == nil {
			b, err := DecodeTopic(EncodeTopic(a))
			if err != nil || b.ID != a.ID || len(b.Partitions) != len(a.Partitions) {
				t.Fatalf("%+v became %+v, %v", a, b, err)
			}
		}
		if s, err := DecodeState(data); err == nil && !bytes.Equal(EncodeState(s), EncodeState(s)) {
			t.Fatal("not stable")
		}
	})
}

func TestRegistrationReplacesOurOwnOldSession(t *testing.T) {
	t.Parallel()

	ctx, path := testContext(t), zktest.Path()
	c, p := proxied(t, path)
	first, err := c.RegisterBroker(ctx, testBroker(1, 9092))
	must(t, err)
	again, err := c.RegisterBroker(ctx, testBroker(1, 9092))
	must(t, err)
	if again != first {
		t.Fatalf("registering twice in one session: epoch %d, then %d", first, again)
	}

	// A process that died: its session lives for another 30 s at the server.
	p.Cut()
	next, _ := proxied(t, path)
	began := time.Now()
	epoch, err := next.RegisterBroker(ctx, testBroker(1, 9092))
	must(t, err)
	if took := time.Since(began); took > 10*time.Second {
		t.Fatalf("waited %v for the old session", took)
	}
	if epoch <= first {
		t.Fatalf("epoch %d after %d", epoch, first)
	}
	// The end of the old session does not take the new registration with it.
	p.Expire(t)
	b, err := next.Broker(ctx, 1)
	must(t, err)
	if b.Epoch != epoch {
		t.Fatalf("registered under %d, want %d", b.Epoch, epoch)
	}

	// Known by its session rather than by its addresses.
	moved := testBroker(1, 19092)
	if _, err := connect(t, Config{Connect: zktest.Shared(t).Addr() + path}).RegisterBroker(ctx, moved, next.SessionID()); err != nil {
		t.Fatalf("a former session that we know: %v", err)
	}
}

func TestRegistrationUnderAnothersIDFails(t *testing.T) {
	ctx, at := testContext(t), zktest.Chroot(t)
	a, b := connect(t, Config{Connect: at}), connect(t, Config{Connect: at})
	epoch, err := a.RegisterBroker(ctx, testBroker(1, 9092))
	must(t, err)
	if _, err := b.RegisterBroker(ctx, testBroker(1, 9192)); !errors.Is(err, ErrBrokerIDInUse) {
		t.Fatalf("got %v", err)
	}
	got, err := b.Brokers(ctx)
	must(t, err)
	if len(got) != 1 || got[0].Epoch != epoch {
		t.Fatalf("got %+v", got)
	}
	must(t, b.UnregisterBroker(ctx, 1, epoch-1)) // not that registration: nothing happens
	must(t, a.UnregisterBroker(ctx, 1, epoch))
	if got, err = b.Brokers(ctx); err != nil || len(got) != 0 {
		t.Fatalf("got %+v, %v", got, err)
	}
}

func TestElectionHasOneWinnerAndFencesTheLoser(t *testing.T) {
	t.Parallel()

	ctx, path := testContext(t), zktest.Path()
	a, pa := proxied(t, path)
	b, _ := proxied(t, path)
	must(t, a.EnsureLayout(ctx))
	fa, id, won, err := a.ElectController(ctx, 1)
	if err != nil || !won || id != 1 || fa.Epoch != 1 {
		t.Fatalf("%+v %d %v %v", fa, id, won, err)
	}
	if _, id, won, err := b.ElectController(ctx, 2); err != nil || won || id != 1 {
		t.Fatalf("second: %d %v %v", id, won, err)
	}
	must(t, a.CreateTopic(ctx, fa, "t", TopicAssignment{ID: NewTopicID(), Partitions: map[int32][]int32{0: {1}}}, nil))

	pa.Cut()
	pa.Expire(t)
	fb, id, won, err := b.ElectController(ctx, 2)
	if err != nil || !won || id != 2 || fb.Epoch != 2 {
		t.Fatalf("%+v %d %v %v", fb, id, won, err)
	}
	pa.Heal()
	// The zombie comes back with a new session and its old fence.
	tp := protocol.TopicPartition{Topic: "t"}
	if _, err := a.CreateStates(ctx, fa, []StateWrite{{TP: tp}}); !errors.Is(err, ErrControllerMoved) && !errors.Is(err, ErrExpired) {
		t.Fatalf("zombie created a state: %v", err)
	}
	if _, err := a.CreateStates(ctx, fa, []StateWrite{{TP: tp}}); !errors.Is(err, ErrControllerMoved) {
		t.Fatalf("zombie created a state: %v", err)
	}
	if err := a.ResignController(ctx, fa); !errors.Is(err, ErrControllerMoved) {
		t.Fatalf("zombie removed the controller: %v", err)
	}
	if _, err := b.PartitionState(ctx, tp); !errors.Is(err, ErrNoNode) {
		t.Fatalf("state: %v", err)
	}
	must(t, b.ResignController(ctx, fb))
	if id, err := b.ControllerID(ctx); err != nil || id != -1 {
		t.Fatalf("%d %v", id, err)
	}
}

func TestOnlyOnesOwnLeftoverControllerIsForgotten(t *testing.T) {
	ctx, at := testContext(t), zktest.Chroot(t)
	a, b := connect(t, Config{Connect: at}), connect(t, Config{Connect: at})
	must(t, a.EnsureLayout(ctx))
	_, _, won, err := a.ElectController(ctx, 1)
	if err != nil || !won {
		t.Fatal(err)
	}
	must(t, b.ForgetController(ctx, 2))
	if id, err := b.ControllerID(ctx); err != nil || id != 1 {
		t.Fatalf("another's office was taken: %d %v", id, err)
	}
	must(t, b.ForgetController(ctx, 1)) // the next life of broker 1
	if id, err := b.ControllerID(ctx); err != nil || id != -1 {
		t.Fatalf("%d %v", id, err)
	}
	// The epoch moved since it was read: not even one's own is removed.
	f, _, _, err := b.ElectController(ctx, 1)
	must(t, err)
	if err := a.ResignController(ctx, Fence{f.Epoch - 1, f.Version - 1}); !errors.Is(err, ErrControllerMoved) {
		t.Fatalf("got %v", err)
	}
}

func TestPartitionStatesAreWrittenByVersion(t *testing.T) {
	ctx := testContext(t)
	c := connect(t, Config{Connect: zktest.Chroot(t)})
	must(t, c.EnsureLayout(ctx))
	f, _, _, err := c.ElectController(ctx, 1)
	must(t, err)
	parts := map[int32][]int32{}
	var ws []StateWrite
	for i := range int32(200) {
		parts[i] = []int32{1}
		ws = append(ws, StateWrite{TP: protocol.TopicPartition{Topic: "t", Partition: i}, State: PartitionState{Leader: 1, ISR: []int32{1}, ControllerEpoch: 1}})
	}
	must(t, c.CreateTopic(ctx, f, "t", TopicAssignment{ID: NewTopicID(), Partitions: parts}, nil))
	errs, err := c.CreateStates(ctx, f, ws)
	must(t, errors.Join(append(errs, err)...))
	errs, err = c.CreateStates(ctx, f, ws[:1])
	must(t, err)
	if !errors.Is(errs[0], ErrNodeExists) {
		t.Fatalf("created twice: %v", errs[0])
	}
	for i := range ws {
		ws[i].State.LeaderEpoch = 5
	}
	ws[7].State.Version = 3
	errs, err = c.UpdateStates(ctx, f, ws)
	must(t, err)
	for i, e := range errs {
		if (i == 7) != errors.Is(e, ErrBadVersion) || i != 7 && (e != nil || ws[i].State.Version != 1) {
			t.Fatalf("partition %d: %v, version %d", i, e, ws[i].State.Version)
		}
	}
	var tps []protocol.TopicPartition
	for _, w := range ws {
		tps = append(tps, w.TP)
	}
	states, err := c.PartitionStates(ctx, append(tps, protocol.TopicPartition{Topic: "none"}))
	must(t, err)
	if len(states) != 200 || states[tps[0]].LeaderEpoch != 5 || states[tps[7]].LeaderEpoch != 0 {
		t.Fatalf("%d states, %+v, %+v", len(states), states[tps[0]], states[tps[7]])
	}
	must(t, c.MarkForDeletion(ctx, f, "t"))
	must(t, c.RemoveTopic(ctx, f, "t"))
	for _, p := range []string{TopicPath("t"), "/config/topics/t", DeleteTopicsPath + "/t"} {
		if st, err := c.Exists(ctx, p); err != nil || st != nil {
			t.Errorf("%s is still there: %v", p, err)
		}
	}
}

func TestProducerIDBlocksNeverOverlap(t *testing.T) {
	ctx, at := testContext(t), zktest.Chroot(t)
	a, b := connect(t, Config{Connect: at}), connect(t, Config{Connect: at})
	var mu sync.Mutex
	firsts := map[int64]bool{}
	err := parallel(ctx, 20, func(ctx2 context.Context, i int) error {
		c := a
		if i%2 == 1 {
			c = b
		}
		blk, err := c.NextProducerIDBlock(ctx2, int32(i))
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if firsts[blk.First] || blk.Last != blk.First+999 || blk.First%1000 != 0 {
			return fmt.Errorf("block %+v", blk)
		}
		firsts[blk.First] = true
		return nil
	})
	must(t, err)
	if len(firsts) != 20 {
		t.Fatalf("%d blocks", len(firsts))
	}
}

func TestConfigChangesReachEveryListenerAlsoOverALostSession(t *testing.T) {
	t.Parallel()

	ctx, path := testContext(t), zktest.Path()
	writer := connect(t, Config{Connect: zktest.Shared(t).Addr() + path})
	must(t, writer.EnsureLayout(ctx))
	must(t, writer.ChangeConfig(ctx, "topics/before", to(map[string]string{"a": "1"})))
	c, p := proxied(t, path)
	seen := make(chan string, 100)
	l, err := c.ListenConfigChanges(ctx, func(e string) error { seen <- e; return nil })
	must(t, err)
	defer l.Close()
	if got := recv(t, seen, "the one before"); got != "topics/before" {
		t.Fatal(got)
	}
	must(t, writer.ChangeConfig(ctx, "topics/t", to(map[string]string{"a": "1"})))
	if got := recv(t, seen, "change"); got != "topics/t" {
		t.Fatal(got)
	}
	p.Cut()
	p.Expire(t)
	must(t, writer.ChangeConfig(ctx, "users/u/clients/c", to(map[string]string{"q": "1"})))
	p.Heal()
	if got := recv(t, seen, "change while the session was lost"); got != "users/u/clients/c" {
		t.Fatal(got)
	}
	cfg, err := c.Config(ctx, "users/u/clients/c")
	must(t, err)
	if !maps.Equal(cfg, map[string]string{"q": "1"}) {
		t.Fatalf("%v", cfg)
	}
	if cfg, err := c.Config(ctx, "topics/none"); err != nil || len(cfg) != 0 {
		t.Fatalf("%v %v", cfg, err)
	}
}

func TestChangesOfOneConfigAtATimeAreAllKept(t *testing.T) {
	ctx, path := testContext(t), zktest.Chroot(t)
	const brokers, each = 4, 5
	var wg sync.WaitGroup
	for b := range brokers {
		c := connect(t, Config{Connect: path})
		wg.Go(func() {
			for i := range each {
				err := c.ChangeConfig(ctx, "users/u", func(now map[string]string) (map[string]string, error) {
					now[fmt.Sprint(b, "-", i)] = "1"
					return now, nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got, err := connect(t, Config{Connect: path}).Config(ctx, "users/u")
	must(t, err)
	if len(got) != brokers*each {
		t.Errorf("%d of %d changes are left: %v", len(got), brokers*each, got)
	}
}

// A notification whose content could not be read, since the session ended just
// then, must not count as handled: nobody would ever apply the change.
func TestChangeThatCouldNotBeAppliedForALostSessionComesAgain(t *testing.T) {
	ctx := testContext(t)
	c := connect(t, Config{Connect: zktest.Chroot(t)})
	must(t, c.EnsureLayout(ctx))
	seen := make(chan string, 10)
	fail := map[string]error{"users/lost": fmt.Errorf("reading: %w", ErrExpired), "users/bad": errors.New("makes no sense")}
	l, err := c.ListenConfigChanges(ctx, func(e string) error {
		err := fail[e]
		delete(fail, e)
		seen <- e
		return err
	})
	must(t, err)
	defer l.Close()
	for _, e := range []string{"users/lost", "users/bad", "users/last"} {
		must(t, c.ChangeConfig(ctx, e, to(map[string]string{"q": "1"})))
	}
	for _, want := range []string{"users/lost", "users/lost", "users/bad", "users/last"} {
		if got := recv(t, seen, want); got != want {
			t.Fatalf("told of %s, want %s", got, want)
		}
	}
}

// A broker that is cut off for longer than notifications live sees none of those that
// came and went: it is told that anything may have changed.
func TestNotificationsThatWereMissedAreNoticed(t *testing.T) {
	t.Parallel()
	ctx, path := testContext(t), zktest.Path()
	writer := connect(t, Config{Connect: zktest.Shared(t).Addr() + path})
	must(t, writer.EnsureLayout(ctx))
	change := func(entity string) {
		t.Helper()
		must(t, writer.ChangeConfig(ctx, entity, to(map[string]string{"a": "1"})))
	}
	purge := func() {
		t.Helper()
		kids, err := writer.Children(ctx, ConfigChangesPath)
		must(t, err)
		for _, k := range kids {
			must(t, writer.Delete(ctx, ConfigChangesPath+"/"+k, -1))
		}
	}
	change("topics/gone")
	purge()
	change("topics/first")
	c, p := proxied(t, path)
	seen := make(chan string, 100)
	fail := true
	l, err := c.ListenConfigChanges(ctx, func(e string) error {
		if seen <- e; e == "" && fail {
			fail = false
			return errors.New("once")
		}
		return nil
	})
	must(t, err)
	defer l.Close()
	want := func(entities ...string) {
		t.Helper()
		for _, e := range entities {
			if got := recv(t, seen, e); got != e {
				t.Fatalf("told of %q, want %q", got, e)
			}
		}
	}
	want("topics/first") // what went before is no business of one that begins
	change("topics/live")
	want("topics/live")
	for _, later := range []bool{true, false} { // is there one that it still finds?
		p.Cut()
		change("topics/missed")
		purge()
		if later {
			change("topics/later")
		}
		p.Heal()
		if later {
			want("topics/later", "", "") // again after its failure
		} else {
			want("")
		}
	}
	change("topics/live")
	want("topics/live")
	purge() // of what has been seen
	change("topics/live")
	want("topics/live")
}

func TestACLListsAreComparedAndSet(t *testing.T) {
	ctx := testContext(t)
	c := connect(t, Config{Connect: zktest.Chroot(t)})
	must(t, c.EnsureLayout(ctx))
	seen := make(chan ACLResource, 10)
	ls, err := c.ListenACLChanges(ctx, func(r ACLResource) error { seen <- r; return nil })
	must(t, err)
	for _, l := range ls {
		defer l.Close()
	}
	for _, r := range []ACLResource{{Type: "Topic", Name: "a:b"}, {Type: "TransactionalId", Name: "x", Prefixed: true}} {
		list := []ACL{{"User:u", "Allow", "Read", "*"}}
		must(t, c.SetACLs(ctx, r, list, NoACLs))
		if got := recv(t, seen, "change"); got != r {
			t.Fatalf("told of %+v, want %+v", got, r)
		}
		if err := c.SetACLs(ctx, r, list, NoACLs); !errors.Is(err, ErrBadVersion) {
			t.Fatalf("created twice: %v", err)
		}
		got, v, err := c.ACLs(ctx, r)
		must(t, err)
		if !slices.Equal(got, list) || v != 0 {
			t.Fatalf("%v, version %d", got, v)
		}
		all, err := c.ACLResources(ctx)
		must(t, err)
		if !slices.Contains(all, r) {
			t.Fatalf("%v", all)
		}
		must(t, c.SetACLs(ctx, r, nil, v))
		if _, v, err := c.ACLs(ctx, r); err != nil || v != NoACLs {
			t.Fatalf("after removal: version %d, %v", v, err)
		}
		recv(t, seen, "removal")
	}
}

func FuzzLogDirEvent(f *testing.F) {
	f.Add([]byte(`{"version":1,"broker":7,"event":1}`))
	f.Add([]byte(`{"broker":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if id, err := DecodeLogDirEvent(data); (id < 0) != (err != nil) {
			t.Errorf("%q: %d, %v", data, id, err)
		}
	})
}

// Many states are written in one request. What is wrong with one of them must not
// keep the others from being written, and is told of that one.
func TestStatesWrittenTogetherHaveErrorsOfTheirOwn(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := connect(t, Config{Connect: zktest.Chroot(t)})
	must(t, c.EnsureLayout(ctx))
	f, _, _, err := c.ElectController(ctx, 1)
	must(t, err)
	const count = 3*statesAtOnce + 7
	a := TopicAssignment{ID: NewTopicID(), Partitions: map[int32][]int32{}}
	var ws []StateWrite
	for i := range int32(count) {
		a.Partitions[i] = []int32{1}
		ws = append(ws, StateWrite{TP: protocol.TopicPartition{Topic: "t", Partition: i}, State: PartitionState{Leader: 1, ISR: []int32{1}}})
	}
	must(t, c.CreateTopic(ctx, f, "t", a, nil))
	early, late := 3, count-1
	for _, i := range []int{early, late} {
		_, err := c.CreateStates(ctx, f, slices.Clone(ws[i:i+1]))
		must(t, err)
	}
	check := func(what string, errs []error, want map[int]error) {
		t.Helper()
		for i, err := range errs {
			if !errors.Is(err, want[i]) || err != nil && want[i] == nil {
				t.Errorf("%s %d: %v, want %v", what, i, err, want[i])
			}
		}
	}
	errs, err := c.CreateStates(ctx, f, ws)
	must(t, err)
	check("create", errs, map[int]error{early: ErrNodeExists, late: ErrNodeExists})
	for i := range ws {
		ws[i].State.Leader, ws[i].State.LeaderEpoch = -1, 1
	}
	ws[0].State.Version, ws[statesAtOnce].State.Version, ws[late].TP.Partition = 9, 9, count
	errs, err = c.UpdateStates(ctx, f, ws)
	must(t, err)
	check("update", errs, map[int]error{0: ErrBadVersion, statesAtOnce: ErrBadVersion, late: ErrNoNode})
	for i, w := range ws {
		if errs[i] != nil {
			continue
		}
		if s, err := c.PartitionState(ctx, w.TP); err != nil || s.Leader != -1 || s.Version != 1 || w.State.Version != 1 {
			t.Fatalf("%d: %+v, version told %d, %v", i, s, w.State.Version, err)
		}
	}
	must(t, c.ResignController(ctx, f))
	_, _, _, err = c.ElectController(ctx, 2)
	must(t, err)
	if _, err := c.UpdateStates(ctx, f, ws); !errors.Is(err, ErrControllerMoved) {
		t.Errorf("a former controller's writes: %v", err)
	}
}
