//go:build compat

package brokertest

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Kafka knows the last batch alone after a stop of either kind, which is what
// docs/compatibility.md says of it.
func TestRetriesAfterARestartOfApacheKafka(t *testing.T) {
	retriesAfterRestarts(t, Options{Apache: 1}, kerr.OutOfOrderSequenceNumber)
}
