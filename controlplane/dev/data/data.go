// Package data is the demonstration's input: real earthquakes of one week. See
// README.md for source and licence.
package data

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
)

//go:embed earthquakes.ndjson
var earthquakes []byte

// Event is one earthquake.
type Event struct {
	ID      string
	Network string // who reported it; few values, very uneven: a good record key
	Time    int64  // of the event, milliseconds since 1970 UTC
	Line    []byte // the whole JSON object as it stands in the file, without the newline
}

// Earthquakes reads the events in the order of the file, which is that of
// their times.
func Earthquakes() ([]Event, error) {
	var out []Event
	for line := range bytes.Lines(earthquakes) {
		line = bytes.TrimRight(line, "\n")
		var v struct {
			ID   string `json:"id"`
			Net  string `json:"net"`
			Time int64  `json:"time"`
		}
		if err := json.Unmarshal(line, &v); err != nil {
			return nil, fmt.Errorf("earthquakes.ndjson, line %d: %w", len(out)+1, err)
		}
		out = append(out, Event{ID: v.ID, Network: v.Net, Time: v.Time, Line: line})
	}
	return out, nil
}
