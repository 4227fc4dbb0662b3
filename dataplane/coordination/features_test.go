package coordination

import (
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
)

func TestFeatureRecordsAreWrittenAsDocumented(t *testing.T) {
	of := map[int32]Abilities{2: nil, 10: {"transaction.version": {0, 2}}}
	data, err := encodeFeatures(of)
	must(t, err)
	const want = `{"version":1,"brokers":{"10":{"transaction.version":{"min_version":0,"max_version":2}},"2":{}}}`
	if string(data) != want {
		t.Errorf("got  %s\nwant %s", data, want)
	}
	back, err := decodeFeatures(data)
	must(t, err)
	if len(back) != 2 || len(back[2]) != 0 || !maps.Equal(back[10], of[10]) {
		t.Errorf("read as %v", back)
	}
	for _, bad := range []string{
		"", "null", "[]", "{}", `{"version":1}`, `{"version":2,"brokers":{}}`, `{"version":1,"brokers":{"x":{}}}`, `{"version":1,"brokers":{"-1":{}}}`,
		`{"version":1,"brokers":{"1":{"f":{"min_version":0,"max_version":70000}}}}`, `{"version":1,"brokers":{"1":[]}}`,
	} {
		if of, err := decodeFeatures([]byte(bad)); err == nil {
			t.Errorf("%q was read as %v", bad, of)
		}
	}
	// What cannot be is a feature that the broker does not have, as in its registration.
	back, err = decodeFeatures([]byte(`{"version":1,"brokers":{"1":{"f":{"min_version":3,"max_version":1},"g":{"max_version":1}},"2":null}}`))
	must(t, err)
	if !maps.Equal(back[1], Abilities{"g": {0, 1}}) || len(back) != 2 {
		t.Errorf("read as %v", back)
	}
}

func TestWhatIsSeenOfABrokerWinsOverItsRecord(t *testing.T) {
	able := Abilities{"f": {0, 2}}
	r := FeatureRecords{Of: map[int32]Abilities{1: able, 2: able, 3: {}, 4: {}}}
	live := []Broker{{ID: 1, Features: able}, {ID: 2}, {ID: 3, Features: able}, {ID: 5}}
	next, changed := r.Contradicted(live)
	if want := (map[int32]Abilities{1: able, 2: nil, 3: able, 4: {}, 5: nil}); !changed || !reflect.DeepEqual(next, want) {
		t.Errorf("the records become %v, changed: %v; wanted %v", next, changed, want)
	}
	if len(r.Of) != 4 || !maps.Equal(r.Of[2], able) {
		t.Errorf("what was read has changed: %v", r.Of)
	}
	if again, changed := (FeatureRecords{Of: next}).Contradicted(live); changed {
		t.Errorf("they become %v once more", again)
	}
	count := func(k KnownBrokers) (able, unable int) {
		for _, can := range k.Abilities() {
			if len(can) > 0 {
				able++
			} else {
				unable++
			}
		}
		return able, unable
	}
	if able, unable := count(KnownBrokers{Live: live, Records: r}); able != 2 || unable != 3 {
		t.Errorf("%d brokers are able and %d are not: of 1, 3 and 2, 4, 5", able, unable)
	}
	if able, unable := count(KnownBrokers{Live: live[:1], Records: FeatureRecords{Bad: errors.New("bad")}}); able != 1 || unable != 1 {
		t.Errorf("%d brokers are able and %d are not where the records cannot be read", able, unable)
	}
}

func TestFeatureRecordsAreWrittenOncePerVersion(t *testing.T) {
	t.Parallel()
	ctx, at := testContext(t), zktest.Chroot(t)
	a := connect(t, Config{Connect: at, Digest: "tenant:secret", SetACL: true})
	b := connect(t, Config{Connect: at, Digest: "tenant:secret", SetACL: true})
	other := connect(t, Config{Connect: at, Digest: "other:secret", SetACL: true})
	must(t, a.EnsureLayout(ctx))
	read := func(c *Client, ids ...int32) FeatureRecords {
		t.Helper()
		r, err := c.FeatureRecords(ctx)
		must(t, errors.Join(err, r.Bad))
		if got := slices.Sorted(maps.Keys(r.Of)); !slices.Equal(got, ids) {
			t.Fatalf("records of %v, wanted %v", got, ids)
		}
		return r
	}
	of := func(ids ...int32) map[int32]Abilities {
		m := map[int32]Abilities{}
		for _, id := range ids {
			m[id] = Abilities{"f": {0, int16(id)}}
		}
		return m
	}
	none := read(a)
	if err := b.WriteFeatureRecords(ctx, read(b), of(1), nil); err != nil {
		t.Fatal(err)
	}
	if err := a.WriteFeatureRecords(ctx, none, of(2), nil); !errors.Is(err, ErrBadVersion) {
		t.Errorf("the first was written over: %v", err)
	}
	one := read(a, 1)
	must(t, b.WriteFeatureRecords(ctx, one, of(1, 2), nil))
	if err := a.WriteFeatureRecords(ctx, one, of(1), nil); !errors.Is(err, ErrBadVersion) {
		t.Errorf("the second was written over: %v", err)
	}
	two := read(other, 1, 2) // anybody may read
	if err := other.WriteFeatureRecords(ctx, two, of(), nil); !errors.Is(err, ErrNoAuth) {
		t.Errorf("another user may write: %v", err)
	}
	f, _, _, err := a.ElectController(ctx, 1)
	must(t, err)
	must(t, a.WriteFeatureRecords(ctx, two, of(2), &f))
	old := Fence{f.Epoch - 1, f.Version - 1}
	if err := b.WriteFeatureRecords(ctx, read(b, 2), of(1), &old); !errors.Is(err, ErrControllerMoved) {
		t.Errorf("a former controller may write: %v", err)
	}
	must(t, a.Delete(ctx, FeaturesPath, -1))
	if err := b.WriteFeatureRecords(ctx, two, of(1), nil); !errors.Is(err, ErrBadVersion) {
		t.Errorf("removed records were written over: %v", err)
	}
	must(t, a.WriteFeatureRecords(ctx, read(a), of(1), &f)) // made anew
	_, err = a.Set(ctx, FeaturesPath, []byte("nonsense"), -1)
	must(t, err)
	bad, err := b.FeatureRecords(ctx)
	if err != nil || bad.Bad == nil || len(bad.Of) != 0 {
		t.Fatalf("nonsense was read as %+v, %v", bad, err)
	}
	must(t, b.WriteFeatureRecords(ctx, bad, of(3), nil))
	read(a, 3)
	big := map[int32]Abilities{1: {strings.Repeat("x", maxTopicData): {0, 1}}}
	if err := a.WriteFeatureRecords(ctx, read(a, 3), big, nil); err == nil {
		t.Error("more than ZooKeeper takes was written")
	}
}

