package nemesis

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestScheduleIsItsSeeds(t *testing.T) {
	mix := Mix{Weights: Plain, Roles: []string{"controller", "leader"}, Brokers: 3}
	a, b := Draw(7, time.Minute, mix), Draw(7, time.Minute, mix)
	if !slices.Equal(a, b) {
		t.Error("one seed, two schedules")
	}
	if slices.Equal(a, Draw(8, time.Minute, mix)) {
		t.Error("two seeds, one schedule")
	}
	if last := a[len(a)-1]; last.Fault != Rest {
		t.Errorf("it ends with %v", last)
	}
	var file strings.Builder
	h := NewJournal(&file)
	for _, s := range a {
		h.Note("schedule", s)
		h.Note("step", s)
	}
	got, err := ReadSchedule(strings.NewReader(file.String()))
	if err != nil || !slices.Equal(got, a) {
		t.Errorf("read back: %v, %v", got, err)
	}
	mix.Without = []Fault{Kill}
	without := Draw(7, time.Minute, mix)
	if slices.ContainsFunc(without, func(s Step) bool { return s.Fault == Kill }) {
		t.Error("a fault that is left out is in it")
	}
}
