package coordination

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Endpoint is one advertised address of a broker.
type Endpoint struct {
	Listener         string // upper case
	SecurityProtocol string // PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
	Host             string
	Port             int32
}

// Broker is a registration under /brokers/ids.
type Broker struct {
	ID        int32
	Endpoints []Endpoint
	Rack      string // "" when it has none
	JMXPort   int32  // -1 when it has none
	Epoch     int64  // czxid of the registration; set by reads
	// Features are what the broker can do, by name (KIP-584); nil if it names none.
	Features map[string]FeatureRange
}

// FeatureRange is the range of a feature's levels.
type FeatureRange struct {
	Min int16 `json:"min_version"`
	Max int16 `json:"max_version"`
}

// Endpoint returns the address on the listener of that name; with an empty
// name the first one.
func (b *Broker) Endpoint(listener string) (Endpoint, bool) {
	for _, e := range b.Endpoints {
		if listener == "" || strings.EqualFold(e.Listener, listener) {
			return e, true
		}
	}
	return Endpoint{}, false
}

// ErrBrokerIDInUse means that another broker lives under the id.
var ErrBrokerIDInUse = errors.New("coordination: the broker id is registered by another live broker")

const idsPath = "/brokers/ids"

func brokerPath(id int32) string { return idsPath + "/" + strconv.Itoa(int(id)) }

type brokerJSON struct {
	Version     int               `json:"version"`
	Host        *string           `json:"host"`
	Port        int32             `json:"port"`
	JMXPort     int32             `json:"jmx_port"`
	Timestamp   string            `json:"timestamp"`
	Endpoints   []string          `json:"endpoints"`
	Rack        *string           `json:"rack,omitempty"`
	ProtocolMap map[string]string `json:"listener_security_protocol_map"`

	Features map[string]json.RawMessage `json:"features"`
}

func encodeBroker(b Broker, now time.Time) ([]byte, error) {
	j := brokerJSON{
		Version: 5, JMXPort: b.JMXPort, Timestamp: strconv.FormatInt(now.UnixMilli(), 10), Port: -1,
		ProtocolMap: map[string]string{}, Features: map[string]json.RawMessage{},
	}
	for name, v := range b.Features {
		raw, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		j.Features[name] = raw
	}
	for _, e := range b.Endpoints {
		j.Endpoints = append(j.Endpoints, fmt.Sprintf("%s://%s:%d", strings.ToUpper(e.Listener), bracket(e.Host), e.Port))
		j.ProtocolMap[strings.ToUpper(e.Listener)] = e.SecurityProtocol
		if e.SecurityProtocol == "PLAINTEXT" && j.Host == nil { // for clients of the oldest kind
			host := e.Host
			j.Host, j.Port = &host, e.Port
		}
	}
	if b.Rack != "" {
		j.Rack = &b.Rack
	}
	return json.Marshal(j)
}

func bracket(host string) string {
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		return "[" + host + "]"
	}
	return host
}

// decodeBroker reads versions 1 to 5.
func decodeBroker(id int32, data []byte) (Broker, error) {
	var j brokerJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return Broker{}, fmt.Errorf("coordination: registration of broker %d: %w", id, err)
	}
	b := Broker{ID: id, JMXPort: j.JMXPort}
	if j.Rack != nil {
		b.Rack = *j.Rack
	}
	for _, s := range j.Endpoints {
		e, err := parseEndpoint(s)
		if err != nil {
			return Broker{}, fmt.Errorf("coordination: registration of broker %d: %w", id, err)
		}
		e.SecurityProtocol = e.Listener
		if p := j.ProtocolMap[e.Listener]; p != "" {
			e.SecurityProtocol = p
		}
		b.Endpoints = append(b.Endpoints, e)
	}
	for name, raw := range j.Features {
		var v FeatureRange
		// What cannot be read is a feature that the broker does not have: no reason to do without the broker.
		if json.Unmarshal(raw, &v) != nil || v.Min < 0 || v.Max < v.Min {
			continue
		}
		if b.Features == nil {
			b.Features = map[string]FeatureRange{}
		}
		b.Features[name] = v
	}
	if len(j.Endpoints) == 0 && j.Host != nil {
		b.Endpoints = []Endpoint{{Listener: "PLAINTEXT", SecurityProtocol: "PLAINTEXT", Host: *j.Host, Port: j.Port}}
	}
	return b, nil
}

func parseEndpoint(s string) (Endpoint, error) {
	name, addr, ok := strings.Cut(s, "://")
	i := strings.LastIndexByte(addr, ':')
	if !ok || i < 0 {
		return Endpoint{}, fmt.Errorf("bad endpoint %q", s)
	}
	port, err := strconv.ParseInt(addr[i+1:], 10, 32)
	if err != nil || port < 0 || port > 65535 {
		return Endpoint{}, fmt.Errorf("bad endpoint %q", s)
	}
	host := strings.TrimSuffix(strings.TrimPrefix(addr[:i], "["), "]")
	return Endpoint{Listener: strings.ToUpper(name), Host: host, Port: int32(port)}, nil
}

