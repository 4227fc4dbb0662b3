package coordination

import (
	"context"
	"encoding/json"
	"fmt"
)

// logDirFailed is the only event there is under LogDirEventsPath.
const logDirFailed = 1

// logDirEvent is Kafka's content of a child of LogDirEventsPath (KIP-112).
type logDirEvent struct {
	Version int    `json:"version"`
	Broker  *int32 `json:"broker"`
	Event   int    `json:"event"`
}

// NotifyLogDirFailure lets the controller ask the broker which replicas it has lost.
func (c *Client) NotifyLogDirFailure(ctx context.Context, broker int32) error {
	data, err := json.Marshal(logDirEvent{1, &broker, logDirFailed})
	if err != nil {
		return err
	}
	return c.notify(ctx, LogDirEventsPath+"/log_dir_event_", data)
}

// DecodeLogDirEvent gives the broker that has lost a folder.
func DecodeLogDirEvent(data []byte) (broker int32, err error) {
	var e logDirEvent
	if err := json.Unmarshal(data, &e); err != nil || e.Broker == nil || *e.Broker < 0 {
		return -1, fmt.Errorf("coordination: bad log folder event %.200q", data)
	}
	return *e.Broker, nil
}
