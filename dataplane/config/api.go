// Package config knows Kafka's settings: names, types, defaults, checks.
package config

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Endpoint is one entry of listeners or advertised.listeners.
type Endpoint struct {
	Name     string // listener name, upper case
	Host     string // "" = all interfaces
	Port     int32
	Protocol string // PLAINTEXT, SASL_PLAINTEXT, SSL, SASL_SSL
}

// KeyError is a bad value of one key.
type KeyError struct{ Key, Value, Reason string }

func (e *KeyError) Error() string { return e.Key }

// Entry is one setting as DescribeConfigs reports it.
type Entry struct {
	Name      string
	Value     *string // nil: no value, or sensitive
	Source    kmsg.ConfigSource
	Type      kmsg.ConfigType
	ReadOnly  bool
	Sensitive bool
	Doc       string
	Synonyms  []Synonym
}

// Synonym is one link of the chain that an entry's value was taken from.
type Synonym struct {
	Name   string
	Value  *string
	Source kmsg.ConfigSource
}

var _ time.Duration
