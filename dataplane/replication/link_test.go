package replication

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/peer"
)

type linkConn struct {
	to     int32
	closed bool
	answer func(*kmsg.AlterPartitionRequest) (kmsg.Response, error)
}

func (c *linkConn) Do(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
	return c.answer(r.(*kmsg.AlterPartitionRequest))
}
func (c *linkConn) DoFrame(context.Context, kmsg.Request) (*peer.Frame, error) { return nil, nil }
func (c *linkConn) Close() error                                               { c.closed = true; return nil }

func TestControllerLinkFollowsTheController(t *testing.T) {
	controller, local := int32(2), 0
	var conns []*linkConn
	answer := func(r *kmsg.AlterPartitionRequest) (kmsg.Response, error) { return r.ResponseKind(), nil }
	l := &ControllerLink{
		Self:   1,
		Lookup: func() (int32, bool) { return controller, controller > 0 },
		Local: func(r *kmsg.AlterPartitionRequest) *kmsg.AlterPartitionResponse {
			local++
			return r.ResponseKind().(*kmsg.AlterPartitionResponse)
		},
		Dial: func(_ context.Context, to int32, _ string) (Conn, error) {
			c := &linkConn{to: to, answer: func(r *kmsg.AlterPartitionRequest) (kmsg.Response, error) { return answer(r) }}
			conns = append(conns, c)
			return c, nil
		},
	}
	send := func() error {
		req := kmsg.NewPtrAlterPartitionRequest()
		req.SetVersion(2)
		_, err := l.Send(context.Background(), req)
		return err
	}
	for range 2 {
		if err := send(); err != nil {
			t.Fatal(err)
		}
	}
	if len(conns) != 1 || conns[0].to != 2 {
		t.Fatalf("the connection must be kept: %d", len(conns))
	}
	controller = 3
	if err := send(); err != nil || len(conns) != 2 || !conns[0].closed || conns[1].to != 3 {
		t.Fatalf("%v, %d connections", err, len(conns))
	}
	controller = 1
	if err := send(); err != nil || local != 1 {
		t.Fatalf("%v, %d local calls", err, local)
	}
	controller = 0
	if send() == nil {
		t.Error("no error without a controller")
	}
	controller = 3
	answer = func(r *kmsg.AlterPartitionRequest) (kmsg.Response, error) { return nil, errors.New("cut") }
	if send() == nil || !conns[1].closed {
		t.Error("a failed connection must be given up")
	}
	answer = func(r *kmsg.AlterPartitionRequest) (kmsg.Response, error) {
		resp := r.ResponseKind().(*kmsg.AlterPartitionResponse)
		resp.ErrorCode = kerr.NotController.Code
		return resp, nil
	}
	if err := send(); err != nil || len(conns) != 3 || !conns[2].closed {
		t.Errorf("%v: a connection to what is no controller must be given up", err)
	}
	l.Close()
}
