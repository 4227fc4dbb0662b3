//go:build compat

package brokertest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/dataplane/brokertest/apache"
)

// javaTeam are Java's consumers (Kafka's verifiable tool) of one group.
type javaTeam struct {
	t     *testing.T
	c     *Cluster
	ended sync.WaitGroup
	*teamOf
}

func (j *javaTeam) join(member int, args ...string) *exec.Cmd {
	j.t.Helper()
	j.mu.Lock()
	j.owns[member] = map[int32]bool{}
	j.mu.Unlock()
	args = append([]string{"--bootstrap-server", strings.Join(j.c.Bootstrap(), ","), "--topic", "work", "--group-id", "java", "--reset-policy", "earliest", "--verbose"}, args...)
	cmd, err := apache.Tool(context.Background(), apache.V44, "verifiable-consumer", []string{"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"}, args...)
	if err != nil {
		j.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		j.t.Fatal(err)
	}
	said := &strings.Builder{}
	cmd.Stderr = said
	cmd.SysProcAttr = nil // the death signal goes by a thread that may end earlier
	if err := cmd.Start(); err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(func() { _ = cmd.Process.Kill(); j.ended.Wait() })
	j.ended.Go(func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var e struct {
				Name, Value string
				Partitions  []struct{ Partition int32 }
			}
			if json.Unmarshal(lines.Bytes(), &e) != nil {
				continue
			}
			var parts []int32
			for _, p := range e.Partitions {
				parts = append(parts, p.Partition)
			}
			switch e.Name {
			case "partitions_assigned":
				j.assigned(member, parts)
			case "partitions_revoked":
				j.gone(member, parts)
			case "record_data":
				j.mu.Lock()
				j.got[e.Value]++
				j.mu.Unlock()
			}
		}
		_ = cmd.Wait()
		if said.Len() > 0 {
			j.t.Logf("member %d says:\n%.1500s", member, said)
		}
	})
	return cmd
}

// TestJavaConsumersOfTheNextProtocol lets three of Java's consumers with
// group.protocol=consumer share a topic; one is killed, then the coordinator. After that
// the group goes over to the classic protocol member by member, and back.
func TestJavaConsumersOfTheNextProtocol(t *testing.T) {
	c := Start(t, Options{Brokers: 3, Settings: []string{"zookeeper.session.timeout.ms=2000", "group.initial.rebalance.delay.ms=0",
		"group.consumer.heartbeat.interval.ms=500", "group.consumer.min.heartbeat.interval.ms=500",
		"group.consumer.session.timeout.ms=8000", "group.consumer.min.session.timeout.ms=8000"}})
	c.CreateTopic("work", 6, 3)
	j := &javaTeam{t: t, c: c, teamOf: &teamOf{owns: map[int]map[int32]bool{}, got: map[string]int{}}}
	shared := func(want ...int) {
		t.Helper()
		Await(t, 90*time.Second, fmt.Sprint("partitions shared out as ", want), func() error {
			if n := j.counts(); !slices.Equal(n, want) {
				return fmt.Errorf("%v", n)
			}
			return nil
		})
	}
	produce, sent := c.Client(kgo.DefaultProduceTopic("work")), 0
	work := func() {
		t.Helper()
		for range 60 {
			sent++
			r := &kgo.Record{Key: fmt.Append(nil, sent), Value: fmt.Append(nil, sent)}
			if err := produce.ProduceSync(context.Background(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		Await(t, time.Minute, fmt.Sprint(sent, " records read"), func() error {
			if n := j.read(); n != sent {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
	}
	next := []string{"--group-protocol", "CONSUMER"}
	classic := []string{"--group-protocol", "CLASSIC", "--assignment-strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "--session-timeout", "8000"}
	one, two, three := j.join(1, next...), j.join(2, next...), j.join(3, next...)
	shared(2, 2, 2)
	work()
	_ = one.Process.Kill()
	j.mu.Lock()
	delete(j.owns, 1)
	j.mu.Unlock()
	shared(3, 3)
	work()

	var coordinator *Node
	w := (&target{addr: c.Brokers[1].Addr}).dial(t)
	Await(t, 30*time.Second, "the coordinator", func() error {
		id, err := findCoordinator(w, "java")
		coordinator = c.Brokers[id]
		return err
	})
	coordinator.Kill()
	work()
	shared(3, 3)
	coordinator.Start()
	c.AwaitWhole("__consumer_offsets", time.Minute)
	work()

	kind := func(want string) {
		t.Helper()
		Await(t, time.Minute, "a group of the kind "+want, func() error {
			id, err := findCoordinator((&target{addr: c.Brokers[2].Addr}).dial(t), "java")
			if err != nil {
				return err
			}
			d := describeConsumers((&target{addr: c.Brokers[id].Addr}).dial(t), "java")
			if got := map[bool]string{true: "consumer", false: "classic"}[d.ErrorCode == 0]; got != want {
				return fmt.Errorf("%s", got)
			}
			return nil
		})
	}
	kind("consumer")
	four := j.join(4, classic...) // down, member by member
	shared(2, 2, 2)
	kind("consumer")
	_ = two.Process.Signal(syscall.SIGTERM)
	shared(3, 3)
	_ = three.Process.Signal(syscall.SIGTERM)
	shared(6)
	kind("classic")
	work()
	j.join(5, next...) // and up
	shared(3, 3)
	kind("consumer")
	work()
	_ = four.Process.Signal(syscall.SIGTERM)
	shared(6)
	kind("consumer")
	work()
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.two) > 0 {
		t.Errorf("%v", j.two)
	}
}
