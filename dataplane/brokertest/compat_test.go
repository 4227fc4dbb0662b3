//go:build compat

package brokertest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/dataplane/brokertest/apache"
)

// Other makes' clients against the whole service, as `make compat` runs them: it
// needs bin/ built, Java 17 and Maven for Kafka's tools, and a Python (PYTHON,
// default python3) that has confluent-kafka. kcat joins in where its librdkafka
// has OIDC.

// service is what of dev.json clients need.
type service struct {
	TokenURL string `json:"token_url"`
	Cluster  struct {
		Bootstrap string `json:"bootstrap"`
		Brokers   []struct {
			LogDirs []string `json:"log_dirs"`
		} `json:"brokers"`
	} `json:"cluster"`
	Account struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
	} `json:"service_account"`

	tool, dir string
}

func startService(t *testing.T) service {
	t.Helper()
	tool, err := filepath.Abs("../../bin/penstock")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "state")
	t.Cleanup(func() {
		if out, err := exec.Command(tool, "dev", "reset", "--dir", dir).CombinedOutput(); err != nil {
			t.Errorf("reset: %v\n%s", err, out)
		}
	})
	if out, err := exec.Command(tool, "dev", "--detach", "--dir", dir).CombinedOutput(); err != nil {
		t.Fatalf("penstock dev --detach: %v\n%s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "dev.json"))
	if err != nil {
		t.Fatal(err)
	}
	s := service{tool: tool, dir: dir}
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

const events = 1707

func TestCompat(t *testing.T) {
	s := startService(t)
	t.Run("confluent-kafka", func(t *testing.T) { confluent(t, s) })
	t.Run("kcat", func(t *testing.T) { kcat(t, s) })
	t.Run("Kafka's Java client", func(t *testing.T) { java(t, s) })
	t.Run("Kafka's dump-log", func(t *testing.T) {
		// Stopped, so that no deleted topic's folder goes while it is being read.
		if out, err := exec.Command(s.tool, "dev", "stop", "--dir", s.dir).CombinedOutput(); err != nil {
			t.Fatalf("stop: %v\n%s", err, out)
		}
		dumpLog(t, s)
	})
}

const script = `
import os, sys
from confluent_kafka import Consumer, Producer
conf = {"bootstrap.servers": os.environ["BOOTSTRAP"], "security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.token.endpoint.url": os.environ["TOKEN_URL"],
        "sasl.oauthbearer.client.id": os.environ["ID"], "sasl.oauthbearer.client.secret": os.environ["SECRET"]}
def read(group, want):
    c = Consumer({**conf, "group.id": group, "auto.offset.reset": "earliest"})
    c.subscribe(["earthquakes"])
    n = 0
    while n < want:
        m = c.poll(30)
        assert m is not None, f"{n} of {want} events, then nothing"
        assert not m.error(), m.error()
        n += 1
    c.commit(asynchronous=False)
    c.close()
read("python-1", int(sys.argv[1]))
errors = []
p = Producer({**conf, "enable.idempotence": True, "compression.type": "lz4"})
for i in range(100):
    p.produce("earthquakes", key="python", value=f"python {i}", on_delivery=lambda e, m: e and errors.append(e))
assert p.flush(30) == 0
assert not errors, errors
read("python-2", int(sys.argv[1]) + 100)
`

func confluent(t *testing.T, s service) {
	python := os.Getenv("PYTHON")
	if python == "" {
		python = "python3"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, python, "-c", script, fmt.Sprint(events))
	c.Env = append(os.Environ(), "BOOTSTRAP="+s.Cluster.Bootstrap, "TOKEN_URL="+s.TokenURL, "ID="+s.Account.ID, "SECRET="+s.Account.Secret)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n(pip install confluent-kafka, or set PYTHON)", err, out)
	}
}

func kcat(t *testing.T, s service) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "kcat", "-b", s.Cluster.Bootstrap, "-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanisms=OAUTHBEARER",
		"-X", "sasl.oauthbearer.method=oidc", "-X", "sasl.oauthbearer.token.endpoint.url="+s.TokenURL,
		"-X", "sasl.oauthbearer.client.id="+s.Account.ID, "-X", "sasl.oauthbearer.client.secret="+s.Account.Secret,
		"-C", "-t", "earthquakes", "-e", "-q").CombinedOutput()
	if strings.Contains(string(out), "not supported in this build") {
		t.Skip("this kcat's librdkafka has no OIDC")
	}
	if n := strings.Count(string(out), "\n"); err != nil || n < events {
		t.Errorf("%d lines, %v\n%.500s", n, err, out)
	}
}

func java(t *testing.T, s service) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	props := filepath.Join(t.TempDir(), "client.properties")
	lines := []string{
		"security.protocol=SASL_PLAINTEXT", "sasl.mechanism=OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url=" + s.TokenURL,
		"sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
		fmt.Sprintf(`sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId="%s" clientSecret="%s";`, s.Account.ID, s.Account.Secret),
	}
	if err := os.WriteFile(props, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	allow := []string{"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=" + s.TokenURL}
	producer, err := apache.Tool(ctx, apache.V44, "console-producer", allow, "--bootstrap-server", s.Cluster.Bootstrap, "--topic", "earthquakes", "--command-config", props)
	if err != nil {
		t.Fatal(err)
	}
	producer.Stdin = strings.NewReader(strings.Repeat("java\n", 50))
	if out, err := producer.CombinedOutput(); err != nil || strings.Contains(string(out), "ERROR") {
		t.Fatalf("console-producer: %v\n%s", err, out)
	}
	consumer, err := apache.Tool(ctx, apache.V44, "console-consumer", allow, "--bootstrap-server", s.Cluster.Bootstrap, "--topic", "earthquakes",
		"--command-config", props, "--from-beginning", "--group", "java", "--max-messages", fmt.Sprint(events+50), "--timeout-ms", "60000")
	if err != nil {
		t.Fatal(err)
	}
	out, err := consumer.CombinedOutput()
	if n := strings.Count(string(out), `"id":`); err != nil || n == 0 || !strings.Contains(string(out), fmt.Sprintf("Processed a total of %d messages", events+50)) {
		t.Errorf("console-consumer: %d events, %v\n%.2000s", n, err, out[max(0, len(out)-2000):])
	}
}

// dumpLog has Kafka read every segment and index of the brokers.
func dumpLog(t *testing.T, s service) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var logs, indexes []string
	for _, b := range s.Cluster.Brokers {
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
	for _, args := range [][]string{
		{"--deep-iteration", "--files", strings.Join(logs, ",")},
		{"--index-sanity-check", "--files", strings.Join(indexes, ",")},
	} {
		c, err := apache.Tool(ctx, apache.V44, "dump-log", nil, args...)
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.CombinedOutput()
		file := ""
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, "Dumping ") {
				file = line
			}
			for _, bad := range []string{"isvalid: false", "Mismatches", "Exception", "not found", "out of order"} {
				if strings.Contains(line, bad) && !strings.HasPrefix(line, "|") {
					t.Errorf("dump-log %s: %s%s", args[0], file, line)
				}
			}
		}
		if err != nil {
			t.Errorf("dump-log %s: %v\n%.3000s", args[0], err, out)
		}
	}
}
