package handler

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func fetchRequest(version int16) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.Group = version, "g"
	req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{0, 7}}}
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.Topics = "g", []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", Partitions: []int32{0, 7}}}
	req.Groups = []kmsg.OffsetFetchRequestGroup{g}
	return req
}

// onWire encodes and decodes the response, as a client of the version sees it.
func onWire(t *testing.T, resp *kmsg.OffsetFetchResponse, version int16) *kmsg.OffsetFetchResponse {
	t.Helper()
	resp.Version = version
	back := kmsg.NewPtrOffsetFetchResponse()
	back.Version = version
	if err := back.ReadFrom(resp.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	return back
}

func TestOffsetsTakeTheFormOfEachVersion(t *testing.T) {
	for v := int16(1); v <= 9; v++ {
		req := fetchRequest(v)
		asked := offsetGroups(req)
		if len(asked) != 1 || asked[0].Group != "g" || len(asked[0].Topics) != 1 || len(asked[0].Topics[0].Partitions) != 2 {
			t.Fatalf("v%d: asked %+v", v, asked)
		}
		result := kmsg.NewOffsetFetchResponseGroup()
		result.Group = "g"
		topic := noOffsets(asked[0].Topics[0], 0)
		topic.Partitions[0].Offset = 5
		result.Topics = []kmsg.OffsetFetchResponseGroupTopic{topic}
		resp := onWire(t, offsetsResponse(req, []kmsg.OffsetFetchResponseGroup{result}), v)
		var offsets []int64
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				offsets = append(offsets, p.Offset)
			}
		}
		for _, g := range resp.Groups {
			for _, t := range g.Topics {
				for _, p := range t.Partitions {
					offsets = append(offsets, p.Offset)
				}
			}
		}
		if len(offsets) != 2 || offsets[0] != 5 || offsets[1] != -1 {
			t.Errorf("v%d: offsets %v, want 5 and -1", v, offsets)
		}
	}
}

func TestOffsetFetchErrorHasAPlaceInEachVersion(t *testing.T) {
	failed := kmsg.NewOffsetFetchResponseGroup()
	failed.Group, failed.ErrorCode = "g", kerr.NotCoordinator.Code
	for v := int16(1); v <= 9; v++ {
		resp := onWire(t, offsetsResponse(fetchRequest(v), []kmsg.OffsetFetchResponseGroup{failed}), v)
		var got int16
		switch {
		case v >= 8:
			got = resp.Groups[0].ErrorCode
		case v >= 2:
			got = resp.ErrorCode
		default:
			got = resp.Topics[0].Partitions[1].ErrorCode
		}
		if got != kerr.NotCoordinator.Code {
			t.Errorf("v%d: error %d", v, got)
		}
	}
}

func TestNullTopicsAskForAll(t *testing.T) {
	req := fetchRequest(7)
	req.Topics = nil
	if g := offsetGroups(req); g[0].Topics != nil {
		t.Error("null became an empty list: nothing instead of all")
	}
	req.Topics = []kmsg.OffsetFetchRequestTopic{}
	if g := offsetGroups(req); g[0].Topics == nil {
		t.Error("an empty list became null: all instead of nothing")
	}
}
