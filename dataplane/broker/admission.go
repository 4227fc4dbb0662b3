package broker

import (
	"context"
	"maps"
	"math"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"penstock/dataplane/admission"
	"penstock/dataplane/auth"
	"penstock/dataplane/config"
	"penstock/dataplane/handler"
	"penstock/dataplane/listener"
	"penstock/dataplane/protocol"
)

// startAdmission brings up who may log in, what they may do and how much.
func (b *Broker) startAdmission(ctx context.Context) error {
	b.quotas = admission.NewQuotas(admission.QuotaConfig{Samples: b.cfg.QuotaSamples, Window: b.cfg.QuotaWindow})
	if err := b.loadQuotas(ctx); err != nil {
		return err
	}
	if err := b.startACLs(ctx); err != nil {
		return err
	}
	return b.startLogins()
}

func (b *Broker) startACLs(ctx context.Context) error {
	if !b.cfg.ACLs {
		return nil
	}
	a, err := auth.OpenAuthorizer(ctx, auth.AuthorizerConfig{
		Store: auth.NewZooKeeperStore(b.zk, b.log), SuperUsers: b.cfg.SuperUsers,
		AllowEveryoneIfNoACL: b.cfg.AllowEveryoneIfNoACL, Logger: b.log,
	})
	if err != nil {
		return err
	}
	b.acls = a
	b.onStop("ACLs", func(context.Context) error { a.Close(); return nil })
	stop, err := auth.Watch(ctx, b.zk, a)
	if err != nil {
		return err
	}
	b.onStop("ACL changes", func(context.Context) error { stop(); return nil })
	// A change between the first reading and the watch has no notification that
	// is sure to be seen.
	return a.Reload(ctx)
}

func (b *Broker) loadQuotas(ctx context.Context) error {
	s := store{b.zk}
	return s.quotaEntities(ctx, func(entity string, values map[string]string) {
		if err := b.quotaChanged(entity, values); err != nil {
			b.log.Error("a quota cannot be applied", "entity", entity, "error", err)
		}
	})
}

// quotaChanged applies what is set for one entity, named by its path below /config.
func (b *Broker) quotaChanged(entity string, values map[string]string) error {
	if strings.HasPrefix(entity, "ips/") {
		return b.connections.UpdateIP(entity, values)
	}
	return b.quotas.Update("/config/"+entity, values)
}

// chargeRequest is the request quota: the handler's time with a check. What
// brokers do for each other is exempt (KIP-124), as is a Produce that nobody awaits; who
// may not act as a broker pays for asking.
func (b *Broker) chargeRequest(r *listener.Request, took time.Duration) time.Duration {
	if b.exempt(r) {
		return 0
	}
	return b.quotas.Request(handler.User(r.Conn), r.ClientID, took)
}

func (b *Broker) chargeNetwork(r *listener.Request, took time.Duration) {
	if !b.exempt(r) {
		b.quotas.RequestNetwork(handler.User(r.Conn), r.ClientID, took)
	}
}

func (b *Broker) exempt(r *listener.Request) bool {
	api := protocol.Lookup(r.Key)
	return r.Exempt || api == nil || r.Conn.Listener() == b.cfg.InterBrokerListener && len(b.cfg.Listeners) > 1 ||
		api.Has(protocol.InterBroker) && b.handler.IsBroker(r)
}

func (b *Broker) startLogins() error {
	b.setRevocations(b.now())
	for _, e := range b.cfg.Listeners {
		if !e.SASL() {
			continue
		}
		s, err := auth.ForListener(b.cfg, e.Name, &b.revoked, b.log)
		if err != nil {
			return err
		}
		b.logins[e.Name] = s
		b.onStop("logins of "+e.Name, func(context.Context) error { s.Close(); return nil })
	}
	return nil
}

// setRevocations has no login stand that rests on a token which was issued too early,
// and cuts the connections that do (penstock.auth.not.before).
func (b *Broker) setRevocations(cfg *config.Broker) {
	longest := cfg.OAuthMaxTokenLifetime
	for _, e := range cfg.Listeners {
		longest = max(longest, cfg.OAuthMaxTokenLifetime+cfg.SASL(e.Name).OAuth.ClockSkew)
	}
	b.revoked.Set(cfg.NotBefore, longest, time.Now())
	cut := 0
	for _, l := range b.listeners {
		l.Conns(func(c *listener.Conn) {
			if s, ok := c.Auth().(*auth.Session); ok && s.Revoked() {
				c.Close("its token has been revoked")
				cut++
			}
		})
	}
	if cut > 0 {
		b.log.Info("connections were cut, their tokens are revoked", "connections", cut)
	}
}

// connectionLimits are the configured ones, but never more than the process has
// files for: connections that take the last one keep a log from rolling its
// segment, which fails a whole log folder. Each may also keep a segment open that
// its reply is sent from, beyond what commitlog.LimitOpenFiles allows. So three tenths
// of the files are for connections, as many for those segments, a fifth for the logs, and
// an eighth for connections of the inter-broker listener, which max.connections does not bound.
func connectionLimits(cfg *config.Broker, files int) admission.ConnectionLimits {
	l := admission.ConnectionLimits{
		Max: atMost(cfg.MaxConnections, files*3/10), MaxPerIP: cfg.MaxConnectionsPerIP,
		PerListener: maps.Clone(cfg.ListenerMaxConnections), Overrides: cfg.MaxConnectionsPerIPFor,
	}
	l.Samples, l.Window, l.Rate = cfg.QuotaSamples, cfg.QuotaWindow, creationRate(cfg.MaxConnectionRate)
	l.RatePerListener = map[string]int{}
	for name, rate := range cfg.ListenerMaxConnectionRate {
		l.RatePerListener[name] = creationRate(rate)
	}
	if len(cfg.Listeners) > 1 {
		l.Protected = cfg.InterBrokerListener
		if l.PerListener == nil {
			l.PerListener = map[string]int{}
		}
		l.PerListener[l.Protected] = atMost(l.PerListener[l.Protected], files/8)
	}
	return l
}

// creationRate gives a setting in which the largest number is no limit, and 0 one of the strictest.
func creationRate(setting int) int {
	switch {
	case setting >= math.MaxInt32:
		return 0
	case setting == 0:
		return -1
	}
	return setting
}

// atMost bounds a limit of which 0 is none.
func atMost(limit, bound int) int {
	if limit <= 0 {
		return bound
	}
	return min(limit, bound)
}

// openFiles is how many files the process may have open.
func openFiles() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil || r.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(r.Cur)
}
