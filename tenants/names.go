package tenants

import (
	"errors"
	"fmt"
	"strings"
)

// ErrBadName is in the chain of every error about a name that breaks a rule.
var ErrBadName = errors.New("invalid name")

// MaxTopicName is Kafka's limit on the length of a topic's name in bytes: with
// "-", a partition number and a suffix it still fits a file name of 255.
const MaxTopicName = 249

// CheckTopicName tells whether Kafka would take the topic name: 1 to 249 of
// ASCII letters, digits, '.', '_' and '-', neither "." nor "..".
func CheckTopicName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: a topic name must not be empty", ErrBadName)
	case name == "." || name == "..":
		return fmt.Errorf("%w: a topic cannot be named %q", ErrBadName, name)
	case len(name) > MaxTopicName:
		return fmt.Errorf("%w: a topic name has at most %d characters, this has %d", ErrBadName, MaxTopicName, len(name))
	}
	for i := 0; i < len(name); i++ {
		if !topicByte(name[i]) {
			return fmt.Errorf("%w: a topic name holds only ASCII letters, digits, '.', '_' and '-'", ErrBadName)
		}
	}
	return nil
}

// TopicCollisionKey is equal for topics whose names differ only in '.' and '_'.
// Kafka refuses the second of such a pair, since its metrics write both as '_'.
func TopicCollisionKey(name string) string { return strings.ReplaceAll(name, ".", "_") }

// InternalTopic says whether the name is reserved for the service: names that
// start with two underscores.
func InternalTopic(name string) bool { return strings.HasPrefix(name, "__") }

// UsageTopic is the internal topic that brokers write usage records to.
const UsageTopic = "__penstock_usage"

// CheckTenantTopicName is CheckTopicName for topics that tenants make through
// the control plane: names of the service are refused as well.
func CheckTenantTopicName(name string) error {
	if err := CheckTopicName(name); err != nil {
		return err
	}
	if InternalTopic(name) {
		return fmt.Errorf("%w: names that start with __ belong to the service", ErrBadName)
	}
	return nil
}

// MaxName is the length limit of the names of tenants, clusters and accounts:
// that of a DNS label, since such a name may become one.
const MaxName = 63

// CheckTenantName, CheckClusterName and CheckAccountName share one rule: 2 to
// 63 lower-case letters, digits and '-', starting with a letter and ending
// with a letter or digit, no two '-' in a row (so that it is a DNS label and
// never an internationalised one).
func CheckTenantName(name string) error  { return checkLabel("tenant", name) }
func CheckClusterName(name string) error { return checkLabel("cluster", name) }
func CheckAccountName(name string) error { return checkLabel("account", name) }

func checkLabel(kind, name string) error {
	if len(name) < 2 || len(name) > MaxName {
		return fmt.Errorf("%w: a %s name has 2 to %d characters", ErrBadName, kind, MaxName)
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		letter, digit := c >= 'a' && c <= 'z', c >= '0' && c <= '9'
		switch {
		case letter:
		case digit && i > 0:
		case c == '-' && i > 0 && i < len(name)-1 && name[i-1] != '-':
		default:
			return fmt.Errorf("%w: a %s name is lower-case letters, digits and single hyphens, starts with a letter and does not end with a hyphen", ErrBadName, kind)
		}
	}
	return nil
}

func topicByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}
