package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordination"
	"penstock/dataplane/metadata"
	"penstock/dataplane/peer"
	"penstock/dataplane/protocol"
)

// dialer makes connections to other brokers on the inter-broker listener, with
// this broker's own credentials.
type dialer struct {
	listener       string
	user, password string
	timeout        time.Duration
	clientID       string
	buffers        *protocol.Pool
}

func (d *dialer) dial(ctx context.Context, addr string) (*peer.Conn, error) {
	p := peer.Dialer{Addr: addr, ClientID: d.clientID, User: d.user, Password: d.password, Timeout: d.timeout, Buffers: d.buffers}
	return p.Dial(ctx)
}

// link is one kept connection to whichever broker it is asked to reach: dialled
// at need, and anew when the broker is another or the connection is broken. It
// carries one request at a time.
type link struct {
	dialer *dialer

	mu   sync.Mutex
	conn *peer.Conn
	addr string
}

// do lowers the version of req to what the other broker has, which may be of an older release.
func (l *link) do(ctx context.Context, addr string, req kmsg.Request) (kmsg.Response, error) {
	return l.doFrom(ctx, addr, req, 0)
}

// errOldVersion means that the other broker has only versions of a request that cannot say
// what is to be said.
var errOldVersion = errors.New("the other broker is too old")

// doFrom is do for a request that makes sense from a version on.
func (l *link) doFrom(ctx context.Context, addr string, req kmsg.Request, oldest int16) (kmsg.Response, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil && (l.addr != addr || l.conn.Broken()) {
		l.closeLocked()
	}
	if l.conn == nil {
		conn, err := l.dialer.dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		l.conn, l.addr = conn, addr
	}
	version, err := l.conn.Newest(ctx, req.Key(), req.GetVersion())
	if err != nil {
		return nil, err
	}
	if version < oldest {
		return nil, fmt.Errorf("%w: %s of version %d, not %d", errOldVersion, kmsg.NameForKey(req.Key()), version, oldest)
	}
	req.SetVersion(version)
	return l.conn.Do(ctx, req)
}

func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeLocked()
}

func (l *link) closeLocked() {
	if l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
}

// controllerLink sends requests to whichever broker is the controller.
type controllerLink struct {
	link
	zk *coordination.Client
}

// errNoController means that nobody holds the office right now.
var errNoController = errors.New("no controller is elected")

// Do sends req to the controller. Its reply may say NOT_CONTROLLER: the caller
// tries again, when the next controller is known.
func (l *controllerLink) Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	id, addr, err := l.find(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := l.do(ctx, addr, req)
	if err != nil {
		return nil, fmt.Errorf("controller %d at %s: %w", id, addr, err)
	}
	return resp, nil
}

// find asks ZooKeeper: right after a failover it knows before any broker does.
func (l *controllerLink) find(ctx context.Context) (int32, string, error) {
	id, err := l.zk.ControllerID(ctx)
	if err != nil {
		return 0, "", err
	}
	if id < 0 {
		return 0, "", errNoController
	}
	b, err := l.zk.Broker(ctx, id)
	if err != nil {
		return 0, "", err
	}
	e, ok := b.Endpoint(l.dialer.listener)
	if !ok {
		return 0, "", fmt.Errorf("controller %d has no listener %s", id, l.dialer.listener)
	}
	return id, hostPort(e.Host, e.Port), nil
}

func (b *Broker) sendAlterPartition(ctx context.Context, req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
	resp, err := b.controllers.Do(ctx, req)
	if err != nil {
		return nil, err
	}
	return resp.(*kmsg.AlterPartitionResponse), nil
}

func hostPort(host string, port int32) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// ensureTopic has the controller make a topic unless it is there, and waits
// until this broker knows a leader for each of its partitions.
func (b *Broker) ensureTopic(ctx context.Context, topic string) error {
	for b.metadata.Image().Topic(topic) == nil {
		err := b.createTopic(ctx, topic)
		switch {
		case err == nil, errors.Is(err, kerr.TopicAlreadyExists):
		case errors.Is(err, kerr.NotController), errors.Is(err, errNoController), errors.Is(err, kerr.InvalidReplicationFactor):
			// Nobody is in office yet, or (at the cluster's very start) too few
			// brokers have registered: wait for the next word of a controller.
			if err := b.nextImage(ctx); err != nil {
				return err
			}
			continue
		default:
			return err
		}
		break
	}
	return b.metadata.AwaitTopic(ctx, topic, 1)
}

// nextImage waits for the next metadata update, at most a second.
func (b *Broker) nextImage(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	now := b.metadata.Image()
	_ = b.metadata.Await(short, func(im *metadata.Image) bool { return im != now })
	return ctx.Err()
}

func (b *Broker) createTopic(ctx context.Context, topic string) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.SetVersion(5)
	req.TimeoutMillis = 10_000
	req.Topics = append(req.Topics, b.topicToMake(topic))
	resp, err := b.controllers.Do(ctx, req)
	if err != nil {
		return err
	}
	t := resp.(*kmsg.CreateTopicsResponse).Topics[0]
	if t.ErrorCode == 0 {
		return nil
	}
	err = kerr.ErrorForCode(t.ErrorCode)
	if t.ErrorMessage != nil {
		err = fmt.Errorf("%w: %s", err, *t.ErrorMessage)
	}
	return err
}
