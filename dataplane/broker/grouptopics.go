package broker

import (
	"iter"

	"penstock/dataplane/group"
	"penstock/dataplane/metadata"
	"penstock/dataplane/protocol"
)

// groupTopics is the topics as consumer groups share them out: nil until the controller
// has told this broker of any, since a group must not take that for topics deleted.
func (b *Broker) groupTopics() group.Topics {
	im := b.metadata.Image()
	if im.ControllerEpoch == 0 {
		return nil
	}
	return topicsOf{im}
}

// topicsOf is group.Topics on an image.
type topicsOf struct{ *metadata.Image }

// Topic implements group.Topics. A topic without an id cannot be assigned.
func (t topicsOf) Topic(name string) (protocol.UUID, int32, bool) {
	topic := t.Image.Topic(name)
	if topic == nil || topic.ID == (protocol.UUID{}) {
		return protocol.UUID{}, 0, false
	}
	return topic.ID, int32(topic.Len()), true
}

// Name implements group.Topics.
func (t topicsOf) Name(id protocol.UUID) (string, bool) { return t.TopicName(id) }

// Names implements group.Topics.
func (t topicsOf) Names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for topic := range t.Topics() {
			if !yield(topic.Name) {
				return
			}
		}
	}
}

var migrationPolicies = map[string]group.MigrationPolicy{
	"BIDIRECTIONAL": group.MigrateBidirectional, "UPGRADE": group.MigrateUpgrade,
	"DOWNGRADE": group.MigrateDowngrade, "DISABLED": group.MigrateDisabled,
}
