package api_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"penstock/controlplane/api/wire"
	"penstock/controlplane/cluster"
)

func TestCreationsAtOnceDoNotPassALimit(t *testing.T) {
	e := newEnv(t)
	a := e.newTenant("alpha")
	status := make([]int, 8)
	var wg sync.WaitGroup
	for i := range status {
		wg.Go(func() {
			status[i] = e.do(a.token, "POST", "/v1/clusters", wire.CreateCluster{Name: fmt.Sprintf("c-%d", i), Brokers: 1}).status
		})
	}
	wg.Wait()
	made := map[int]int{}
	for _, s := range status {
		made[s]++
	}
	if made[202] != 3 || made[403] != 5 { // the plan allows three
		t.Errorf("answers %v", made)
	}
}

// What is being removed still holds ports and disks; what is gone holds nothing.
func TestCapacityCountsWhatTheDataPlaneHolds(t *testing.T) {
	e := newEnv(t)
	ctx := context.Background()
	a := e.newTenant("alpha")
	var ids []string
	for i := range 3 {
		ids = append(ids, must[wire.ClusterOperation](e, a.token, "POST", "/v1/clusters", wire.CreateCluster{Name: fmt.Sprintf("c-%d", i), Brokers: 1}, 202).Cluster.ID)
	}
	next := wire.CreateCluster{Name: "next", Brokers: 1}
	must[wire.ClusterOperation](e, a.token, "DELETE", "/v1/clusters/"+ids[0], nil, 202)
	if p := e.do(a.token, "POST", "/v1/clusters", next).problem(t); p.Code != "limit-exceeded" {
		t.Errorf("while one goes: %+v", p)
	}
	claims, err := e.worker.Claim(ctx, 10)
	if err != nil || len(claims) != 3 {
		t.Fatal(len(claims), err)
	}
	for _, c := range claims {
		if c.ID == ids[0] {
			if err := e.worker.Move(ctx, c, cluster.Deleted, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.worker.Release(ctx, c, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	must[wire.ClusterOperation](e, a.token, "POST", "/v1/clusters", next, 202)
}
