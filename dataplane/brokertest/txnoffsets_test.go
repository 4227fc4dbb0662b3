package brokertest

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// What transactions have pending, have committed and have aborted is known to the
// coordinator that loads the partition after a kill.
func TestOffsetsOfTransactionsSurviveAKill(t *testing.T) {
	c := Start(t, Options{})
	n := c.Brokers[0]
	b := &target{addr: n.Addr, run: "kill"}
	topic := b.topic(t, 3)
	group := b.name("group")
	w := b.coordinator(t, group)
	wantCode(t, "commit outside", commit(w, commitOf(7, group, "", -1, topic.name, map[int32]int64{0: 1, 1: 1, 2: 1})), nil)
	committed, aborted, open := b.offsetsProducer(t, "committed"), b.offsetsProducer(t, "aborted"), b.offsetsProducer(t, "open")
	for partition, p := range []*offsetsProducer{committed, aborted, open} {
		p.addGroup(group)
		wantCode(t, "commit", p.commit(p.commitOf(3, group, topic.name, int32(partition), 5)), nil)
	}
	committed.end(3, true)
	aborted.end(3, false)
	awaitFetched(w, group, topic.name, 0, "5/0")
	awaitFetched(w, group, topic.name, 1, "1/0")

	restart := func() {
		t.Helper()
		n.Kill()
		n.Start()
		n.AwaitServing()
		w = b.coordinator(t, group)
	}
	restart()
	for partition, want := range []string{"5/0", "1/0", unstable} {
		if got := fetched(w, group, topic.name, int32(partition), true); got != want {
			t.Errorf("partition %d: %s after the kill, want %s", partition, got, want)
		}
	}
	if got := fetched(w, group, topic.name, 2, false); got != "1/0" {
		t.Errorf("%s for who takes what may change", got)
	}
	open.w = b.dial(t)
	open.end(3, true)
	awaitFetched(w, group, topic.name, 2, "5/0")
	wantCode(t, "delete", deleteGroups(w, group)[group], nil)
	restart()
	if got := fetched(w, group, topic.name, 2, true); got != "-1/0" {
		t.Errorf("%s of a deleted group", got)
	}
	wantCode(t, "delete again", deleteGroups(w, group)[group], kerr.GroupIDNotFound)
}
