//go:build compat

package devtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/controlplane/client"
	"penstock/controlplane/dev"
	"penstock/controlplane/dev/data"
	"penstock/dataplane/brokertest/apache"
)

// TestCompat lets other makes' clients do what the demonstration does: produce
// the real events keyed by network, and read them back in a group with committed
// offsets, byte for byte and in order within each key. `make compat` runs it; it
// needs kcat, Java 17 and Maven, and PYTHON, a Python that has confluent-kafka.
func TestCompat(t *testing.T) {
	f := service(t)
	in := f.info(t)
	api := tenant(t, in)
	t.Run("confluent-kafka", func(t *testing.T) {
		c := newCase(t, in, api, "confluent")
		out := c.tool(t, exec.CommandContext(c.ctx, python(), "-c", script, c.topic), c.env()...)
		c.check(t, out)
	})
	t.Run("kcat", func(t *testing.T) {
		c := newCase(t, in, api, "kcat")
		c.kcat(t, append([]string{"-b", in.Cluster.Bootstrap}, c.oidc()...), "LD_PRELOAD="+librdkafka(t))
	})
	t.Run("Kafka's Java client", func(t *testing.T) { newCase(t, in, api, "java").java(t) })
	t.Run("Kafka's dump-log", func(t *testing.T) {
		// Stopped, so that no segment is being written while it is read.
		f.must(t, "stop")
		dumpLog(t, in)
	})
	t.Run("kcat as Debian has it", func(t *testing.T) {
		f := newFolder("bare")
		defer f.must(t, "reset")
		f.must(t, "--bare", "--brokers", "3", "--detach")
		c := &compat{ctx: t.Context(), topic: "kcat", bootstrap: f.info(t).Cluster.Bootstrap}
		c.kcat(t, []string{"-b", c.bootstrap})
	})
}

// compat is one client's own topic and account.
type compat struct {
	ctx              context.Context
	acc              account // zero without authentication
	topic, bootstrap string
}

func newCase(t *testing.T, in *dev.Info, api *client.Client, name string) *compat {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	topic := fmt.Sprintf("compat-%s-%d", name, time.Now().Unix()%1e6)
	newTopic(t, api, in.Cluster.ID, topic, 6)
	return &compat{ctx: ctx, acc: newAccount(t, in, api, in.Cluster.ID, topic), topic: topic, bootstrap: in.Cluster.Bootstrap}
}

func python() string {
	if p := os.Getenv("PYTHON"); p != "" {
		return p
	}
	return "python3"
}

// librdkafka is the library inside confluent-kafka. Debian builds its own
// without libcurl and so without OIDC; a kcat that is given this one has it.
func librdkafka(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), python(), "-c",
		"import confluent_kafka, os; print(os.path.dirname(os.path.dirname(confluent_kafka.__file__)))").Output()
	if err != nil {
		t.Fatalf("confluent-kafka: %v (pip install confluent-kafka, or set PYTHON)", err)
	}
	found, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "confluent_kafka.libs", "librdkafka-*.so*"))
	if len(found) == 0 {
		t.Fatal("confluent-kafka has no librdkafka of its own")
	}
	return found[0]
}

func (c *compat) env() []string {
	return []string{"BOOTSTRAP=" + c.bootstrap, "TOKEN_URL=" + c.acc.url, "ID=" + c.acc.id, "SECRET=" + c.acc.secret}
}

func (c *compat) oidc() (args []string) {
	for _, kv := range []string{"security.protocol=SASL_PLAINTEXT", "sasl.mechanisms=OAUTHBEARER", "sasl.oauthbearer.method=oidc",
		"sasl.oauthbearer.token.endpoint.url=" + c.acc.url, "sasl.oauthbearer.client.id=" + c.acc.id, "sasl.oauthbearer.client.secret=" + c.acc.secret} {
		args = append(args, "-X", kv)
	}
	return args
}

// lines are the events, each as its key, a tab and the event.
func lines(t *testing.T) []byte {
	t.Helper()
	all, err := data.Earthquakes()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, e := range all {
		fmt.Fprintf(&b, "%s\t%s\n", e.Network, e.Line)
	}
	return b.Bytes()
}

// tool runs a client with the events as its input and gives its output.
func (c *compat) tool(t *testing.T, cmd *exec.Cmd, env ...string) string {
	t.Helper()
	var errs bytes.Buffer
	cmd.Stdin, cmd.Stderr, cmd.Env = bytes.NewReader(lines(t)), &errs, append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil || strings.Contains(errs.String(), "ERROR") {
		t.Fatalf("%v: %v\n%.2000s\n%.2000s", cmd.Args, err, errs.String(), out)
	}
	return string(out)
}

// check compares what came back with what was sent, and the group's committed
// offsets with the ends of the partitions.
func (c *compat) check(t *testing.T, out string) {
	t.Helper()
	want := map[string][]string{}
	n := 0
	for line := range strings.Lines(string(lines(t))) {
		k, _, _ := strings.Cut(line, "\t")
		want[k] = append(want[k], line)
		n++
	}
	got := 0
	for line := range strings.Lines(out) {
		k, _, _ := strings.Cut(line, "\t")
		if len(want[k]) == 0 || want[k][0] != line {
			t.Fatalf("event %d: got %q, want one of key %q: %q", got, line, k, append(want[k], "")[0])
		}
		want[k] = want[k][1:]
		got++
	}
	if got != n {
		t.Fatalf("%d events came back, want %d", got, n)
	}
	var cl *kgo.Client
	if c.acc.id != "" {
		cl = kafka(t, c.bootstrap, c.acc.token(t))
	} else {
		var err error
		if cl, err = kgo.NewClient(kgo.SeedBrokers(strings.Split(c.bootstrap, ",")...)); err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
	}
	adm := kadm.NewClient(cl)
	ends, err := adm.ListEndOffsets(c.ctx, c.topic)
	if err != nil {
		t.Fatal(err)
	}
	committed, err := adm.FetchOffsets(c.ctx, c.topic)
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	ends.Each(func(o kadm.ListedOffset) {
		sum += o.Offset
		if at, ok := committed.Lookup(c.topic, o.Partition); o.Offset > 0 && (!ok || at.At != o.Offset) {
			t.Errorf("partition %d: committed %d, its end is %d", o.Partition, at.At, o.Offset)
		}
	})
	t.Logf("%d events, byte for byte, in order within %d keys; %d offsets committed", got, len(want), sum)
}

