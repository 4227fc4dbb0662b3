package handler

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestWhatIsNamedTwiceIsAnsweredOnce(t *testing.T) {
	is := func(got any, want string) {
		t.Helper()
		if s := fmt.Sprint(got); s != want {
			t.Errorf("%s, want %s", s, want)
		}
	}
	is(distinct([]string{"b", "a", "b", "b", "c", "a"}, self), "[b a c]")
	a, b, empty := "a", "b", ""
	topics := distinctTopics([]kmsg.MetadataRequestTopic{{Topic: &a}, {TopicID: [16]byte{1}}, {Topic: &b}, {Topic: &a}, {TopicID: [16]byte{1}}, {TopicID: [16]byte{2}}, {Topic: &empty}, {}})
	is(len(topics), "6")
	if got := distinctTopics([]kmsg.MetadataRequestTopic{}); got == nil {
		t.Error("no topics became all topics")
	}

	res := func(names ...string) kmsg.DescribeConfigsRequestResource {
		return kmsg.DescribeConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t", ConfigNames: names}
	}
	is(distinctResources([]kmsg.DescribeConfigsRequestResource{res("x"), res("y")})[0].ConfigNames, "[x y]")
	for _, list := range [][]kmsg.DescribeConfigsRequestResource{{res("x"), res()}, {res(), res("x")}} {
		if got := distinctResources(list); len(got) != 1 || got[0].ConfigNames != nil {
			t.Errorf("%+v, want all keys of one resource", got)
		}
	}
	other := res("x")
	other.ResourceType = kmsg.ConfigResourceTypeBroker
	is(len(distinctResources([]kmsg.DescribeConfigsRequestResource{res("x"), other})), "2")

	topic := func(name string, parts ...int32) kmsg.OffsetFetchRequestGroupTopic {
		return kmsg.OffsetFetchRequestGroupTopic{Topic: name, Partitions: parts}
	}
	group := func(name string, topics ...kmsg.OffsetFetchRequestGroupTopic) kmsg.OffsetFetchRequestGroup {
		return kmsg.OffsetFetchRequestGroup{Group: name, Topics: topics}
	}
	got := distinctOffsets([]kmsg.OffsetFetchRequestGroup{
		group("g", topic("t", 1, 1, 2), topic("u", 0), topic("t", 2, 3)), group("h", topic("t", 1)), group("g", topic("t", 4)), group("h"),
	})
	is(len(got), "2")
	is(got[0].Topics[0].Partitions, "[1 2 3 4]")
	is(got[0].Topics[1].Partitions, "[0]")
	if got[1].Topics != nil {
		t.Error("all topics of a group became some")
	}
	none := distinctOffsets([]kmsg.OffsetFetchRequestGroup{{Group: "g", Topics: []kmsg.OffsetFetchRequestGroupTopic{}}})
	if none[0].Topics == nil {
		t.Error("no topics became all topics")
	}
}
