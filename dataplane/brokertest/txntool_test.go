//go:build compat

package brokertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/brokertest/apache"
)

// A transaction that no coordinator knows of, as a broker without verification lets one begin, is
// found and ended by Kafka's own tool.
func TestKafkasToolEndsAHangingTransaction(t *testing.T) {
	c := Start(t, Options{Settings: []string{"transaction.partition.verification.enable=false"}})
	b := &target{addr: c.Brokers[0].Addr, run: "tool"}
	topic := b.topic(t, 1)
	p := newInTxn(t, b, topic)
	if at := p.try("a batch that its coordinator does not know of", 9, nil, "x"); at != 0 {
		t.Fatalf("it is at %d", at)
	}
	if got := produce(p.w, topic.name, batch(t, "after it")); got.ErrorCode != 0 {
		t.Fatal(kerr.ErrorForCode(got.ErrorCode))
	}
	for i, version := range []string{apache.V39, apache.V44} {
		tool := func(args ...string) string {
			return c.mustTool(version, "transactions", args...)
		}
		said := tool("describe-producers", "--topic", topic.name, "--partition", "0", "--broker-id", "0")
		if !strings.Contains(said, fmt.Sprint(p.pid)) {
			t.Errorf("%s describes\n%s", version, said)
		}
		start := int64(3 * i)
		said = tool("find-hanging", "--broker-id", "0", "--topic", topic.name, "--max-transaction-timeout", "0")
		if !strings.Contains(said, topic.name) || !strings.Contains(said, fmt.Sprint(p.pid)) {
			t.Errorf("%s finds\n%s", version, said)
		}
		tool("abort", "--topic", topic.name, "--partition", "0", "--start-offset", fmt.Sprint(start))
		end := ask[*kmsg.ListOffsetsResponse](p.w, offsetsOf(6, topic.name, 0, -1)).Topics[0].Partitions[0].Offset
		p.stable(end)
		if a, ok := active(p.w, topic.name, p.pid); !ok || a.CurrentTxnStartOffset != -1 {
			t.Errorf("after the abort by %s: %+v, %v", version, a, ok)
		}
		p.try("the next that hangs", 9, nil, "y")
		if got := produce(p.w, topic.name, batch(t, "after it")); got.ErrorCode != 0 {
			t.Fatal(kerr.ErrorForCode(got.ErrorCode))
		}
	}
}