// kcat produces and reads with kcat; where says which brokers, and how to log in.
func (c *compat) kcat(t *testing.T, where []string, env ...string) {
	t.Helper()
	c.tool(t, exec.CommandContext(c.ctx, "kcat", append(where, "-P", "-t", c.topic, "-K", "\t", "-z", "lz4",
		"-X", "acks=all", "-X", "enable.idempotence=true")...), env...)
	out := c.tool(t, exec.CommandContext(c.ctx, "kcat", append(where, "-q", "-e", "-f", "%k\t%s\n", "-X", "auto.offset.reset=earliest",
		"-G", c.topic, c.topic)...), env...)
	c.check(t, out)
}

// script produces what comes in and prints what comes back.
const script = `
import os, sys
from confluent_kafka import Consumer, Producer
topic = sys.argv[1]
conf = {"bootstrap.servers": os.environ["BOOTSTRAP"], "security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.token.endpoint.url": os.environ["TOKEN_URL"],
        "sasl.oauthbearer.client.id": os.environ["ID"], "sasl.oauthbearer.client.secret": os.environ["SECRET"]}
errors, sent = [], 0
p = Producer({**conf, "enable.idempotence": True, "compression.type": "zstd"})
for line in sys.stdin.buffer:
    key, value = line.rstrip(b"\n").split(b"\t", 1)
    p.produce(topic, key=key, value=value, on_delivery=lambda e, m: e and errors.append(e))
    sent += 1
assert p.flush(60) == 0
assert not errors, errors
c = Consumer({**conf, "group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False})
c.subscribe([topic])
for n in range(sent):
    m = c.poll(30)
    assert m is not None, f"{n} of {sent} events, then nothing"
    assert not m.error(), m.error()
    sys.stdout.buffer.write(m.key() + b"\t" + m.value() + b"\n")
c.commit(asynchronous=False)
c.close()
`

func (c *compat) java(t *testing.T) {
	props := filepath.Join(t.TempDir(), "client.properties")
	settings := []string{
		"security.protocol=SASL_PLAINTEXT", "sasl.mechanism=OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url=" + c.acc.url,
		"sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
		fmt.Sprintf(`sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId="%s" clientSecret="%s";`, c.acc.id, c.acc.secret),
	}
	if err := os.WriteFile(props, []byte(strings.Join(settings, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	java := func(name string, args ...string) string {
		t.Helper()
		cmd, err := apache.Tool(c.ctx, apache.V44, name, []string{"-Dfile.encoding=UTF-8", "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=" + c.acc.url},
			append([]string{"--bootstrap-server", c.bootstrap, "--topic", c.topic, "--command-config", props}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return c.tool(t, cmd)
	}
	java("console-producer", "--reader-property", "parse.key=true", "--reader-property", "key.separator=\t", "--command-property", "acks=all",
		"--compression-codec", "snappy")
	out := java("console-consumer", "--group", c.topic, "--from-beginning", "--max-messages", fmt.Sprint(bytes.Count(lines(t), []byte("\n"))),
		"--timeout-ms", "60000", "--formatter-property", "print.key=true", "--formatter-property", "key.separator=\t")
	c.check(t, out)
}

// dumpLog has Kafka read every segment and every index of the brokers.
func dumpLog(t *testing.T, in *dev.Info) {
	var logs, indexes []string
	for _, b := range in.Cluster.Brokers {
		for _, dir := range b.LogDirs {
			l, _ := filepath.Glob(filepath.Join(dir, "*", "*.log"))
			logs = append(logs, l...)
			for _, ext := range []string{"index", "timeindex"} {
				i, _ := filepath.Glob(filepath.Join(dir, "*", "*."+ext))
				indexes = append(indexes, i...)
			}
		}
	}
	if len(logs) == 0 || len(indexes) == 0 {
		t.Fatal("no segments")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for _, args := range [][]string{
		{"--deep-iteration", "--files", strings.Join(logs, ",")},
		{"--index-sanity-check", "--files", strings.Join(indexes, ",")},
	} {
		cmd, err := apache.Tool(ctx, apache.V44, "dump-log", nil, args...)
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("dump-log %s: %v\n%.3000s", args[0], err, out)
		}
		file, dumped, batches := "", 0, 0
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, "Dumping ") {
				file = line
				dumped++
			}
			if strings.HasPrefix(line, "baseOffset:") {
				batches++
			}
			for _, bad := range []string{"isvalid: false", "Mismatches", "Exception", "not found", "out of order"} {
				if strings.Contains(line, bad) && !strings.HasPrefix(line, "|") {
					t.Errorf("dump-log %s: %s%s", args[0], file, line)
				}
			}
		}
		if dumped != len(strings.Split(args[2], ",")) {
			t.Errorf("dump-log %s has read %d files of %d", args[0], dumped, len(strings.Split(args[2], ",")))
		}
		t.Logf("dump-log %s: %d files, %d batches", args[0], dumped, batches)
	}
}
