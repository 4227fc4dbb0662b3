package devtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/controlplane/api/wire"
	"penstock/controlplane/client"
	"penstock/controlplane/dev"
)

// testKills kills brokers, the controller and the control plane with SIGKILL at
// random moments, while records flow and clusters come and go. Every round ends
// with all of it whole and all that was asked for applied.
func testKills(t *testing.T) {
	f := service(t)
	in := f.info(t)
	c := in.Cluster
	api := tenant(t, in)
	r := random(t)
	topic := "kills"
	newTopic(t, api, c.ID, topic, 6)
	acc := newAccount(t, in, api, c.ID, "kills")
	token := acc.token(t)
	cl := kafka(t, c.Bootstrap, token, kgo.RecordDeliveryTimeout(2*time.Minute))
	watcher := kafka(t, c.Bootstrap, token)
	l := startLedger(t, cl, topic)
	verify := func() {
		t.Helper()
		l.verify(t, kafka(t, c.Bootstrap, token, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())))
	}
	l.goesOn(t, 10, 20*time.Second)

	kinds := []string{"a broker", "the controller", "the control plane"}
	counts := map[string]int{}
	var old string // the cluster of the round before
	issued := time.Now()
	for round := range *rounds {
		if time.Since(issued) > 10*time.Minute { // of the 15 that a token lives
			token, issued = acc.token(t), time.Now()
			verify()
			topic = fmt.Sprintf("kills-%d", round)
			newTopic(t, api, c.ID, topic, 6)
			watcher = kafka(t, c.Bootstrap, token)
			l = startLedger(t, kafka(t, c.Bootstrap, token, kgo.RecordDeliveryTimeout(2*time.Minute)), topic)
		}
		kind := kinds[round%len(kinds)]
		if round >= len(kinds) {
			kind = kinds[r.IntN(len(kinds))]
		}
		began := time.Now()
		work := make(chan string, 1)
		fail := make(chan error, 1)
		brokers := 1 + r.IntN(3)
		go func(round int, old string) {
			id, err := comeAndGo(t.Context(), api, c.ID, round, brokers, old)
			if err != nil {
				fail <- err
				return
			}
			work <- id
		}(round, old)
		// Two kills a round: the second hits what the first has left behind.
		for range 1 + r.IntN(2) {
			time.Sleep(time.Duration(r.IntN(1200)) * time.Millisecond)
			kill9(t, victim(t, f, watcher, kind, r))
			counts[kind]++
		}
		select {
		case old = <-work:
		case err := <-fail:
			t.Fatalf("round %d, %s killed: %v", round, kind, err)
		case <-time.After(2 * time.Minute):
			t.Fatalf("round %d, %s killed: what was asked for is not there after two minutes", round, kind)
		}
		whole(t, watcher, topic, time.Minute)
		l.goesOn(t, 20, time.Minute)
		applied(t, api)
		t.Logf("round %d: %s killed, all whole and applied after %v", round, kind, time.Since(began).Round(time.Millisecond))
	}
	if old != "" {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		gone(t, f, api, ctx, old)
	}
	verify()
	f.healthy(t, 30*time.Second)
	f.processesAreWhole(t)
	t.Logf("killed: %v", counts)
}

// victim is the pid to kill; 0 if it does not run just now.
func victim(t *testing.T, f *folder, cl *kgo.Client, kind string, r *rand.Rand) int {
	t.Helper()
	in := f.info(t)
	switch kind {
	case "the control plane":
		return in.PIDs.Control
	case "the controller":
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		resp, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, cl)
		if err == nil && resp.ControllerID >= 0 && int(resp.ControllerID) < len(in.Cluster.Brokers) {
			return in.Cluster.Brokers[resp.ControllerID].PID
		}
	}
	return in.Cluster.Brokers[r.IntN(len(in.Cluster.Brokers))].PID
}

