package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Endpoint is one entry of listeners or advertised.listeners.
type Endpoint struct {
	Name     string // the listener's name, upper case
	Host     string // empty: all interfaces
	Port     int32  // 0: any free port (listeners only)
	Protocol string // PLAINTEXT or SASL_PLAINTEXT
}

// Addr is the address in the form of net.Listen and net.Dial.
func (e Endpoint) Addr() string { return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))) }

// SASL says whether clients must log in on this listener.
func (e Endpoint) SASL() bool { return strings.HasPrefix(e.Protocol, "SASL_") }

// parseEndpoints reads NAME://host:port, .... Names must be unique, and so
// must ports other than 0, save that one may be bound on IPv4 and IPv6 apart.
func parseEndpoints(v string, protocols map[string]string) ([]Endpoint, error) {
	var out []Endpoint
	for _, s := range splitList(v) {
		name, rest, ok := strings.Cut(s, "://")
		name = strings.ToUpper(strings.TrimSpace(name))
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not NAME://host:port", clip(s))
		}
		proto, ok := protocols[name]
		if !ok {
			return nil, fmt.Errorf("listener %s has no security protocol in listener.security.protocol.map", name)
		}
		host, ports, err := net.SplitHostPort(rest)
		if err != nil {
			return nil, fmt.Errorf("%q is not NAME://host:port", clip(s))
		}
		port, err := strconv.ParseUint(ports, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("bad port in %q", clip(s))
		}
		for _, o := range out {
			if o.Name == name {
				return nil, fmt.Errorf("listener %s is named twice", name)
			}
			if o.Port == int32(port) && port != 0 && (o.Host == host || o.Host == "" || host == "") {
				return nil, fmt.Errorf("listeners %s and %s share port %d", o.Name, name, port)
			}
		}
		out = append(out, Endpoint{Name: name, Host: host, Port: int32(port), Protocol: proto})
	}
	return out, nil
}

// parseProtocolMap reads NAME:PROTOCOL, ....
func parseProtocolMap(v string) (map[string]string, error) {
	m := make(map[string]string)
	for _, s := range splitList(v) {
		name, proto, ok := strings.Cut(s, ":")
		name, proto = strings.ToUpper(strings.TrimSpace(name)), strings.ToUpper(strings.TrimSpace(proto))
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not NAME:PROTOCOL", clip(s))
		}
		switch proto {
		case "PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL":
		default:
			return nil, fmt.Errorf("unknown security protocol %q", clip(proto))
		}
		if _, ok := m[name]; ok {
			return nil, fmt.Errorf("listener %s is named twice", name)
		}
		m[name] = proto
	}
	return m, nil
}

// parseIPOverrides reads address:count, ...; an IPv6 address stands in brackets or not.
func parseIPOverrides(v string) (map[netip.Addr]int, error) {
	m := make(map[netip.Addr]int)
	for _, s := range splitList(v) {
		i := strings.LastIndexByte(s, ':')
		if i < 0 {
			return nil, fmt.Errorf("%q is not address:count", clip(s))
		}
		a, err := netip.ParseAddr(strings.Trim(strings.TrimSpace(s[:i]), "[]"))
		if err != nil {
			return nil, fmt.Errorf("%q is not an IP address", clip(s[:i]))
		}
		n, err := strconv.ParseInt(strings.TrimSpace(s[i+1:]), 10, 32)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("bad count in %q", clip(s))
		}
		m[a.Unmap()] = int(n)
	}
	return m, nil
}

func ipOverrides(v string) error { _, err := parseIPOverrides(v); return err }

func jwksURL(v string) error {
	u, err := url.Parse(v)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "file") || (u.Scheme != "file" && u.Host == "") {
		return fmt.Errorf("must be an http, https or file URL")
	}
	return nil
}

// collectorURL takes an empty one for none.
func collectorURL(v string) error {
	u, err := url.Parse(v)
	if v != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		return fmt.Errorf("must be an http or https URL")
	}
	return nil
}

func digestUser(v string) error {
	user, password, ok := strings.Cut(v, ":")
	if !ok || user == "" || password == "" {
		return fmt.Errorf("must be user:password")
	}
	return nil
}

func (b *Broker) fillListeners(r *reader) {
	protocols, err := parseProtocolMap(r.text("listener.security.protocol.map"))
	if err != nil {
		r.fail("listener.security.protocol.map", "%v", err)
		return
	}
	if b.Listeners, err = parseEndpoints(r.text("listeners"), protocols); err != nil {
		r.fail("listeners", "%v", err)
		return
	}
	if len(b.Listeners) == 0 {
		r.fail("listeners", "no listener")
		return
	}
	for _, e := range b.Listeners {
		if strings.HasSuffix(e.Protocol, "SSL") {
			r.fail("listeners", "listener %s: security protocol %s is not built in", e.Name, e.Protocol)
		}
	}
	b.Advertised = b.Listeners
	advertised := "listeners"
	if v := r.text("advertised.listeners"); v != "" {
		advertised = "advertised.listeners"
		if b.Advertised, err = parseEndpoints(v, protocols); err != nil {
			r.fail(advertised, "%v", err)
			return
		}
	}
	for i, e := range b.Advertised {
		if !hasListener(b.Listeners, e.Name) {
			r.fail(advertised, "listener %s is not in listeners", e.Name)
		}
		if e.Host == "0.0.0.0" || e.Host == "::" {
			r.fail(advertised, "%s cannot be advertised: clients cannot connect to it", e.Host)
		}
		if e.Host == "" {
			// As Kafka does: a listener on all interfaces is advertised by the host's name.
			host, err := os.Hostname()
			if err != nil {
				r.fail(advertised, "no host in listener %s, and the machine has no name: %v", e.Name, err)
			}
			b.Advertised = slices.Clone(b.Advertised)
			b.Advertised[i].Host = host
		}
	}
	b.InterBrokerListener = strings.ToUpper(r.text("inter.broker.listener.name"))
	if b.InterBrokerListener == "" {
		b.InterBrokerListener = r.text("security.inter.broker.protocol")
	}
	if !hasListener(b.Advertised, b.InterBrokerListener) {
		r.fail("inter.broker.listener.name", "the inter-broker listener %s is not among the advertised listeners", b.InterBrokerListener)
	}
	b.ListenerMaxConnections, b.ListenerMaxConnectionRate = make(map[string]int), make(map[string]int)
	for _, e := range b.Listeners {
		if v, ok := b.listenerOwn(e.Name, "max.connections"); ok {
			b.ListenerMaxConnections[e.Name] = int(mustInt(r.parse(brokerIndex["max.connections"], v)))
		}
		if v, ok := b.listenerOwn(e.Name, "max.connection.creation.rate"); ok {
			b.ListenerMaxConnectionRate[e.Name] = int(mustInt(r.parse(brokerIndex["max.connection.creation.rate"], v)))
		}
	}
}

func hasListener(eps []Endpoint, name string) bool {
	return slices.ContainsFunc(eps, func(e Endpoint) bool { return e.Name == name })
}

// Listener is the endpoint of that name in listeners.
func (b *Broker) Listener(name string) (Endpoint, bool) {
	for _, e := range b.Listeners {
		if strings.EqualFold(e.Name, name) {
			return e, true
		}
	}
	return Endpoint{}, false
}
