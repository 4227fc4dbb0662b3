package replication

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/partition"
	"penstock/dataplane/protocol"
)

func part(topic string, n int32, id byte, offset int64) *copying {
	return &copying{
		tp: protocol.TopicPartition{Topic: topic, Partition: n}, topicID: protocol.UUID{id},
		target: partition.FetchTarget{LeaderEpoch: 1}, asked: partition.FetchState{Offset: offset, LastEpoch: 1},
	}
}

func named(req *kmsg.FetchRequest) (asked, forgotten []string) {
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			asked = append(asked, protocol.TopicPartition{Topic: t.Topic, Partition: p.Partition}.String())
		}
	}
	for _, t := range req.ForgottenTopics {
		for _, p := range t.Partitions {
			forgotten = append(forgotten, protocol.TopicPartition{Topic: t.Topic, Partition: p}.String())
		}
	}
	return asked, forgotten
}

func TestIncrementalFetchNamesOnlyWhatChanged(t *testing.T) {
	cfg := Config{BrokerID: 3}.withDefaults()
	s := session{newest: fetchWithEpoch}
	a, b, c := part("a", 0, 1, 5), part("a", 1, 1, 6), part("b", 0, 2, 7)
	step := func(batch []*copying, wantEpoch int32, want, wantForgotten []string, answerID int32) {
		t.Helper()
		req := s.request(batch, &cfg)
		asked, forgotten := named(req)
		if req.SessionEpoch != wantEpoch || !slices.Equal(asked, want) || !slices.Equal(forgotten, wantForgotten) {
			t.Fatalf("session %d epoch %d asks %v and forgets %v; want epoch %d, %v, %v", req.SessionID, req.SessionEpoch, asked, forgotten, wantEpoch, want, wantForgotten)
		}
		s.answered(answerID)
	}
	step([]*copying{a, b, c}, 0, []string{"a-0", "a-1", "b-0"}, nil, 77)
	step([]*copying{a, b, c}, 1, nil, nil, 77)
	b.asked.Offset = 8
	step([]*copying{a, b, c}, 2, []string{"a-1"}, nil, 77)
	step([]*copying{a, c}, 3, nil, []string{"a-1"}, 77)
	step([]*copying{a, b, c}, 4, []string{"a-1"}, nil, 77)
	if got := s.find(protocol.UUID{2}, "", 0); got != c {
		t.Errorf("found %v", got)
	}
	if got := s.find(protocol.UUID{9}, "", 0); got != nil {
		t.Errorf("found %v for a topic that was not asked for", got)
	}
	// A topic made anew under its old name.
	d := part("b", 0, 3, 0)
	step([]*copying{a, b, d}, 5, []string{"b-0"}, []string{"b-0"}, 77)
	s.reset()
	step([]*copying{a}, 0, []string{"a-0"}, nil, 0)
	step([]*copying{a}, 0, []string{"a-0"}, nil, 0) // the leader keeps no session
}

func TestFetchGoesByNameIfAnIDIsMissing(t *testing.T) {
	cfg := Config{}.withDefaults()
	s := session{newest: fetchWithEpoch}
	a, b := part("a", 0, 1, 0), part("old", 0, 0, 0)
	if req := s.request([]*copying{a}, &cfg); req.Version != 15 {
		t.Errorf("version %d", req.Version)
	}
	s.answered(5)
	req := s.request([]*copying{a, b}, &cfg)
	if asked, _ := named(req); req.Version != 12 || req.SessionEpoch != 0 || len(asked) != 2 {
		t.Errorf("version %d, epoch %d, asks %v: names need a session of their own", req.Version, req.SessionEpoch, asked)
	}
	if s.find(protocol.UUID{}, "old", 0) != b {
		t.Error("entry by name not found")
	}
}

func TestFollowerTellsItsLifeWhereTheLeaderCanHearOfIt(t *testing.T) {
	cfg := Config{BrokerID: 3, BrokerEpoch: func() int64 { return 71 }}.withDefaults()
	for newest, want := range map[int16]string{12: "3 -1 -1", 13: "3 -1 -1", 14: "3 -1 -1", 15: "-1 3 71"} {
		s := session{newest: newest}
		req := s.request([]*copying{part("a", 0, 1, 0)}, &cfg)
		got := kmsg.NewPtrFetchRequest()
		got.SetVersion(req.Version)
		if err := got.ReadFrom(req.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		if r := fmt.Sprint(got.ReplicaID, got.ReplicaState.ID, got.ReplicaState.Epoch); req.Version != newest || r != want {
			t.Errorf("to a leader with version %d goes version %d with %s, want %s", newest, req.Version, r, want)
		}
	}
}
