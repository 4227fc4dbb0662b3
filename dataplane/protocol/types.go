package protocol

import (
	"errors"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// UUID is a topic id as it stands on the wire; the zero value means "none".
type UUID = [16]byte

// TopicPartition names one partition of one topic.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String is the name that Kafka gives to the partition's folder: topic-partition.
func (tp TopicPartition) String() string {
	return tp.Topic + "-" + strconv.FormatInt(int64(tp.Partition), 10)
}

// Code turns an error into the error code of the wire: 0 for nil, the code of
// a *kerr.Error wherever it stands in the chain, UNKNOWN_SERVER_ERROR (-1) for
// everything else.
func Code(err error) int16 {
	if err == nil {
		return 0
	}
	var ke *kerr.Error
	if errors.As(err, &ke) {
		return ke.Code
	}
	return kerr.UnknownServerError.Code
}

// Message is an error's text beside its code, nil for none: what is particular to the
// case, without the general description that a client has for the code already.
func Message(err error) *string {
	if err == nil {
		return nil
	}
	text := err.Error()
	var ke *kerr.Error
	if errors.As(err, &ke) {
		if rest, ok := strings.CutPrefix(text, ke.Error()+": "); ok {
			text = rest
		} else if text == ke.Error() {
			text = ke.Description
		}
	}
	return &text
}