// RegisterBroker makes the broker's ephemeral znode and returns its czxid, the
// broker epoch. The broker must be listening on its endpoints already.
//
// A registration that is there already is
//   - ours, if this session owns it: the reply to an earlier attempt was lost;
//   - an earlier life's, if a former session of this client owns it, or one of
//     formerSessions (kept in a file by the caller, say), or if it advertises
//     the same addresses, which we hold now: it is replaced in one step, without
//     waiting until the old session times out;
//   - otherwise another broker's: ErrBrokerIDInUse.
func (c *Client) RegisterBroker(ctx context.Context, b Broker, formerSessions ...int64) (epoch int64, err error) {
	path := brokerPath(b.ID)
	if err := c.EnsurePath(ctx, idsPath); err != nil {
		return 0, err
	}
	data, err := encodeBroker(b, time.Now())
	if err != nil {
		return 0, err
	}
	for {
		s, err := c.current(ctx)
		if err != nil {
			return 0, err
		}
		// The SetData gives back the stat, and with it the czxid, of the znode
		// that was made in the same step.
		ops := []Op{CreateEphemeralOp(path, data), SetOp(path, data, 0)}
		stats, err := c.multiOn(ctx, s, ops...)
		if err == nil {
			return stats[len(stats)-1].Czxid, nil
		}
		if !errors.Is(err, ErrNodeExists) {
			return 0, err
		}
		old, st, err := c.Get(ctx, path)
		if errors.Is(err, ErrNoNode) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if st.EphemeralOwner == s.id {
			return st.Czxid, nil
		}
		if !c.formerlyOurs(st.EphemeralOwner, formerSessions) && !sameAddresses(b, old) {
			return 0, fmt.Errorf("%w: id %d, session %#x, %s", ErrBrokerIDInUse, b.ID, st.EphemeralOwner, old)
		}
		c.log.Warn("replacing the registration of an earlier life of this broker", "broker", b.ID, "session", fmt.Sprintf("%#x", st.EphemeralOwner))
		stats, err = c.multiOn(ctx, s, append([]Op{DeleteOp(path, st.Version)}, ops...)...)
		if err == nil {
			return stats[len(stats)-1].Czxid, nil
		}
		if !errors.Is(err, ErrNoNode) && !errors.Is(err, ErrBadVersion) && !errors.Is(err, ErrNodeExists) {
			return 0, err
		}
	}
}

func (c *Client) formerlyOurs(owner int64, more []int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.past, owner) || slices.Contains(more, owner)
}

func sameAddresses(b Broker, data []byte) bool {
	old, err := decodeBroker(b.ID, data)
	if err != nil || len(old.Endpoints) == 0 {
		return false
	}
	for _, o := range old.Endpoints {
		if !slices.ContainsFunc(b.Endpoints, func(e Endpoint) bool { return e.Host == o.Host && e.Port == o.Port }) {
			return false
		}
	}
	return true
}

// UnregisterBroker removes the registration that has this epoch.
func (c *Client) UnregisterBroker(ctx context.Context, id int32, epoch int64) error {
	st, err := c.Exists(ctx, brokerPath(id))
	if err != nil || st == nil || st.Czxid != epoch {
		return err
	}
	return c.Delete(ctx, brokerPath(id), st.Version)
}

// Broker reads one registration; ErrNoNode when the broker is not there.
func (c *Client) Broker(ctx context.Context, id int32) (Broker, error) {
	data, st, err := c.Get(ctx, brokerPath(id))
	if err != nil {
		return Broker{}, err
	}
	b, err := decodeBroker(id, data)
	b.Epoch = st.Czxid
	return b, err
}

// Brokers reads all registrations, by id. It arms the watch of BrokersPath's
// children; brokers that go between the two reads are left out.
func (c *Client) Brokers(ctx context.Context) ([]Broker, error) {
	names, err := c.Children(ctx, idsPath)
	if err != nil {
		return nil, err
	}
	var bs []Broker
	for _, n := range names {
		id, err := strconv.ParseInt(n, 10, 32)
		if err != nil {
			continue
		}
		b, err := c.Broker(ctx, int32(id))
		if errors.Is(err, ErrNoNode) {
			continue
		}
		if err != nil {
			return nil, err
		}
		bs = append(bs, b)
	}
	slices.SortFunc(bs, func(a, b Broker) int { return int(a.ID - b.ID) })
	return bs, nil
}

// WatchBrokers is WatchChildren for the registrations; Brokers and Registrations arm it.
func (c *Client) WatchBrokers(fn func()) (stop func()) { return c.WatchChildren(idsPath, fn) }

// Registrations is Brokers with the version of their list: the zxid of the last registration
// that came or went. What is returned is the whole of that version.
func (c *Client) Registrations(ctx context.Context) ([]Broker, int64, error) {
	for {
		l, err := c.children(ctx, idsPath)
		if err != nil {
			return nil, 0, err
		}
		bs, whole, err := c.registrations(ctx, l)
		if err != nil || whole {
			return bs, l.stat.Pzxid, err
		}
	}
}

// registrations reads those listed; whole is false if one has gone or was made anew since.
func (c *Client) registrations(ctx context.Context, l childList) (bs []Broker, whole bool, err error) {
	for _, n := range l.names {
		id, err := strconv.ParseInt(n, 10, 32)
		if err != nil {
			continue
		}
		b, err := c.Broker(ctx, int32(id))
		switch {
		case errors.Is(err, ErrNoNode):
			return nil, false, nil
		case err != nil:
			return nil, false, err
		case b.Epoch > l.stat.Pzxid:
			return nil, false, nil
		}
		bs = append(bs, b)
	}
	slices.SortFunc(bs, func(a, b Broker) int { return int(a.ID - b.ID) })
	return bs, true, nil
}