// A watcher hears of the records' first writing, of changes and of their removal.
func TestKnownBrokersAreWatched(t *testing.T) {
	t.Parallel()
	ctx, path := testContext(t), zktest.Path()
	writer := connect(t, Config{Connect: zktest.Shared(t).Addr() + path})
	must(t, writer.EnsureLayout(ctx))
	c, proxy := proxied(t, path)
	woken := make(chan struct{}, 100)
	t.Cleanup(c.WatchKnownBrokers(func() { woken <- struct{}{} }))
	last := int64(-1)
	next := func(what string, live, recorded int) {
		t.Helper()
		for {
			k, err := c.KnownBrokers(ctx)
			if errors.Is(err, ErrExpired) {
				recv(t, woken, "another session")
				continue
			}
			must(t, err)
			if len(k.Live) == live && len(k.Records.Of) == recorded {
				if k.Version <= last {
					t.Fatalf("%s: version %d after %d", what, k.Version, last)
				}
				last = k.Version
				return
			}
			recv(t, woken, what)
		}
	}
	write := func(ids ...int32) {
		t.Helper()
		r, err := writer.FeatureRecords(ctx)
		must(t, err)
		of := map[int32]Abilities{}
		for _, id := range ids {
			of[id] = nil
		}
		must(t, writer.WriteFeatureRecords(ctx, r, of, nil))
	}
	next("nothing", 0, 0)
	write(1)
	next("the first record", 0, 1)
	epoch, err := writer.RegisterBroker(ctx, testBroker(2, 9092))
	must(t, err)
	next("a registration", 1, 1)
	write(1, 2)
	next("another record", 1, 2)
	proxy.Cut()
	proxy.Expire(t)
	must(t, writer.UnregisterBroker(ctx, 2, epoch))
	write(1, 2, 3)
	proxy.Heal()
	next("what happened between two sessions", 0, 3)
	must(t, writer.Delete(ctx, FeaturesPath, -1))
	for { // the version is that of the registrations again
		k, err := c.KnownBrokers(ctx)
		must(t, err)
		if len(k.Records.Of) == 0 {
			break
		}
		recv(t, woken, "removal of the records")
	}
}

// What is told under one version is the same for all who read it, however the brokers and
// their records change meanwhile, and nobody's version goes back.
func TestKnownBrokersOfOneVersionAreTheSame(t *testing.T) {
	t.Parallel()
	ctx, path := testContext(t), zktest.Path()
	addr := zktest.Shared(t).Addr() + path
	writer := connect(t, Config{Connect: addr})
	must(t, writer.EnsureLayout(ctx))
	writing, done := context.WithCancel(ctx)
	defer done()
	var mu sync.Mutex
	told := map[int64]string{}
	var wg sync.WaitGroup
	for range 3 {
		c := connect(t, Config{Connect: addr})
		wg.Go(func() {
			last := int64(-1)
			for writing.Err() == nil {
				k, err := c.KnownBrokers(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				var live []string
				for _, b := range k.Live {
					live = append(live, fmt.Sprint(b.ID, "/", b.Epoch))
				}
				state := fmt.Sprint(live, " ", k.Records.Of)
				mu.Lock()
				before, ok := told[k.Version]
				told[k.Version] = state
				mu.Unlock()
				if ok && before != state {
					t.Errorf("version %d is %s and %s", k.Version, before, state)
					return
				}
				if k.Version < last {
					t.Errorf("version %d after %d", k.Version, last)
					return
				}
				last = k.Version
			}
		})
	}
	// A broker that comes and goes, and its record with it, each as fast as it can.
	seen := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(told)
	}
	began := time.Now()
	for i := int32(0); seen() < 300 && time.Since(began) < 10*time.Second; i++ {
		epoch, err := writer.RegisterBroker(ctx, testBroker(1, 9092))
		must(t, err)
		r, err := writer.FeatureRecords(ctx)
		must(t, err)
		must(t, writer.WriteFeatureRecords(ctx, r, map[int32]Abilities{i: {"f": {0, int16(i % 100)}}}, nil))
		must(t, writer.UnregisterBroker(ctx, 1, epoch))
	}
	done()
	wg.Wait()
	if len(told) < 2 {
		t.Errorf("%d versions were seen", len(told))
	}
}
