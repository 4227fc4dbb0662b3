package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
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

// createTopic makes the topic and waits until every partition has a leader.
func createTopic(addr, topic string, partitions int32) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	create := kmsg.NewPtrCreateTopicsRequest()
	create.SetVersion(5)
	create.TimeoutMillis = 30_000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, partitions, 1
	create.Topics = append(create.Topics, t)
	resp, err := c.do(create)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return err
	}
	for deadline := time.Now().Add(30 * time.Second); ; {
		meta := kmsg.NewPtrMetadataRequest()
		meta.SetVersion(7)
		mt := kmsg.NewMetadataRequestTopic()
		mt.Topic = &topic
		meta.Topics = append(meta.Topics, mt)
		resp, err := c.do(meta)
		if err != nil {
			return err
		}
		found := resp.(*kmsg.MetadataResponse).Topics[0]
		ready := len(found.Partitions) == int(partitions)
		for _, p := range found.Partitions {
			ready = ready && p.ErrorCode == 0 && p.Leader >= 0
		}
		if ready {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("topic %s has no leaders after 30 s", topic)
		}
		time.Sleep(50 * time.Millisecond) // metadata has no event to await
	}
}

func percentile(d []time.Duration, p float64) float64 {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return float64(d[min(len(d)-1, int(float64(len(d))*p))].Microseconds()) / 1000
}
