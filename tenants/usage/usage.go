// Package usage is the format of the records that brokers write to the
// internal topic __penstock_usage and that billing reads.
//
// A record belongs to one boot of one broker: (broker, boot epoch). Within it
// records are numbered upwards from 1; a number may be missing, and a record may
// come twice, then with the same number and content. Values are cumulative since
// the start of the boot, so a lost record is healed by the next and a doubled one
// adds nothing. What a boot has used is, for each entry, the greatest value of
// all its records (in general that of the highest number; after a loss of power
// the last record of a boot may lag behind an earlier one). What a cluster has
// used is the sum over all boots of all its brokers.
//
// A record names only entries that changed since the one before, or a part of
// them when there are many: an entry that is not named is unchanged, never zero.
//
// Version ladder:
//
//	1  JSON object, fields as in Record; at most MaxEntries entries and MaxSize bytes.
//
// A reader refuses versions that it does not know (ErrVersion): usage must not
// be guessed at.
package usage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Version is the version that Encode writes.
const Version = 1

// Bounds of one record; Encode and Decode both refuse what exceeds them. A
// record of MaxEntries entries with the longest principals stays below MaxSize,
// and MaxSize below Kafka's default max.message.bytes.
const (
	MaxSize      = 512 << 10
	MaxEntries   = 1000
	MaxPrincipal = 256 // bytes
)

// Overflow is the principal that stands for all that came after a broker ran
// out of counters. It cannot be a real one: it has no "User:" in front.
const Overflow = "overflow"

// Direction says which way the bytes went, seen from the broker.
type Direction string

const (
	In  Direction = "in"  // produced and committed
	Out Direction = "out" // fetched
)

// ErrVersion is returned for a record of a version that is not known.
var ErrVersion = errors.New("usage: unknown version")

// Entry is one counter: a principal and a direction.
type Entry struct {
	Principal string    `json:"principal"` // as in Kafka, "User:name"
	Direction Direction `json:"direction"`
	Bytes     int64     `json:"bytes"`    // of whole record batches as they lie in the log
	Records   int64     `json:"records"`  // 0 where not counted (Out)
	Requests  int64     `json:"requests"` // appends (In) or fetches with data (Out), by partition
}

// Record is one usage report of one broker.
type Record struct {
	Version   int       `json:"version"`
	Cluster   string    `json:"cluster,omitempty"` // the cluster's id, for readers of many
	Broker    int32     `json:"broker"`
	BootEpoch int64     `json:"boot_epoch"`      // grows with every start of the broker
	Seq       int64     `json:"seq"`             // from 1, growing
	At        time.Time `json:"at"`              // UTC; when the values were read
	Final     bool      `json:"final,omitempty"` // no record of this boot comes after
	Entries   []Entry   `json:"entries"`
}

// Key is the record's key in the topic: records of one broker keep their order.
func (r *Record) Key() []byte { return []byte("broker-" + strconv.Itoa(int(r.Broker))) }

// Encode checks the record and writes it as version Version, whatever
// r.Version says.
func (r *Record) Encode() ([]byte, error) {
	c := *r
	c.Version = Version
	c.At = c.At.UTC()
	if c.Entries == nil {
		c.Entries = []Entry{}
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(&c)
	if err != nil {
		return nil, fmt.Errorf("usage: encode: %w", err)
	}
	if len(b) > MaxSize {
		return nil, fmt.Errorf("usage: record of %d bytes, limit %d", len(b), MaxSize)
	}
	return b, nil
}

// Decode reads one record. Unknown fields, trailing bytes, values out of range
// and doubled entries are errors; an unknown version is ErrVersion, whatever
// else the record holds.
func Decode(b []byte) (*Record, error) {
	if len(b) > MaxSize {
		return nil, fmt.Errorf("usage: record of %d bytes, limit %d", len(b), MaxSize)
	}
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, fmt.Errorf("usage: decode: %w", err)
	}
	if v.Version != Version {
		return nil, fmt.Errorf("%w %d", ErrVersion, v.Version)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	r := new(Record)
	if err := d.Decode(r); err != nil {
		return nil, fmt.Errorf("usage: decode: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("usage: decode: bytes after the record")
	}
	if err := r.validate(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Record) validate() error {
	switch {
	case r.Version != Version:
		return fmt.Errorf("%w %d", ErrVersion, r.Version)
	case r.Broker < 0:
		return errors.New("usage: negative broker id")
	case r.BootEpoch < 1:
		return errors.New("usage: boot epoch must be at least 1")
	case r.Seq < 1:
		return errors.New("usage: sequence must be at least 1")
	case r.At.IsZero():
		return errors.New("usage: no time")
	case r.At.Year() < 1970 || r.At.Year() > 9999:
		return errors.New("usage: time out of range")
	case len(r.Cluster) > MaxPrincipal || !utf8.ValidString(r.Cluster):
		return errors.New("usage: bad cluster id")
	case len(r.Entries) > MaxEntries:
		return fmt.Errorf("usage: %d entries, limit %d", len(r.Entries), MaxEntries)
	}
	type key struct {
		p string
		d Direction
	}
	seen := make(map[key]struct{}, len(r.Entries))
	for i := range r.Entries {
		e := &r.Entries[i]
		if !ValidPrincipal(e.Principal) {
			return fmt.Errorf("usage: entry %d: bad principal", i)
		}
		if e.Direction != In && e.Direction != Out {
			return fmt.Errorf("usage: entry %d: bad direction", i)
		}
		if e.Bytes < 0 || e.Records < 0 || e.Requests < 0 {
			return fmt.Errorf("usage: entry %d: negative value", i)
		}
		k := key{e.Principal, e.Direction}
		if _, ok := seen[k]; ok {
			return fmt.Errorf("usage: entry %d: named twice", i)
		}
		seen[k] = struct{}{}
	}
	return nil
}

// ValidPrincipal says whether a principal can stand in a record: 1 to 256 bytes
// of UTF-8 without control characters.
func ValidPrincipal(p string) bool {
	return p != "" && len(p) <= MaxPrincipal && utf8.ValidString(p) &&
		strings.IndexFunc(p, func(r rune) bool { return r < 0x20 || r == 0x7f }) < 0
}
