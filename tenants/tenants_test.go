package tenants

import (
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestIDsAreUniqueAndSortByTime(t *testing.T) {
	var ids []string
	for range 5000 {
		ids = append(ids, NewID(PrefixTenant))
	}
	if !slices.IsSorted(ids) {
		t.Error("ids of one process are not in the order in which they were made")
	}
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				id := NewID("clu_")
				mu.Lock()
				if seen[id] {
					t.Errorf("%s twice", id)
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	id := NewID("op")
	if !strings.HasPrefix(id, "op_") || len(id) != 3+26 || id != strings.ToLower(id) {
		t.Error(id)
	}
	made, err := IDTime(id)
	if err != nil || time.Since(made) > time.Minute || time.Until(made) > time.Minute {
		t.Errorf("%v, %v", made, err)
	}
}

func TestIDsOfLaterMillisecondsSortLater(t *testing.T) {
	idState.Lock()
	idState.ms = 0
	idState.Unlock()
	a := newULID(1000)
	b := newULID(1001)
	c := newULID(900) // the clock steps back
	if !(a < b && b < c) {
		t.Errorf("%s %s %s", a, b, c)
	}
	if newULID(math.MaxUint64 >> 16)[0] > '7' {
		t.Error("the largest time does not fit")
	}
	idState.Lock()
	idState.ms = 0 // do not keep the far future for other tests
	idState.Unlock()
}

func TestCheckID(t *testing.T) {
	good := NewID(PrefixServiceAccount)
	if !ValidID(PrefixServiceAccount, good) || !ValidID("sa_", good) {
		t.Error("a new id is not valid")
	}
	for _, bad := range []string{"", "sa", "sa_", "clu" + good[2:], good + "0", good[:len(good)-1], strings.ToUpper(good), "sa_8" + good[4:], "sa_u" + good[4:], good[:10] + "l" + good[11:], good[:10] + "-" + good[11:], "sa__" + good[4:]} {
		if err := CheckID(PrefixServiceAccount, bad); !errors.Is(err, ErrBadID) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, p := range []string{"", "A", "a b", "a_b", strings.Repeat("a", 17)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("prefix %q accepted", p)
				}
			}()
			NewID(p)
		}()
	}
}

func TestTopicNames(t *testing.T) {
	for name, ok := range map[string]bool{"a": true, "A.b_c-9": true, strings.Repeat("x", 249): true, "..a": true, "__x": true,
		"": false, ".": false, "..": false, strings.Repeat("x", 250): false, "a b": false, "a/b": false, "ä": false, "a\x00": false} {
		if err := CheckTopicName(name); (err == nil) != ok || (err != nil && !errors.Is(err, ErrBadName)) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if CheckTenantTopicName("__consumer_offsets") == nil || CheckTenantTopicName("_mine") != nil {
		t.Error("names of the service")
	}
	if key := TopicCollisionKey("a.b"); key != TopicCollisionKey("a_b") || key == TopicCollisionKey("a-b") {
		t.Error("collision")
	}
}

func TestLabels(t *testing.T) {
	for name, ok := range map[string]bool{"acme": true, "a1": true, "a-b-c": true, strings.Repeat("a", 63): true,
		"": false, "a": false, "1a": false, "-a": false, "a-": false, "a--b": false, "Acme": false, "a_b": false, "a.b": false, strings.Repeat("a", 64): false} {
		for _, f := range []func(string) error{CheckTenantName, CheckClusterName, CheckAccountName} {
			if err := f(name); (err == nil) != ok {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
}

func TestPrincipals(t *testing.T) {
	if k, n, err := SplitPrincipal(Principal("a:b")); k != "User" || n != "a:b" || err != nil {
		t.Error(k, n, err)
	}
	for _, bad := range []string{"", "a", ":a", "User:"} {
		if _, _, err := SplitPrincipal(bad); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
	if PrincipalName("User:x") != "x" || PrincipalName("x") != "x" {
		t.Error("name")
	}
}

func TestLimits(t *testing.T) {
	if err := DefaultLimits().Validate(); err != nil {
		t.Error(err)
	}
	bad := Limits{Clusters: -1, BrokersPerCluster: MaxBrokers + 1, RequestPercentage: math.NaN(), FetchBytesPerSecond: MaxByteRate + 1}
	err := bad.Validate()
	for _, f := range []string{"clusters", "brokers_per_cluster", "request_percentage", "fetch_bytes_per_second"} {
		if err == nil || !strings.Contains(err.Error(), f) {
			t.Errorf("%s is missing in %v", f, err)
		}
	}
	for _, c := range []struct {
		have, more, max int
		ok              bool
	}{{0, 3, 3, true}, {2, 2, 3, false}, {5, 0, 3, false}, {0, math.MaxInt, 3, false}, {0, -1, 3, false}} {
		if err := CheckCount("topics", c.have, c.more, c.max); (err == nil) != c.ok || (err != nil && !errors.Is(err, ErrLimit)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func FuzzCheckID(f *testing.F) {
	f.Add("ten", NewID("ten"))
	f.Fuzz(func(t *testing.T, prefix, id string) {
		if CheckID(prefix, id) == nil {
			if _, err := IDTime(id); err != nil && validPrefix(strings.TrimSuffix(prefix, "_")) {
				t.Fatal(err)
			}
		}
	})
}
