//go:build compat

package brokertest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"penstock/dataplane/brokertest/apache"
)

// tool runs one of Kafka's tools against the cluster and returns what it printed.
// SERVERS among the arguments is replaced by the brokers' addresses; without it
// --bootstrap-server is put before them.
func (c *Cluster) tool(version, name string, args ...string) (string, error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	var up []string
	for _, n := range c.Brokers {
		if n.cmd != nil && !n.ended() {
			up = append(up, n.Addr)
		}
	}
	if i := slices.IndexFunc(args, func(a string) bool { return strings.Contains(a, "SERVERS") }); i >= 0 {
		args = slices.Clone(args)
		args[i] = strings.Replace(args[i], "SERVERS", strings.Join(up, ","), 1)
	} else {
		args = append([]string{"--bootstrap-server", strings.Join(up, ",")}, args...)
	}
	cmd, err := apache.Tool(ctx, version, name, []string{"-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"}, args...)
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// mustTool is tool where an error ends the test.
func (c *Cluster) mustTool(version, name string, args ...string) string {
	c.t.Helper()
	out, err := c.tool(version, name, args...)
	if err != nil {
		c.t.Fatalf("%s of %s %q: %v\n%s", name, version, args, err, out)
	}
	return out
}

// file puts what Kafka's tools read from files into one.
func (c *Cluster) file(name string, content any) string {
	c.t.Helper()
	b, err := json.Marshal(content)
	if err != nil {
		c.t.Fatal(err)
	}
	path := filepath.Join(c.Dir, name)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		c.t.Fatal(err)
	}
	return path
}

type (
	planned struct {
		Topic     string  `json:"topic"`
		Partition int32   `json:"partition"`
		Replicas  []int32 `json:"replicas"`
	}
	plan struct {
		Version    int       `json:"version"`
		Partitions []planned `json:"partitions"`
	}
)

// move has Kafka's tool move every partition of the topics to these brokers, the
// leaders in turn, and verifies until it is done.
func (c *Cluster) move(version string, to []int32, topics map[string]int32) {
	c.t.Helper()
	p := plan{Version: 1}
	for topic, partitions := range topics {
		for i := range partitions {
			at := int(i) % len(to)
			p.Partitions = append(p.Partitions, planned{topic, i, slices.Concat(to[at:], to[:at])})
		}
	}
	file := c.file("plan.json", p)
	if out := c.mustTool(version, "reassign", "--reassignment-json-file", file, "--execute"); !strings.Contains(out, "Successfully started partition reassignment") {
		c.t.Fatalf("reassign --execute says:\n%s", out)
	}
	Await(c.t, 3*time.Minute, "the move", func() error {
		out, err := c.tool(version, "reassign", "--reassignment-json-file", file, "--verify")
		if done := strings.Count(out, "is completed") + strings.Count(out, "is complete."); err != nil || done != len(p.Partitions) {
			return fmt.Errorf("%d of %d are done: %v\n%s", done, len(p.Partitions), err, out)
		}
		return nil
	})
	want := map[string][][]int32{}
	for _, one := range p.Partitions {
		want[one.Topic] = append(want[one.Topic], one.Replicas)
	}
	// The tool does not wait for the leaders to move to the first replica.
	c.elect(version)
	for topic, replicas := range want {
		c.awaitShape(topic, replicas)
	}
}

// elect lets the preferred replicas lead.
func (c *Cluster) elect(version string) {
	c.t.Helper()
	if out, err := c.tool(version, "leader-election", "--election-type", "preferred", "--all-topic-partitions"); err != nil {
		c.t.Fatalf("leader-election: %v\n%s", err, out)
	}
}
