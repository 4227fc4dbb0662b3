package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// checkPrefixed looks at every static key that no table holds: keys with a
// listener's prefix are checked as the key behind it, others are warned of.
func (b *Broker) checkPrefixed(r *reader) {
	for name, v := range r.l.static {
		if brokerIndex[name] != nil {
			continue
		}
		if kafkaOnly[name] {
			b.warnings = append(b.warnings, fmt.Sprintf("setting %s is Kafka's, but has no effect on this broker: ignored", name))
			continue
		}
		listener, k, ok := splitPrefixed(name)
		switch {
		case !ok:
			b.warnings = append(b.warnings, fmt.Sprintf("unknown setting %s: ignored", clip(name)))
		case !hasListener(b.Listeners, listener):
			b.warnings = append(b.warnings, fmt.Sprintf("setting %s names a listener that is not in listeners: ignored", clip(name)))
		default:
			if _, err := k.parse(v); err != nil {
				ke := *err.(*KeyError)
				ke.Key = name
				r.errs = append(r.errs, &ke)
			}
		}
	}
}

// prefixable are the keys that may stand behind listener.name.NAME.; those
// with true also behind a mechanism.
var prefixable = map[string]bool{
	"sasl.enabled.mechanisms": false, "connections.max.reauth.ms": true, "max.connections": false, "max.connection.creation.rate": false,
	"sasl.jaas.config": true, "sasl.server.max.receive.size": true,
	"sasl.oauthbearer.clock.skew.seconds": true, "sasl.oauthbearer.expected.audience": true, "sasl.oauthbearer.expected.issuer": true,
	"sasl.oauthbearer.jwks.endpoint.url": true, "sasl.oauthbearer.jwks.endpoint.refresh.ms": true,
	"sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": true, "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": true,
	"sasl.oauthbearer.sub.claim.name": true,
}

const listenerPrefix = "listener.name."

// splitPrefixed takes listener.name.NAME.[mechanism.]key apart.
func splitPrefixed(name string) (listener string, k *key, ok bool) {
	rest, ok := strings.CutPrefix(name, listenerPrefix)
	if !ok {
		return "", nil, false
	}
	listener, rest, ok = strings.Cut(rest, ".")
	if !ok {
		return "", nil, false
	}
	if _, known := prefixable[rest]; !known {
		mech, behind, _ := strings.Cut(rest, ".")
		if !slices.Contains(mechanismNames, strings.ToUpper(mech)) || !prefixable[behind] {
			return "", nil, false
		}
		rest = behind
	}
	return strings.ToUpper(listener), brokerIndex[rest], true
}

var mechanismNames = []string{"PLAIN", "OAUTHBEARER"}

// listenerOwn is the value of a key with the listener's prefix, if it is set.
func (b *Broker) listenerOwn(listener, name string) (string, bool) {
	name = listenerPrefix + strings.ToLower(listener) + "." + name
	for _, m := range b.layers.strongestFirst() {
		if v, ok := m[name]; ok {
			return v, true
		}
	}
	return "", false
}

// ListenerValue is the text of a setting as it holds on a listener for a
// mechanism ("" for none): with both prefixes, with the listener's, without.
// ok is false when it has no value at all.
func (b *Broker) ListenerValue(listener, mechanism, name string) (value string, ok bool) {
	if mechanism != "" {
		if v, ok := b.listenerOwn(listener, strings.ToLower(mechanism)+"."+name); ok {
			return strings.TrimSpace(v), true
		}
	}
	if v, ok := b.listenerOwn(listener, name); ok {
		return strings.TrimSpace(v), true
	}
	v, ok := b.layers.raw(name)
	return strings.TrimSpace(v), ok
}

// SASL is the login settings of one listener.
type SASL struct {
	Mechanisms []string      // upper case, in the order of the setting
	MaxReauth  time.Duration // 0: no limit but the token's
	JAAS       string        // of PLAIN; secret
	OAuth      OAuth
}

// OAuth is the settings of OAUTHBEARER on one listener.
type OAuth struct {
	JWKSURL         string
	Audiences       []string
	Issuer          string
	SubClaim        string
	ClockSkew       time.Duration
	Refresh         time.Duration
	RetryBackoff    time.Duration
	RetryBackoffMax time.Duration
	Algorithms      []string
	MaxLifetime     time.Duration
	CacheFile       string
}

// SASL reads the login settings of a listener.
func (b *Broker) SASL(listener string) SASL {
	get := func(mech, name string) string { v, _ := b.ListenerValue(listener, mech, name); return v }
	num := func(name string) int64 { return mustInt(get("OAUTHBEARER", name)) }
	s := SASL{MaxReauth: max(0, millis(mustInt(get("", "connections.max.reauth.ms")))), JAAS: get("PLAIN", "sasl.jaas.config")}
	for _, m := range splitList(get("", "sasl.enabled.mechanisms")) {
		s.Mechanisms = append(s.Mechanisms, strings.ToUpper(m))
	}
	s.OAuth = OAuth{
		JWKSURL: get("OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url"), Audiences: splitList(get("OAUTHBEARER", "sasl.oauthbearer.expected.audience")),
		Issuer: get("OAUTHBEARER", "sasl.oauthbearer.expected.issuer"), SubClaim: get("OAUTHBEARER", "sasl.oauthbearer.sub.claim.name"),
		ClockSkew: scale(num("sasl.oauthbearer.clock.skew.seconds"), time.Second), Refresh: millis(num("sasl.oauthbearer.jwks.endpoint.refresh.ms")),
		RetryBackoff: millis(num("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms")), RetryBackoffMax: millis(num("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms")),
		Algorithms: b.OAuthAlgorithms, MaxLifetime: b.OAuthMaxTokenLifetime, CacheFile: b.OAuthJWKSCacheFile,
	}
	return s
}
