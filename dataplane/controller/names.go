package controller

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// maxTopicName is the longest topic name: a folder's name is that, a dash, a
// partition number and a suffix, and file systems allow 255 bytes.
const maxTopicName = 249

// CheckTopicName refuses names that Kafka refuses, with
// INVALID_TOPIC_EXCEPTION: 1 to 249 of the characters a-z A-Z 0-9 . _ - and
// neither "." nor "..".
func CheckTopicName(name string) error {
	switch {
	case name == "":
		return refuse(kerr.InvalidTopicException, "Topic name is illegal, it can't be empty")
	case name == "." || name == "..":
		return refuse(kerr.InvalidTopicException, "Topic name cannot be \".\" or \"..\"")
	case len(name) > maxTopicName:
		return refuse(kerr.InvalidTopicException, "Topic name is illegal, it can't be longer than %d characters", maxTopicName)
	}
	for i := range len(name) {
		c := name[i]
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
		if !ok {
			return refuse(kerr.InvalidTopicException, "Topic name %q is illegal, it contains a character other than ASCII alphanumerics, '.', '_' and '-'", name)
		}
	}
	return nil
}

// undot is the name under which topics collide in metrics.
func undot(name string) string { return strings.ReplaceAll(name, ".", "_") }
