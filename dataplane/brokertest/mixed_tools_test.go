//go:build compat

package brokertest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"penstock/dataplane/brokertest/apache"
)

// TestMixedTools has Kafka's own tools, of both versions, administer a cluster of
// ours.
func TestMixedTools(t *testing.T) {
	c, _ := startMixedSecured(t, 3, 0, "log.segment.delete.delay.ms=1000", "zookeeper.session.timeout.ms=60000")
	for _, version := range []string{apache.V39, apache.V44} {
		t.Run(version, func(t *testing.T) {
			c.t = t
			c.tools(version)
		})
	}
}

func (c *Cluster) tools(version string) {
	t := c.t
	// says runs a tool and demands words in what it prints.
	says := func(words []string, name string, args ...string) string {
		t.Helper()
		out := c.mustTool(version, name, args...)
		for _, w := range words {
			if !strings.Contains(out, w) {
				t.Errorf("%s %q does not say %q:\n%s", name, args, w, out)
			}
		}
		return out
	}
	topic := "tools-" + strings.ReplaceAll(version, ".", "-")
	none := func(name string, args ...string) {
		t.Helper()
		if out := strings.TrimSpace(c.mustTool(version, name, args...)); out != "" {
			t.Errorf("%s %q says:\n%s", name, args, out)
		}
	}

	says([]string{"Created topic " + topic}, "topics", "--create", "--topic", topic, "--replica-assignment", "0:1,1:2", "--config", "retention.ms=100000000")
	says([]string{topic}, "topics", "--list")
	says([]string{"PartitionCount: 2", "ReplicationFactor: 2", "retention.ms=100000000", "Replicas: 0,1", "Isr: 1,2"}, "topics", "--describe", "--topic", topic)
	none("topics", "--alter", "--topic", topic, "--partitions", "3", "--replica-assignment", "0:1,1:2,2:0")
	c.awaitShape(topic, [][]int32{{0, 1}, {1, 2}, {2, 0}})
	none("topics", "--describe", "--under-replicated-partitions")

	says([]string{"300 records sent"}, "producer-perf", "--topic", topic, "--num-records", "300", "--record-size", "100", "--throughput", "-1", "--producer-props", "bootstrap.servers=SERVERS", "acks=all")
	group := "group-" + topic
	if out := says(nil, "console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "300", "--group", group); strings.Count(out, "\n") < 300 {
		t.Errorf("console-consumer says:\n%s", out)
	}
	var total int64
	for line := range strings.Lines(says(nil, "get-offsets", "--topic", topic)) {
		var p int32
		var end int64
		if _, err := fmt.Sscanf(strings.ReplaceAll(strings.TrimSpace(line), ":", " "), topic+" %d %d", &p, &end); err != nil {
			t.Errorf("get-offsets says %q: %v", line, err)
		}
		total += end
	}
	if total != 300 {
		t.Errorf("get-offsets counts %d records", total)
	}

	says([]string{"Completed updating config"}, "configs", "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", "max.message.bytes=54321,cleanup.policy=[compact,delete]")
	says([]string{"max.message.bytes=54321", "cleanup.policy=compact,delete", "DYNAMIC_TOPIC_CONFIG:max.message.bytes=54321", "DEFAULT_CONFIG:message.max.bytes=1048588"},
		"configs", "--describe", "--entity-type", "topics", "--entity-name", topic)
	says([]string{"Completed updating config"}, "configs", "--alter", "--entity-type", "topics", "--entity-name", topic, "--delete-config", "max.message.bytes,cleanup.policy")
	if out := says([]string{"retention.ms=100000000"}, "configs", "--describe", "--entity-type", "topics", "--entity-name", topic); strings.Contains(out, "54321") {
		t.Errorf("a deleted setting is still there:\n%s", out)
	}
	says([]string{"log.dirs="}, "configs", "--describe", "--entity-type", "brokers", "--entity-name", "0", "--all")
	says([]string{"Completed updating config"}, "configs", "--alter", "--entity-type", "clients", "--entity-name", group, "--add-config", "producer_byte_rate=1000000")
	says([]string{"producer_byte_rate=1000000"}, "configs", "--describe", "--entity-type", "clients", "--entity-name", group)

	says([]string{group, topic}, "groups", "--describe", "--group", group)
	says([]string{group}, "groups", "--list")
	says([]string{"NEW-OFFSET"}, "groups", "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
	says([]string{"successful"}, "groups", "--delete", "--group", group)

	says([]string{"Adding ACLs"}, "acls", "--add", "--allow-principal", "User:bob", "--operation", "Read", "--topic", topic)
	says([]string{"principal=User:bob", "operation=READ"}, "acls", "--list", "--topic", topic)
	none("acls", "--remove", "--force", "--allow-principal", "User:bob", "--operation", "Read", "--topic", topic)
	if out := says(nil, "acls", "--list", "--topic", topic); strings.Contains(out, "bob") {
		t.Errorf("a removed ACL is still there:\n%s", out)
	}

	c.reassignByTool(version, topic)

	says([]string{`"brokers"`, topic + `-0`}, "log-dirs", "--describe", "--topic-list", topic)
	if version == apache.V39 {
		c.verifyReplicasByTool(version, topic) // that of 4.4 sends Fetch 18 without asking what is served
	}
	orders := c.file("orders.json", map[string]any{"version": 1, "partitions": []any{map[string]any{"topic": topic, "partition": 0, "offset": -1}}})
	says([]string{"low_watermark: "}, "delete-records", "--offset-json-file", orders)

	says([]string{"Cluster ID: "}, "cluster", "cluster-id", "--bootstrap-server", "SERVERS")
	says([]string{"AlterPartitionReassignments(45)", "Produce(0): 0 to "}, "broker-api-versions")

	says(nil, "topics", "--delete", "--topic", topic)
	c.unknown(topic)
	for _, n := range c.Brokers {
		c.gone(n.ID, topic)
	}
}

// reassignByTool moves partitions, cancels a move and moves leaders.
func (c *Cluster) reassignByTool(version, topic string) {
	t := c.t
	t.Helper()
	topics := c.file("topics.json", map[string]any{"version": 1, "topics": []any{map[string]any{"topic": topic}}})
	if out := c.mustTool(version, "reassign", "--generate", "--topics-to-move-json-file", topics, "--broker-list", "0,1"); !strings.Contains(out, "Proposed partition reassignment configuration") {
		t.Errorf("reassign --generate says:\n%s", out)
	}
	c.move(version, []int32{2, 1, 0}, map[string]int32{topic: 3})
	controller := c.controller()
	victim := (controller + 1) % 3
	c.move(version, []int32{controller, (controller + 2) % 3}, map[string]int32{topic: 3})
	list := func(want string) {
		t.Helper()
		if out := c.mustTool(version, "reassign", "--list"); !strings.Contains(out, want) {
			t.Errorf("reassign --list says:\n%s\nwanted %q", out, want)
		}
	}
	list("No partition reassignments found")
	// A move to a broker that has just died does not end, and can be called off.
	c.Brokers[victim].Kill()
	file := c.file("plan.json", plan{1, []planned{{topic, 0, []int32{controller, victim}}}})
	if out := c.mustTool(version, "reassign", "--reassignment-json-file", file, "--execute"); !strings.Contains(out, "Successfully started partition reassignment for "+topic+"-0") {
		t.Errorf("reassign --execute says:\n%s", out)
	}
	list(fmt.Sprintf("%s-0: replicas: %d,%d,%d. adding: %d. removing: %d.", topic, controller, victim, (controller+2)%3, victim, (controller+2)%3))
	// The tool would wait for the dead broker to take its throttles off.
	if out := c.mustTool(version, "reassign", "--reassignment-json-file", file, "--cancel", "--preserve-throttles"); !strings.Contains(out, "Successfully cancelled partition reassignment for: "+topic+"-0") {
		t.Errorf("reassign --cancel says:\n%s", out)
	}
	// It is over when the dead broker's session is.
	Await(t, time.Minute, "the end of the reassignment that was called off", func() error {
		if out := c.mustTool(version, "reassign", "--list"); !strings.Contains(out, "No partition reassignments found") {
			return errors.New(out)
		}
		return nil
	})
	c.Brokers[victim].Start()
	c.elect(version)
	c.AwaitWhole(topic, time.Minute)
}

// verifyReplicasByTool has Kafka's tool compare the replicas, until it has found them
// all equal once.
func (c *Cluster) verifyReplicasByTool(version, topic string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd, err := apache.Tool(ctx, version, "replica-verification", nil, "--broker-list", strings.Join(c.Bootstrap(), ","), "--topics-include", topic, "--time", "-2", "--report-interval-ms", "500")
	if err != nil {
		c.t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var said []string
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		said = append(said, lines.Text())
		if strings.Contains(lines.Text(), "max lag is 0 for partition") {
			return
		}
	}
	c.t.Errorf("replica-verification says:\n%s", strings.Join(said, "\n"))
}
