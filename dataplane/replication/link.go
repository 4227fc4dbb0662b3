package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ControllerLink brings AlterPartition requests to the controller of the
// moment, over one connection that is kept, or by a plain call if this broker
// is the controller. Its Send fits ISRConfig and is for one goroutine.
type ControllerLink struct {
	Self int32
	// Lookup names the controller as the cluster's metadata knows it.
	Lookup func() (broker int32, ok bool)
	// Local answers when this broker is the controller.
	Local func(*kmsg.AlterPartitionRequest) *kmsg.AlterPartitionResponse
	Dial  func(ctx context.Context, broker int32, addr string) (Conn, error)
	// Timeout bounds one request, default 30 s.
	Timeout time.Duration

	conn Conn
	to   int32
}

// Send makes one request. A connection that failed, or that led to a broker
// which says that it is no controller, is given up.
func (l *ControllerLink) Send(ctx context.Context, req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
	id, ok := l.Lookup()
	if !ok {
		return nil, errors.New("there is no controller at the moment")
	}
	if id == l.Self {
		return l.Local(req), nil
	}
	timeout := l.Timeout
	if timeout <= 0 {
		timeout = 30 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if l.conn != nil && l.to != id {
		l.Close()
	}
	if l.conn == nil {
		conn, err := l.Dial(ctx, id, "")
		if err != nil {
			return nil, fmt.Errorf("connecting to controller %d: %w", id, err)
		}
		l.conn, l.to = conn, id
	}
	kresp, err := l.conn.Do(ctx, req)
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("asking controller %d: %w", id, err)
	}
	resp, ok := kresp.(*kmsg.AlterPartitionResponse)
	if !ok {
		l.Close()
		return nil, fmt.Errorf("controller %d answered with a %T", id, kresp)
	}
	if resp.ErrorCode == kerr.NotController.Code {
		l.Close()
	}
	return resp, nil
}

// Close gives the connection up; after the ISRSender has been closed.
func (l *ControllerLink) Close() {
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
	}
}
