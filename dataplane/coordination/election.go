package coordination

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// ErrControllerMoved means that another broker has become controller since: the
// write was not done, and the caller must resign.
var ErrControllerMoved = errors.New("coordination: another controller has been elected")

// Fence binds a controller's writes to its election. Each write checks the
// version of the controller epoch's znode in the same transaction.
type Fence struct {
	Epoch   int32 // the controller epoch, as brokers know it
	Version int32 // of the znode that holds it
}

type controllerJSON struct {
	Version   int    `json:"version"`
	BrokerID  int32  `json:"brokerid"`
	Timestamp string `json:"timestamp"`
	KRaft     int32  `json:"kraftControllerEpoch"`
}

// ControllerID returns the controller's broker id, -1 when there is none now.
// It arms the data watch of ControllerPath.
func (c *Client) ControllerID(ctx context.Context) (int32, error) {
	data, _, err := c.Get(ctx, ControllerPath)
	if errors.Is(err, ErrNoNode) {
		return -1, nil
	}
	if err != nil {
		return -1, err
	}
	var j controllerJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return -1, fmt.Errorf("coordination: %s: %w", ControllerPath, err)
	}
	return j.BrokerID, nil
}

// ControllerEpoch reads the epoch of the last election, 0 before the first.
func (c *Client) ControllerEpoch(ctx context.Context) (int32, error) {
	f, err := c.readFence(ctx)
	return f.Epoch, err
}

func (c *Client) readFence(ctx context.Context) (Fence, error) {
	data, st, err := c.Get(ctx, controllerEpoch)
	if errors.Is(err, ErrNoNode) {
		return Fence{0, -1}, nil
	}
	if err != nil {
		return Fence{}, err
	}
	e, err := strconv.ParseInt(string(data), 10, 32)
	if err != nil {
		return Fence{}, fmt.Errorf("coordination: %s: %w", controllerEpoch, err)
	}
	return Fence{int32(e), st.Version}, nil
}

// ElectController tries to become the controller. It returns the fence of all
// further writes, or the id of the broker that is controller instead, with
// won = false. Both znodes change in one step, so that no two controllers share
// an epoch.
func (c *Client) ElectController(ctx context.Context, broker int32) (f Fence, other int32, won bool, err error) {
	for {
		if id, err := c.ControllerID(ctx); err != nil || id >= 0 {
			return Fence{}, id, false, err
		}
		s, err := c.current(ctx)
		if err != nil {
			return Fence{}, -1, false, err
		}
		f, err := c.readFence(ctx)
		if err != nil {
			return Fence{}, -1, false, err
		}
		if f.Version < 0 {
			if err := c.Create(ctx, controllerEpoch, []byte("0")); err != nil && !errors.Is(err, ErrNodeExists) {
				return Fence{}, -1, false, err
			}
			continue
		}
		data, _ := json.Marshal(controllerJSON{2, broker, strconv.FormatInt(time.Now().UnixMilli(), 10), -1})
		next := Fence{f.Epoch + 1, f.Version + 1}
		_, err = c.multiOn(ctx, s,
			CreateEphemeralOp(ControllerPath, data),
			SetOp(controllerEpoch, []byte(strconv.Itoa(int(next.Epoch))), f.Version))
		switch {
		case err == nil:
			return next, broker, true, nil
		case errors.Is(err, ErrNodeExists), errors.Is(err, ErrBadVersion):
			// Lost, or won with the reply lost: the znode's owner tells.
			st, err := c.Exists(ctx, ControllerPath)
			if err != nil {
				return Fence{}, -1, false, err
			}
			now, err := c.readFence(ctx)
			if err != nil {
				return Fence{}, -1, false, err
			}
			if st != nil && st.EphemeralOwner == s.id && now == next {
				return next, broker, true, nil
			}
			// Otherwise look again who it is.
		default:
			return Fence{}, -1, false, err
		}
	}
}

// ForgetController removes the controller znode if it names this broker. The
// caller holds the broker's registration and is in no term of office: the znode
// is then left over from an earlier life, whose session would keep the office
// vacant until it times out (KAFKA-1387 and its kind), or from a term that could
// not be resigned from. Every such znode has version 0, so the delete is bound to
// the controller epoch as it was before the znode was read: one that another
// broker has made since is left alone.
func (c *Client) ForgetController(ctx context.Context, broker int32) error {
	f, err := c.readFence(ctx)
	if err != nil {
		return err
	}
	id, err := c.ControllerID(ctx)
	if err != nil || id != broker {
		return err
	}
	if err := c.ResignController(ctx, f); !errors.Is(err, ErrControllerMoved) {
		return err
	}
	return nil
}

// ResignController removes the controller znode if it is still that of the
// fence, so that the others elect at once.
func (c *Client) ResignController(ctx context.Context, f Fence) error {
	_, err := c.Fenced(ctx, f, DeleteOp(ControllerPath, -1))
	if errors.Is(err, ErrNoNode) {
		return nil
	}
	return err
}

// Fenced is Multi bound to a controller's election: nothing is written and
// ErrControllerMoved comes back when there has been another one since. The
// stats are those of ops.
func (c *Client) Fenced(ctx context.Context, f Fence, ops ...Op) ([]*Stat, error) {
	stats, err := c.Multi(ctx, append([]Op{CheckOp(controllerEpoch, f.Version)}, ops...)...)
	if err != nil {
		var me *MultiError
		if errors.As(err, &me) {
			if me.Index == 0 {
				return nil, ErrControllerMoved
			}
			return nil, &MultiError{Index: me.Index - 1, Err: me.Err}
		}
		return nil, err
	}
	return stats[1:], nil
}
