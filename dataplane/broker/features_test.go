package broker

import (
	"errors"
	"log/slog"
	"testing"

	"penstock/dataplane/coordination"
	"penstock/dataplane/protocol"
)

func TestFeaturesInForceNeverGoBack(t *testing.T) {
	ours := coordination.Abilities{}
	for _, f := range protocol.Features() {
		ours[f.Name] = coordination.FeatureRange{Min: f.Min, Max: f.Max}
	}
	live := []coordination.Broker{{ID: 1, Features: ours}}
	away := func(of map[int32]coordination.Abilities) coordination.FeatureRecords {
		return coordination.FeatureRecords{Of: of}
	}
	b := &Broker{log: slog.New(slog.DiscardHandler)}
	for _, c := range []struct {
		what  string
		known coordination.KnownBrokers
		epoch int64
		level int16
	}{
		{"alone", coordination.KnownBrokers{Live: live, Version: 5}, 5, 2},
		{"one of ours away", coordination.KnownBrokers{Live: live, Records: away(map[int32]coordination.Abilities{1: nil, 2: ours}), Version: 6}, 6, 2},
		{"another away", coordination.KnownBrokers{Live: live, Records: away(map[int32]coordination.Abilities{1: ours, 2: nil}), Version: 8}, 8, 0},
		{"what was before that", coordination.KnownBrokers{Live: live, Version: 7}, 8, 0},
		{"it has gone for good", coordination.KnownBrokers{Live: live, Version: 9}, 9, 2},
		{"records that make no sense", coordination.KnownBrokers{Live: live, Records: coordination.FeatureRecords{Bad: errors.New("bad")}, Version: 10}, 10, 0},
	} {
		b.putInForce(c.known)
		if f := b.features.read(); f.Epoch != c.epoch || f.Levels[protocol.FeatureTransactionVersion] != c.level {
			t.Errorf("%s: %+v, wanted level %d of epoch %d", c.what, f, c.level, c.epoch)
		}
	}
	if f := b.finalized(); f.Epoch != -1 || len(f.Levels) != 0 {
		t.Errorf("clients are told %+v before the controller has said anything", f)
	}
}
