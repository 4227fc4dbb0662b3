package reconcile

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"penstock/controlplane/brokeradmin"
	"penstock/controlplane/provision"
	"penstock/internal/process"
)

// fakeKafka is a scripted engine and the brokers that it runs: as idempotent as
// the real ones have to be, and counting what is done to it.
type fakeKafka struct {
	mu        sync.Mutex
	ports     map[provision.Ref]int
	brokers   map[provision.Ref]bool // whether it runs
	passwords map[string]bool
	topics    map[string]brokeradmin.Topic
	quotas    map[string]brokeradmin.Quota
	acls      map[brokeradmin.ACL]bool
	revoked   map[string]time.Time
	chroots   []string

	nextPort, starts, topicCalls int

	refuse    error // of EnsureTopic
	engineErr error // of Ensure
}

func newFakeKafka() *fakeKafka {
	return &fakeKafka{ports: map[provision.Ref]int{}, brokers: map[provision.Ref]bool{}, passwords: map[string]bool{},
		topics: map[string]brokeradmin.Topic{}, quotas: map[string]brokeradmin.Quota{}, acls: map[brokeradmin.ACL]bool{}, revoked: map[string]time.Time{}, nextPort: 20000}
}

func (k *fakeKafka) Reserve(_ context.Context, s provision.BrokerSpec) (provision.Endpoints, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ports[s.Ref] == 0 {
		k.ports[s.Ref] = k.nextPort
		k.nextPort += 2
	}
	return provision.Endpoints{Host: "127.0.0.1", ClientPort: k.ports[s.Ref], InternalPort: k.ports[s.Ref] + 1}, nil
}

func (k *fakeKafka) Ensure(ctx context.Context, s provision.BrokerSpec) (provision.BrokerStatus, error) {
	if _, err := k.Reserve(ctx, s); err != nil {
		return provision.BrokerStatus{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.engineErr != nil {
		return provision.BrokerStatus{}, k.engineErr
	}
	if !k.brokers[s.Ref] {
		k.starts++
	}
	k.brokers[s.Ref] = true
	k.passwords[s.Security.Secrets.BrokerPassword] = true
	return k.status(s.Ref), nil
}

func (k *fakeKafka) status(r provision.Ref) provision.BrokerStatus {
	if !k.brokers[r] {
		return provision.BrokerStatus{State: provision.Halted}
	}
	return provision.BrokerStatus{State: provision.Running, Broker: process.ID{PID: 100 + int(r.BrokerID), Start: 7},
		ClientAddr: fmt.Sprintf("127.0.0.1:%d", k.ports[r]), InternalAddr: fmt.Sprintf("127.0.0.1:%d", k.ports[r]+1)}
}

func (k *fakeKafka) Status(_ context.Context, r provision.Ref) (provision.BrokerStatus, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.status(r), nil
}

func (k *fakeKafka) Stop(_ context.Context, r provision.Ref) error { k.lose(r); return nil }

func (k *fakeKafka) Remove(_ context.Context, r provision.Ref) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.brokers, r)
	delete(k.ports, r)
	return nil
}

// lose is the death of a supervisor, after which the port is taken.
func (k *fakeKafka) lose(r provision.Ref) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.brokers[r] = false
	delete(k.ports, r)
}

func (k *fakeKafka) bootstrap(id string) string {
	var addrs []string
	for i := range int32(3) {
		addrs = append(addrs, k.status(provision.Ref{ClusterID: id, BrokerID: i}).ClientAddr)
	}
	return strings.Join(addrs, ",")
}

func (k *fakeKafka) removeChroot(_ context.Context, _, chroot string, _ provision.Secrets) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.chroots) == 0 || k.chroots[len(k.chroots)-1] != chroot {
		k.chroots = append(k.chroots, chroot)
	}
	return nil
}

func (k *fakeKafka) Health(context.Context) (brokeradmin.Health, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var h brokeradmin.Health
	for r, runs := range k.brokers {
		if runs {
			h.Brokers = append(h.Brokers, r.BrokerID)
		}
	}
	return h, nil
}

func (k *fakeKafka) EnsureTopic(_ context.Context, t brokeradmin.Topic) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.topicCalls++
	if k.refuse != nil {
		return "", k.refuse
	}
	k.topics[t.Name] = t
	return "id-of-" + t.Name, nil
}

func (k *fakeKafka) DeleteTopic(_ context.Context, name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.topics, name)
	return nil
}

func (k *fakeKafka) SetQuota(_ context.Context, user string, q brokeradmin.Quota, _ int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.quotas[user] = q
	return nil
}

func (k *fakeKafka) EnsureACL(_ context.Context, r brokeradmin.ACL) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.acls[r] = true
	return nil
}

func (k *fakeKafka) DeleteACL(_ context.Context, r brokeradmin.ACL) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.acls, r)
	return nil
}

func (k *fakeKafka) EnsureRevoked(_ context.Context, r brokeradmin.Revocation) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.revoked[r.Name] = r.At
	return nil
}

func (k *fakeKafka) DropRevoked(_ context.Context, r brokeradmin.Revocation) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.revoked, r.Name)
	return nil
}

func (k *fakeKafka) Close() {}