// comeAndGo makes a cluster with one of everything, more things in the main
// cluster, and removes the cluster of the round before.
func comeAndGo(ctx context.Context, api *client.Client, main string, round, brokers int, old string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 110*time.Second)
	defer cancel()
	if old != "" {
		if _, err := api.DeleteCluster(ctx, old); err != nil {
			return "", fmt.Errorf("delete cluster: %w", err)
		}
	}
	op, err := api.CreateCluster(ctx, wire.CreateCluster{Name: fmt.Sprintf("round-%d", round), Brokers: brokers})
	if err != nil {
		return "", fmt.Errorf("create cluster: %w", err)
	}
	id := op.Cluster.ID
	topic := func(cluster, name string, rf int) error {
		_, err := api.CreateTopic(ctx, cluster, wire.CreateTopic{Name: name, Partitions: 3, ReplicationFactor: rf})
		if err == nil {
			_, err = api.WaitTopic(ctx, cluster, name)
		}
		if err != nil {
			return fmt.Errorf("topic %s of %s: %w", name, cluster, err)
		}
		return nil
	}
	sa, err := api.CreateServiceAccount(ctx, id, wire.CreateServiceAccount{Name: "mover"})
	if err != nil {
		return "", fmt.Errorf("create account: %w", err)
	}
	acl, err := api.CreateACL(ctx, id, wire.CreateACL{ServiceAccountID: sa.Secret.ClientID, Host: "*", ResourceType: "topic",
		ResourceName: "in", PatternType: "literal", Operation: "read", Permission: "allow"})
	if err != nil {
		return "", fmt.Errorf("create rule: %w", err)
	}
	rate := int64(1 << 20)
	if _, err := api.PutQuota(ctx, id, sa.Secret.ClientID, wire.PutQuota{BytesInPerSecond: &rate}); err != nil {
		return "", fmt.Errorf("put quota: %w", err)
	}
	if err := topic(id, "in", brokers); err != nil {
		return "", err
	}
	if err := topic(main, fmt.Sprintf("kills-more-%d", round), 3); err != nil {
		return "", err
	}
	if _, err := api.WaitACL(ctx, id, acl.ID); err != nil {
		return "", err
	}
	if _, err := api.WaitQuota(ctx, id, sa.Secret.ClientID); err != nil {
		return "", err
	}
	if _, err := api.WaitCluster(ctx, id); err != nil {
		return "", err
	}
	if _, err := api.WaitOperation(ctx, op.Operation.ID); err != nil {
		return "", err
	}
	// What works for a tenant is that its client may read, not that a row says so.
	tok, err := client.FetchToken(ctx, nil, op.Cluster.TokenURL, sa.Secret.ClientID, sa.Secret.ClientSecret, "")
	if err != nil {
		return "", err
	}
	return id, reads(ctx, api, id, tok.AccessToken)
}

// applied holds all that is wished, in all clusters, against what is.
func applied(t *testing.T, api *client.Client) {
	t.Helper()
	await(t, time.Minute, "all that is wished is applied", func(ctx context.Context) error {
		clusters, err := api.Clusters(ctx)
		if err != nil {
			return err
		}
		for _, c := range clusters {
			if c.Status.State == "deleted" {
				continue
			}
			if c.Status.State != "ready" || c.Status.Problem != nil {
				return fmt.Errorf("cluster %s is %s: %+v", c.Name, c.Status.State, c.Status.Problem)
			}
			for _, b := range c.Status.Brokers {
				if b.State != "running" {
					return fmt.Errorf("broker %d of %s is %s", b.ID, c.Name, b.State)
				}
			}
			topics, err := api.Topics(ctx, c.ID)
			if err != nil {
				return err
			}
			for _, o := range topics {
				if !o.Status.Applied {
					return fmt.Errorf("topic %s of %s: %+v", o.Name, c.Name, o.Status)
				}
			}
			rules, err := api.ACLs(ctx, c.ID, "")
			if err != nil {
				return err
			}
			for _, o := range rules {
				if !o.Status.Applied {
					return fmt.Errorf("rule %s of %s: %+v", o.ID, c.Name, o.Status)
				}
			}
		}
		return nil
	})
}

// gone deletes a cluster and looks whether anything of it is left.
func gone(t *testing.T, f *folder, api *client.Client, ctx context.Context, id string) {
	t.Helper()
	op, err := api.DeleteCluster(ctx, id)
	if err == nil {
		_, err = api.WaitOperation(ctx, op.Operation.ID)
	}
	if err != nil {
		t.Fatalf("delete cluster %s: %v", id, err)
	}
	if _, err := os.Stat(filepath.Join(f.dir, "brokers", id)); !os.IsNotExist(err) {
		t.Errorf("folder of the deleted cluster: %v", err)
	}
	if left := running(id); len(left) > 0 {
		t.Errorf("processes of the deleted cluster: %v", left)
	}
}

// processesAreWhole counts: each broker has one process and one supervisor, and
// there is nothing of clusters that are gone.
func (f *folder) processesAreWhole(t *testing.T) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(f.dir, "brokers", "*", "*", "launch.json"))
	for _, file := range files {
		config := filepath.Join(filepath.Dir(file), "server.properties")
		brokers, supervisors := running("penstock-broker\x00--config\x00"+config), running("penstock-broker\x00supervise\x00--config\x00"+config)
		if len(brokers) != 1 || len(supervisors) != 1 {
			t.Errorf("%s: brokers %v, supervisors %v", config, brokers, supervisors)
		}
	}
	for _, kind := range []string{"--config", "supervise"} {
		if all := running("penstock-broker\x00"+kind+"\x00", f.dir+"/"); len(all) != len(files) {
			t.Errorf("%d processes %s of %d brokers", len(all), kind, len(files))
		}
	}
	if in, err := dev.ReadInfo(f.dir); err != nil || len(running("penstock-control", f.dir+"/")) != 1 {
		t.Errorf("processes of the control plane: %v (%+v, %v)", running("penstock-control", f.dir+"/"), in, err)
	}
}
