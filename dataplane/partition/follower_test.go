package partition

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/recordbatch"
)

func TestFollowerTakesRecordsWatermarkAndStart(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.follow(tpA, 2, 4)
		p := r.m.Partition(tpA)
		n, err := p.AppendFollower(4, 0, slices.Concat(batchAt(0, 3, 2, "v"), batchAt(2, 4, 2, "v")), 3, 0)
		if err != nil || n == 0 || p.EndOffset() != 4 {
			t.Fatalf("appended %d bytes, %v; end %d", n, err, p.EndOffset())
		}
		r.hw(tpA, 3)
		if _, err := p.AppendFollower(4, 4, nil, 99, 2); err != nil {
			t.Fatal(err)
		}
		r.hw(tpA, 4) // not beyond its own end
		if p.StartOffset() != 2 {
			t.Errorf("start %d", p.StartOffset())
		}
		if _, err := p.AppendFollower(4, 4, nil, 1, 0); err != nil {
			t.Fatal(err)
		}
		r.hw(tpA, 4) // what was committed stays so
		st, err := p.FetchState(4)
		if err != nil || st != (FetchState{Offset: 4, LastEpoch: 4, LogStartOffset: 2}) {
			t.Errorf("state %+v, %v", st, err)
		}
	})
}

func TestFollowerRefusesWhatDoesNotFit(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.follow(tpA, 2, 4)
		p := r.m.Partition(tpA)
		good := batchAt(0, 4, 1, "v")
		bad := slices.Clone(good)
		bad[len(bad)-1] ^= 1
		for _, c := range []struct {
			what    string
			epoch   int32
			offset  int64
			records []byte
			want    error
		}{
			{"of an old epoch", 3, 0, good, ErrStale},
			{"for another offset", 4, 1, batchAt(1, 4, 1, "v"), ErrStale},
			{"with a bad checksum", 4, 0, bad, kerr.CorruptMessage},
			{"garbage", 4, 0, make([]byte, 100), kerr.CorruptMessage},
		} {
			_, err := p.AppendFollower(c.epoch, c.offset, c.records, 0, 0)
			wantErr(t, c.what, err, c.want)
			if p.EndOffset() != 0 {
				t.Fatalf("%s: appended", c.what)
			}
		}
		// A batch of an epoch after the leader's, and a cut one, are left out.
		cut := batchAt(1, 4, 1, "v")
		if _, err := p.AppendFollower(4, 0, slices.Concat(good, batchAt(1, 5, 1, "v")), 0, 0); err != nil || p.EndOffset() != 1 {
			t.Errorf("end %d, %v", p.EndOffset(), err)
		}
		if n, err := p.AppendFollower(4, 1, cut[:len(cut)-3], 0, 0); err != nil || n != 0 || p.EndOffset() != 1 {
			t.Errorf("end %d, %v", p.EndOffset(), err)
		}
		r.lead(tpA, 5, 1)
		_, err := p.AppendFollower(4, 1, cut, 0, 0)
		wantErr(t, "on a leader", err, ErrStale)
		wantErr(t, "truncation on a leader", p.TruncateTo(4, 0), ErrStale)
		wantErr(t, "truncation on a leader", p.TruncateFullyAndStartAt(5, 9), ErrStale)
	})
}

func TestTruncationByEpochs(t *testing.T) {
	for _, c := range []struct {
		what  string
		epoch int32
		end   int64
		want  int64
	}{
		{"same epoch, leader has less", 3, 5, 5},
		{"same epoch, leader has more", 3, 50, 6},
		{"epoch known to both, lower", 1, 1, 1},
		{"epoch unknown here: end of the next lower", 2, 5, 2},
		{"epoch above all of ours", 7, 3, 3},
		{"epoch below all of ours", 0, 1, 0},
		{"undefined: the high watermark", -1, -1, 1},
	} {
		inBubble(t, func(r *rig) {
			r.follow(tpA, 2, 9)
			p := r.m.Partition(tpA)
			if _, err := p.AppendFollower(9, 0, slices.Concat(batchAt(0, 1, 1, "v"), batchAt(1, 1, 1, "v")), 0, 0); err != nil {
				t.Fatal(err)
			}
			for o := int64(2); o < 6; o++ {
				if _, err := p.AppendFollower(9, o, batchAt(o, 3, 1, "v"), 1, 0); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.TruncateDiverging(9, c.epoch, c.end); err != nil {
				t.Fatal(err)
			}
			if got := p.EndOffset(); got != c.want || p.Log().EndOffset() != got {
				t.Errorf("%s (%d, %d): end %d, want %d", c.what, c.epoch, c.end, got, c.want)
			}
			if p.HighWatermark() > p.EndOffset() {
				t.Errorf("%s: high watermark %d above the end", c.what, p.HighWatermark())
			}
		})
	}
}

// A replica that led an epoch and wrote nothing knows an epoch that nobody else
// does. Nothing of its log has to go, but that epoch has.
func TestEpochWithoutRecordsIsForgotten(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1)
		r.put(tpA, 3, "v")
		r.lead(tpA, 2, 1)
		r.follow(tpA, 2, 3)
		p := r.m.Partition(tpA)
		st, err := p.FetchState(3)
		if err != nil || st.LastEpoch != 2 {
			t.Fatalf("state %+v, %v", st, err)
		}
		if err := p.TruncateDiverging(3, 1, 3); err != nil {
			t.Fatal(err)
		}
		if st, err := p.FetchState(3); err != nil || st.LastEpoch != 1 || st.Offset != 3 {
			t.Errorf("state %+v, %v", st, err)
		}
	})
}

func TestFollowerStartsOverWhereTheLeaderBegins(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.follow(tpA, 2, 1)
		p := r.m.Partition(tpA)
		if _, err := p.AppendFollower(1, 0, batchAt(0, 1, 3, "v"), 3, 0); err != nil {
			t.Fatal(err)
		}
		if err := p.TruncateFullyAndStartAt(1, 100); err != nil {
			t.Fatal(err)
		}
		st, err := p.FetchState(1)
		if err != nil || st.Offset != 100 || st.LogStartOffset != 100 {
			t.Errorf("state %+v, %v", st, err)
		}
		r.hw(tpA, 100)
		// The leader's first batch may begin before its start.
		if _, err := p.AppendFollower(1, 100, batchAt(98, 1, 5, "v"), 103, 100); err != nil {
			t.Fatal(err)
		}
		if p.EndOffset() != 103 || p.StartOffset() != 100 {
			t.Errorf("log is %d..%d", p.StartOffset(), p.EndOffset())
		}
	})
}

func FuzzRecordsFromALeader(f *testing.F) {
	f.Add([]byte(batchAt(0, 1, 2, "v")), int32(1))
	f.Add(slices.Concat(batchAt(0, 1, 2, "v"), batchAt(2, 3, 1, "v"))[:150], int32(2))
	f.Fuzz(func(t *testing.T, b []byte, epoch int32) {
		got, err := sound(b, epoch)
		if err != nil {
			return
		}
		for x, err := range recordbatch.Split(got) {
			if err != nil {
				t.Fatalf("not whole batches: %v", err)
			}
			if x.LeaderEpoch() > epoch {
				t.Fatalf("batch of epoch %d let through", x.LeaderEpoch())
			}
		}
	})
}
