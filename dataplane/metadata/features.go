package metadata

import "penstock/dataplane/protocol"

// Features are the levels at which features are in force in the whole cluster (KIP-584).
type Features struct {
	// Epoch grows with each change, and is the same on all brokers for the same levels; -1
	// while nothing is known. Clients believe the highest that they are told.
	Epoch  int64
	Levels map[string]int16 // by name; what is at level 0 is not in it
}

// NoFeatures is what a broker knows that has not read the registrations yet.
var NoFeatures = Features{Epoch: -1}

// Finalize gives the features that every live broker can do, each at its highest common
// level. Kafka's brokers before 4.0 register none, so beside one of them none is in force.
func Finalize(epoch int64, own []protocol.Feature, brokers []map[string]protocol.Feature) Features {
	f := Features{Epoch: epoch, Levels: map[string]int16{}}
	for _, o := range own {
		least, level := o.Min, o.Max
		for _, b := range brokers {
			least, level = max(least, b[o.Name].Min), min(level, b[o.Name].Max)
		}
		if level > 0 && level >= least && len(brokers) > 0 {
			f.Levels[o.Name] = level
		}
	}
	return f
}
