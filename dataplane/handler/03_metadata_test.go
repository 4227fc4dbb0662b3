package handler

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
	"penstock/dataplane/metadata"
)

func TestNoTopicIsUnknownBeforeTheControllersFirstWord(t *testing.T) {
	cache := metadata.NewCache("c")
	h := New(context.Background(), Deps{Metadata: cache})
	req := kmsg.NewPtrMetadataRequest()
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = kmsg.StringPtr("t")
	answer := func() error {
		return kerr.ErrorForCode(h.askedTopic(&listener.Request{Body: req, Conn: &listener.Conn{}}, cache.Image(), asked, req).ErrorCode)
	}
	if err := answer(); !errors.Is(err, kerr.LeaderNotAvailable) {
		t.Errorf("before: %v", err)
	}
	word := kmsg.NewPtrUpdateMetadataRequest()
	word.ControllerEpoch = 1
	if _, err := cache.Apply(word); err != nil {
		t.Fatal(err)
	}
	if err := answer(); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("after: %v", err)
	}
}
