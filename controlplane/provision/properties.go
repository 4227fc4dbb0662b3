package provision

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
)

// layout is where one broker's things are.
type layout struct {
	dir      string
	client   int // port for clients
	internal int // port between brokers and for the control plane; 0 without security
}

func (l layout) dataDir() string { return filepath.Join(l.dir, "data") }

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// render writes the broker's server.properties in Kafka's own setting names, in
// a fixed order, so that equal specs give equal bytes.
func render(s BrokerSpec, l layout) []byte {
	rf := min(max(s.Brokers, 1), 3)
	minISR := 1
	if rf == 3 {
		minISR = 2
	}
	var p properties
	p.add("broker.id", s.BrokerID)
	p.add("log.dirs", l.dataDir())
	p.add("zookeeper.connect", s.ZooKeeper+s.Chroot)
	p.add("zookeeper.session.timeout.ms", 6000)
	p.add("offsets.topic.replication.factor", rf)
	p.add("transaction.state.log.replication.factor", rf)
	p.add("transaction.state.log.min.isr", minISR)
	p.add("default.replication.factor", rf)
	if s.Security == nil {
		addr := "PLAINTEXT://" + loopback(l.client)
		p.add("listeners", addr)
		p.add("advertised.listeners", addr)
		p.add("auto.create.topics.enable", true)
		p.add("num.partitions", 4)
		p.add("min.insync.replicas", 1)
		p.add("group.initial.rebalance.delay.ms", 0)
	} else {
		p.secure(s, l)
		p.add("auto.create.topics.enable", false)
		p.add("num.partitions", 1)
		p.add("min.insync.replicas", minISR)
		p.add("penstock.usage.enable", true)
		p.add("penstock.usage.interval.ms", 1000)
		p.add("penstock.usage.topic.replication.factor", rf)
	}
	for _, set := range s.Set {
		p.set(set)
	}
	return p.bytes()
}

func (p *properties) secure(s BrokerSpec, l layout) {
	sec := s.Security
	addrs := "CLIENT://" + loopback(l.client) + ",INTERNAL://" + loopback(l.internal)
	p.add("listeners", addrs)
	p.add("advertised.listeners", addrs)
	p.add("listener.security.protocol.map", "CLIENT:SASL_PLAINTEXT,INTERNAL:SASL_PLAINTEXT")
	p.add("inter.broker.listener.name", "INTERNAL")
	p.add("listener.name.client.sasl.enabled.mechanisms", "OAUTHBEARER")
	p.add("listener.name.internal.sasl.enabled.mechanisms", "PLAIN")
	p.add("sasl.mechanism.inter.broker.protocol", "PLAIN")
	p.add("listener.name.internal.plain.sasl.jaas.config", fmt.Sprintf(
		`org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="%s" user_broker="%s" user_control="%s";`,
		sec.Secrets.BrokerPassword, sec.Secrets.BrokerPassword, sec.Secrets.ControlPassword))
	p.add("sasl.oauthbearer.jwks.endpoint.url", sec.JWKSURL)
	p.add("sasl.oauthbearer.expected.audience", sec.Audience)
	p.add("sasl.oauthbearer.expected.issuer", sec.Issuer)
	p.add("penstock.oauth.jwks.cache.file", filepath.Join(l.dir, "jwks.json"))
	p.add("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer")
	p.add("super.users", "User:broker;User:control")
	p.add("allow.everyone.if.no.acl.found", false)
	p.add("zookeeper.set.acl", true)
	p.add("penstock.zookeeper.digest", sec.Secrets.ZooKeeperUser+":"+sec.Secrets.ZooKeeperPassword)
}

// properties is an ordered list of lines in which a key stands once.
type properties struct {
	lines []Property
	at    map[string]int
}

func (p *properties) add(key string, value any) { p.set(Property{key, fmt.Sprint(value)}) }

func (p *properties) set(l Property) {
	if i, ok := p.at[l.Key]; ok {
		p.lines[i] = l
		return
	}
	if p.at == nil {
		p.at = map[string]int{}
	}
	p.at[l.Key] = len(p.lines)
	p.lines = append(p.lines, l)
}

func (p *properties) bytes() []byte {
	var b strings.Builder
	for _, l := range p.lines {
		b.WriteString(escape(l.Key, true) + "=" + escape(l.Value, false) + "\n")
	}
	return []byte(b.String())
}

// escape writes a key or a value so that a reader of java.util.Properties gets
// it back unchanged.
func escape(s string, key bool) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == '\\':
			b.WriteString(`\\`)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == ' ' && (key || i == 0), key && (r == '=' || r == ':'), (r == '#' || r == '!') && i == 0:
			b.WriteByte('\\')
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// ParseSet reads "key=value", as given on a command line.
func ParseSet(s string) (Property, error) {
	k, v, ok := strings.Cut(s, "=")
	if k = strings.TrimSpace(k); !ok || k == "" {
		return Property{}, fmt.Errorf("%q: want key=value", s)
	}
	return Property{k, strings.TrimSpace(v)}, nil
}
