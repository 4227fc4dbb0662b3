package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// conn is a raw Kafka connection: requests go out as encoded, replies come
// back in order.
type conn struct {
	net.Conn
	r    *bufio.Reader
	corr int32
}

func dial(addr string) (*conn, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, r: bufio.NewReaderSize(c, 1<<16)}, nil
}

// encode frames a request; the correlation id stands at offset 8.
func encode(req kmsg.Request) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, req, 0)
}

func (c *conn) send(frame []byte) error {
	c.corr++
	binary.BigEndian.PutUint32(frame[8:], uint32(c.corr))
	_, err := c.Write(frame)
	return err
}

// receive reads one reply into buf, grown if need be, and returns its body.
func (c *conn) receive(buf []byte, flexible bool) (body, grown []byte, err error) {
	var size [4]byte
	if _, err := io.ReadFull(c.r, size[:]); err != nil {
		return nil, buf, err
	}
	n := int(binary.BigEndian.Uint32(size[:]))
	buf = slices.Grow(buf[:0], n)[:n]
	if _, err := io.ReadFull(c.r, buf); err != nil {
		return nil, buf, err
	}
	if flexible {
		return buf[5:], buf, nil // correlation id, empty tags
	}
	return buf[4:], buf, nil
}

func (c *conn) do(req kmsg.Request) (kmsg.Response, error) {
	if err := c.send(encode(req)); err != nil {
		return nil, err
	}
	body, _, err := c.receive(nil, req.IsFlexible() && req.Key() != 18)
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	return resp, resp.ReadFrom(body)
}

// createTopic makes the topic on any of the brokers and waits until every
// partition has a leader and all its replicas in sync.
func createTopic(t *target, topic string, partitions int32, config map[string]string) error {
	if t.floor {
		return nil // it has every topic
	}
	c, err := dial(t.addrs[0])
	if err != nil {
		return err
	}
	defer c.Close()
	if c, err = c.controller(); err != nil {
		return err
	}
	defer c.Close()
	create := kmsg.NewPtrCreateTopicsRequest()
	create.SetVersion(5)
	create.TimeoutMillis = 30_000
	ct := kmsg.NewCreateTopicsRequestTopic()
	ct.Topic, ct.NumPartitions, ct.ReplicationFactor = topic, partitions, int16(len(t.addrs))
	for k, v := range config {
		cc := kmsg.NewCreateTopicsRequestTopicConfig()
		cc.Name, cc.Value = k, &v
		ct.Configs = append(ct.Configs, cc)
	}
	create.Topics = append(create.Topics, ct)
	resp, err := c.do(create)
	if err != nil {
		return err
	}
	if r := resp.(*kmsg.CreateTopicsResponse).Topics[0]; r.ErrorCode != 0 {
		return fmt.Errorf("creating topic %s: %w", topic, kerr.ErrorForCode(r.ErrorCode))
	}
	for _, addr := range t.addrs {
		if err := awaitMetadata(addr, topic, func(m *kmsg.MetadataResponse) bool {
			ready := len(m.Topics[0].Partitions) == int(partitions)
			for _, p := range m.Topics[0].Partitions {
				ready = ready && p.ErrorCode == 0 && p.Leader >= 0 && len(p.ISR) == len(t.addrs)
			}
			return ready
		}); err != nil {
			return err
		}
	}
	led, err := t.leaders(topic, partitions)
	if err != nil {
		return err
	}
	for p, addr := range led {
		if err := awaitLeading(addr, topic, int32(p)); err != nil {
			return err
		}
	}
	return nil
}

// awaitLeading waits until the leader serves the partition: metadata may be ahead
// of the replica.
func awaitLeading(addr, topic string, partition int32) error {
	for deadline := time.Now().Add(readyWithin); ; time.Sleep(5 * time.Millisecond) {
		_, err := endOffset(addr, topic, partition)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// endOffset is the high watermark by the leader's word.
func endOffset(addr, topic string, partition int32) (int64, error) {
	c, err := dial(addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	req := kmsg.NewPtrListOffsetsRequest()
	req.SetVersion(1)
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = partition, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := c.do(req)
	if err != nil {
		return 0, err
	}
	r := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	if r.ErrorCode != 0 {
		return 0, fmt.Errorf("end of %s-%d by %s: %w", topic, partition, addr, kerr.ErrorForCode(r.ErrorCode))
	}
	return r.Offset, nil
}

// controller is a connection to the broker that creates topics, as it says of itself.
func (c *conn) controller() (*conn, error) {
	m, err := c.metadata("")
	if err != nil {
		return nil, err
	}
	for _, b := range m.Brokers {
		if b.NodeID == m.ControllerID {
			return dial(net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))))
		}
	}
	return nil, fmt.Errorf("no controller among %d brokers", len(m.Brokers))
}

// metadata asks for one topic, or with an empty name for the brokers only.
func (c *conn) metadata(topic string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(7)
	req.Topics = []kmsg.MetadataRequestTopic{}
	if topic != "" {
		mt := kmsg.NewMetadataRequestTopic()
		mt.Topic = &topic
		req.Topics = append(req.Topics, mt)
	}
	resp, err := c.do(req)
	if err != nil {
		return nil, err
	}
	return resp.(*kmsg.MetadataResponse), nil
}

// readyWithin is also what a follower some GB behind may take.
const readyWithin = 3 * time.Minute

// awaitMetadata polls, since metadata has no event to wait for.
func awaitMetadata(addr, topic string, ready func(*kmsg.MetadataResponse) bool) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	for deadline := time.Now().Add(readyWithin); ; time.Sleep(5 * time.Millisecond) {
		m, err := c.metadata(topic)
		if err != nil {
			return err
		}
		if ready(m) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("broker %s has not got ready within %v (topic %q)", addr, readyWithin, topic)
		}
	}
}

// leaders are the addresses of the leaders by partition.
func (t *target) leaders(topic string, partitions int32) ([]string, error) {
	if t.floor {
		return slices.Repeat(t.addrs, int(partitions)), nil
	}
	c, err := dial(t.addrs[0])
	if err != nil {
		return nil, err
	}
	defer c.Close()
	m, err := c.metadata(topic)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(m.Topics[0].Partitions))
	for _, p := range m.Topics[0].Partitions {
		for _, b := range m.Brokers {
			if b.NodeID == p.Leader {
				out[p.Partition] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
			}
		}
	}
	return out, nil
}

func percentile(d []time.Duration, p float64) float64 {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return float64(d[min(len(d)-1, int(float64(len(d))*p))].Microseconds()) / 1000
}
