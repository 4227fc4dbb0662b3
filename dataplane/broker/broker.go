// Package broker builds one broker of its parts and wires them: start.go reads
// as the order of the start, and the stop is its reverse.
package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"penstock/dataplane/admission"
	"penstock/dataplane/auth"
	"penstock/dataplane/commitlog"
	"penstock/dataplane/config"
	"penstock/dataplane/controller"
	"penstock/dataplane/coordination"
	"penstock/dataplane/coordination/zksession"
	"penstock/dataplane/group"
	"penstock/dataplane/handler"
	"penstock/dataplane/listener"
	"penstock/dataplane/metadata"
	"penstock/dataplane/meter"
	"penstock/dataplane/partition"
	"penstock/dataplane/protocol"
	"penstock/dataplane/purgatory"
	"penstock/dataplane/replication"
	"penstock/dataplane/txn"
	"penstock/dataplane/txnverify"
)

// Broker is one running broker.
type Broker struct {
	cfg      *config.Broker // as it was at the start; what can change is read from now
	settings settings
	ofGroups groupSettings
	log      *slog.Logger
	logLevel *slog.LevelVar

	stopVerifier func()

	ctx    context.Context // ends when the stop begins to take things down
	cancel context.CancelFunc
	stops  []stopStep
	failed chan error // holds one; see Failed

	dirs        []*commitlog.Dir
	offlineDirs []partition.OfflineDir // could not be opened
	notifying   sync.WaitGroup         // of failed folders
	homeless    atomic.Bool            // the last folder has failed
	farewell    farewell               // to clients of leaders that move
	session     *zksession.Box         // where a supervisor finds the session; nil without one
	zk          *coordination.Client
	epoch       atomic.Int64  // czxid of our registration, -1 before it
	registered  chan struct{} // closed with the first registration
	metadata    *metadata.Cache
	topics      *topicConfigs
	wheel       *purgatory.Wheel
	dialer      *dialer
	controllers *controllerLink
	fetchers    *replication.Fetchers
	isr         *replication.ISRSender
	partitions  *partition.Manager
	groups      *group.Coordinator
	producerIDs *producerIDs
	txns        *txn.Coordinator
	controller  *controller.Controller
	meter       *meter.Meter
	usage       *usageLink
	quotas      *admission.Quotas
	acls        *auth.Authorizer
	logins      map[string]*auth.Server // by listener
	revoked     auth.Revocations
	verifier    *txnverify.Verifier
	features    features
	handler     *handler.Handler
	listeners   []*listener.Listener
	connections *admission.Connections
	buffers     *protocol.Pool // of frames, in and out
}

type stopStep struct {
	what string
	stop func(context.Context) error
}

// stopTimeout bounds the whole stop, of which moving the leaders away is the
// long part.
const stopTimeout = 30 * time.Second

// onStop adds a step to the stop; steps run in reverse order.
func (b *Broker) onStop(what string, stop func(context.Context) error) {
	b.stops = append(b.stops, stopStep{what, stop})
}

// Stop takes the broker down in the reverse order of its start: leaders are
// moved away first (controlled shutdown), the logs are closed clean. It returns
// when every goroutine has ended, with what went wrong on the way.
func (b *Broker) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	var errs []error
	for len(b.stops) > 0 {
		s := b.stops[len(b.stops)-1]
		b.stops = b.stops[:len(b.stops)-1]
		began := time.Now()
		if err := s.stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stopping %s: %w", s.what, err))
		}
		b.log.Debug("stopped", "part", s.what, "took", time.Since(began))
	}
	return errors.Join(errs...)
}

// Failed gives an error once the broker cannot do its work any more and should
// be stopped: the last of its log folders has failed. Of one of several the
// controller is told, and the replicas in the others go on.
func (b *Broker) Failed() <-chan error { return b.failed }

// Addr is the bound address of a listener by its name, "" if there is none.
func (b *Broker) Addr(name string) string {
	for i, e := range b.cfg.Listeners {
		if e.Name == name {
			return b.listeners[i].Addr().String()
		}
	}
	return ""
}
