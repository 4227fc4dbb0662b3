package nemesis

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Anomaly is one thing that must not be.
type Anomaly struct {
	At        time.Duration `json:"at"`
	Kind      string        `json:"anomaly"`
	Topic     string        `json:"topic,omitempty"`
	Partition int32         `json:"partition"`
	Detail    string        `json:"detail"`
}

func (a Anomaly) String() string {
	return fmt.Sprintf("%8.3fs %-14s %s-%d: %s", a.At.Seconds(), a.Kind, a.Topic, a.Partition, a.Detail)
}

// Journal is a run's diary: a line of JSON for each thing noted, and the
// anomalies. Its methods may be called by any goroutine.
type Journal struct {
	start time.Duration // Monotonic

	mu        sync.Mutex
	out       *json.Encoder
	anomalies []Anomaly
}

// NewJournal begins now.
func NewJournal(out io.Writer) *Journal {
	return &Journal{start: Monotonic(), out: json.NewEncoder(out)}
}

// Monotonic is the machine's clock that never jumps: one and the same in all its
// processes.
func Monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // Linux has it
	}
	return time.Duration(ts.Nano())
}

// Now is how long the journal has been kept.
func (j *Journal) Now() time.Duration { return Monotonic() - j.start }

// At tells the time of a Monotonic reading, another process's for one.
func (j *Journal) At(monotonic time.Duration) time.Duration { return monotonic - j.start }

// Note writes a line.
func (j *Journal) Note(what string, v any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.note(what, v)
}

func (j *Journal) note(what string, v any) {
	_ = j.out.Encode(map[string]any{"at": j.Now().Seconds(), what: v})
}

// Anomaly notes one. The partition is -1 where none is meant.
func (j *Journal) Anomaly(kind, topic string, p int32, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	a := Anomaly{At: j.Now(), Kind: kind, Topic: topic, Partition: p, Detail: fmt.Sprintf(format, args...)}
	j.anomalies = append(j.anomalies, a)
	j.note("anomaly", a)
}

// Anomalies are all that were noted up to now.
func (j *Journal) Anomalies() []Anomaly {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.anomalies)
}

// Summary is for people: the first anomalies of each kind, and how many there are.
func Summary(anomalies []Anomaly) string {
	if len(anomalies) == 0 {
		return "no anomaly\n"
	}
	var b strings.Builder
	kinds := map[string]int{}
	for _, a := range anomalies {
		kinds[a.Kind]++
		if kinds[a.Kind] <= 8 {
			fmt.Fprintf(&b, "%s\n", a)
		}
	}
	fmt.Fprintf(&b, "%d anomalies: %v\n", len(anomalies), kinds)
	return b.String()
}
