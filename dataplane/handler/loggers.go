package handler

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/config"
	"penstock/dataplane/listener"
)

// rootLogger is the one logger that there is; Kafka's root logger has this name, too.
const rootLogger = "root"

// logLevels are Kafka's names of log levels, the chattiest first.
var logLevels = []struct {
	name  string
	level slog.Level
}{
	{"TRACE", slog.LevelDebug - 4}, {"DEBUG", slog.LevelDebug}, {"INFO", slog.LevelInfo},
	{"WARN", slog.LevelWarn}, {"ERROR", slog.LevelError}, {"FATAL", slog.LevelError + 4},
}

// describeLogger gives the level of the log (KIP-412): a resource of type
// BROKER_LOGGER has a logger's name in place of a setting's.
func (h *Handler) describeLogger(r *listener.Request, in *kmsg.DescribeConfigsRequestResource) ([]config.Entry, error) {
	if !h.authorizeCluster(r, kmsg.ACLOperationDescribeConfigs) {
		return nil, kerr.ClusterAuthorizationFailed
	}
	if err := h.isMe(in.ResourceName); err != nil {
		return nil, err
	}
	if len(in.ConfigNames) > 0 && !slices.Contains(in.ConfigNames, rootLogger) {
		return nil, nil
	}
	now := logLevels[0].name
	for _, l := range logLevels {
		if h.LogLevel.Level() >= l.level {
			now = l.name
		}
	}
	return []config.Entry{{Name: rootLogger, Value: &now, Source: kmsg.ConfigSourceDynamicBrokerLoggerConfig}}, nil
}

// alterLogger changes the level of the log, until the broker ends.
func (h *Handler) alterLogger(r *listener.Request, a *alteration) error {
	if !h.authorizeCluster(r, kmsg.ACLOperationAlterConfigs) {
		return kerr.ClusterAuthorizationFailed
	}
	if err := h.isMe(a.name); err != nil {
		return err
	}
	if a.whole {
		return fmt.Errorf("%w: loggers are changed by IncrementalAlterConfigs", kerr.InvalidRequest)
	}
	if len(a.ops) == 0 {
		return nil
	}
	op := a.ops[0]
	switch {
	case len(a.ops) > 1:
		return fmt.Errorf("%w: there is one logger, %s", kerr.InvalidRequest, rootLogger)
	case op.Op != kmsg.IncrementalAlterConfigOpSet && op.Op != kmsg.IncrementalAlterConfigOpDelete:
		return fmt.Errorf("%w: a logger's level can only be set", kerr.InvalidRequest)
	case op.Op == kmsg.IncrementalAlterConfigOpSet && op.Value == nil:
		return fmt.Errorf("%w: a level is missing", kerr.InvalidRequest)
	case op.Name != rootLogger:
		return fmt.Errorf("%w: there is one logger, %s", kerr.InvalidConfig, rootLogger)
	case op.Op == kmsg.IncrementalAlterConfigOpDelete:
		return fmt.Errorf("%w: the level of the root logger cannot be removed", kerr.InvalidRequest)
	}
	for _, l := range logLevels {
		if strings.EqualFold(l.name, *op.Value) {
			if !a.dry {
				h.Logger.Info("the log's level changes", "level", l.name)
				h.LogLevel.Set(l.level)
			}
			return nil
		}
	}
	return fmt.Errorf("%w: a level is TRACE, DEBUG, INFO, WARN, ERROR or FATAL", kerr.InvalidConfig)
}
