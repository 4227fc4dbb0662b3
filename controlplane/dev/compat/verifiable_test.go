package compat

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"penstock/dataplane/brokertest/apache"
)

const verifiableRecords = 20000

// verifiable lets two of Kafka's verifiable-consumers read what its verifiable-producer writes; one consumer ends on the way. Both tools print what they do, a JSON
// object a line.
func verifiable(protocol string) func(*rig) error {
	return func(r *rig) error {
		v := &verifying{r: r, acked: map[int]bool{}, read: map[int]int{}, next: map[int]int64{}}
		if _, err := apache.Get(r.ctx, apache.V44); err != nil {
			return err
		}
		topics, err := apache.Tool(r.ctx, apache.V44, "topics", nil, "--bootstrap-server", r.bootstrap, "--create", "--topic", r.name,
			"--partitions", "6", "--replication-factor", "3")
		if err != nil {
			return err
		}
		if out, err := topics.CombinedOutput(); err != nil {
			return fmt.Errorf("topics: %w\n%s", err, out)
		}
		consumer := func() (*tool, error) {
			return v.start("verifiable-consumer", "--bootstrap-server", r.bootstrap, "--topic", r.name, "--group-id", r.name, "--reset-policy", "earliest",
				"--group-protocol", protocol, "--verbose")
		}
		one, err := consumer()
		if err != nil {
			return err
		}
		defer one.kill()
		two, err := consumer()
		if err != nil {
			return err
		}
		defer two.kill()
		if err := v.await("both consumers have partitions", func() bool { return one.assigned && two.assigned }); err != nil {
			return err
		}
		producer, err := v.start("verifiable-producer", "--bootstrap-server", r.bootstrap, "--topic", r.name, "--max-messages", strconv.Itoa(verifiableRecords),
			"--throughput", "1000", "--acks", "-1")
		if err != nil {
			return err
		}
		defer producer.kill()
		for _, step := range []struct {
			what string
			cond func() bool
		}{
			{"both consumers read", func() bool { return one.read > 500 && two.read > 500 }},
			{"one ends in order", func() bool { one.stop(); return one.ended() }},
			{"the producer ends", producer.ended},
			{"all is read", func() bool { return len(v.read) >= len(v.acked) && len(v.acked) > 0 }},
			{"the other ends in order", func() bool { two.stop(); return two.ended() }},
		} {
			if err := v.await(step.what, step.cond); err != nil {
				return err
			}
		}
		return v.verdict()
	}
}

type verifying struct {
	r  *rig
	mu sync.Mutex
	// By value: what the producer was acknowledged, and how often each was read.
	acked map[int]bool
	read  map[int]int
	next  map[int]int64 // by partition: the offset that must be read next
	wrong error
}

type tool struct {
	cmd      *exec.Cmd
	done     chan struct{}
	err      error
	read     int
	assigned bool
	stopped  bool
}

func (v *verifying) start(name string, args ...string) (*tool, error) {
	cmd, err := apache.Tool(context.WithoutCancel(v.r.ctx), apache.V44, name, []string{"-Xmx256m"}, args...)
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = nil // the death signal would come with the thread; kill ends it
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = v.r.log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t := &tool{cmd: cmd, done: make(chan struct{})}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			v.line(t, lines.Bytes())
		}
		t.err = cmd.Wait()
		close(t.done)
	}()
	return t, nil
}

// event is a line of either tool, the fields that matter.
type event struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Partition int    `json:"partition"`
	Offset    int64  `json:"offset"`
	Message   string `json:"message"`

	Partitions []struct{} `json:"partitions"`
}

func (v *verifying) line(t *tool, b []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintf(v.r.log, "%s\n", b)
	var e event
	if err := json.Unmarshal(b, &e); err != nil {
		return // not all that Java prints is an event
	}
	switch e.Name {
	case "producer_send_success", "record_data":
		n, err := strconv.Atoi(e.Value)
		if err != nil {
			v.fail(fmt.Errorf("value %q: %w", e.Value, err))
		} else if e.Name == "producer_send_success" {
			v.acked[n] = true
		} else {
			t.read++
			if v.read[n]++; v.read[n] > 1 {
				v.fail(fmt.Errorf("record %d was read %d times", n, v.read[n]))
			}
			if e.Offset != v.next[e.Partition] {
				v.fail(fmt.Errorf("partition %d: read offset %d, want %d", e.Partition, e.Offset, v.next[e.Partition]))
			}
			v.next[e.Partition] = e.Offset + 1
		}
	case "partitions_assigned":
		t.assigned = t.assigned || len(e.Partitions) > 0 // later ones may say what has come only, which may be nothing
	case "producer_send_error":
		v.fail(fmt.Errorf("producer: %s", e.Message))
	}
}

func (v *verifying) fail(err error) {
	if v.wrong == nil {
		v.wrong = err
	}
}

func (v *verifying) await(what string, cond func() bool) error {
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		v.mu.Lock()
		ok, err := cond(), v.wrong
		v.mu.Unlock()
		if err != nil || ok {
			return err
		}
		if time.Since(began) > 4*time.Minute {
			return fmt.Errorf("not within four minutes: %s", what)
		}
	}
}

func (v *verifying) verdict() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.acked) != verifiableRecords || len(v.read) != verifiableRecords {
		return fmt.Errorf("%d records acknowledged, %d read, want %d", len(v.acked), len(v.read), verifiableRecords)
	}
	v.r.said = fmt.Sprintf("%d records, each once and in order of its partition", verifiableRecords)
	return nil
}

// stop asks the tool once to end.
func (t *tool) stop() {
	if !t.stopped {
		t.stopped = true
		_ = t.cmd.Process.Signal(syscall.SIGTERM)
	}
}

func (t *tool) ended() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

func (t *tool) kill() {
	_ = t.cmd.Process.Kill()
	<-t.done
}
