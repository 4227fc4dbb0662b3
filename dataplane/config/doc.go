// Package config knows Kafka's settings: their names, types, defaults and
// rules, and what is in force.
//
// A broker's settings are layers, the first that has the key wins: dynamic
// for this broker, dynamic for all brokers, the static file with its
// overrides, the default. A topic's setting is its own override, else the
// broker's setting that it is a synonym of. Values are kept as text in every
// layer and parsed once, when a Broker or a Topic is built; both are immutable
// afterwards.
//
// Keys that Kafka does not know, and those whose subject this broker does not
// have, are reported as warnings and ignored. A bad value of a known key is an
// error, and all errors are reported together.
//
// Defaults are those of Kafka 3.9, except message.timestamp.after.max.ms,
// which is one hour as from Kafka 4.0.
package config

//go:generate go test -run TestConfigurationDocument . -update
