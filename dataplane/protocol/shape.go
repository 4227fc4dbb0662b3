package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// The reasons for which a body is refused before it is decoded.
var (
	ErrMalformed = errors.New("request body is malformed")
	ErrTooLarge  = errors.New("request body needs more memory than its kind may take")
)

// shape describes the layout of one request over all its versions, so that a
// body can be walked and its decoded size told before anything is built.
//
// kmsg makes an array from the length found on the wire before it reads the
// elements, and a map for every struct with unknown tags; a hostile body
// becomes up to a hundred times its size in memory that way. A fixed
// multiple of the frame was tried first: safe ones refuse ordinary large
// requests, since the ratio of a Produce is near one. Walking is exact.
//
// The notation, in the order of the wire: b h i l u are fields of 1, 2, 4, 8, 16
// bytes; s S strings (S nullable); y Y byte fields (Y nullable); t the tagged
// fields of flexible versions; [N:...] an array whose element takes N bytes in
// memory; {N:...} a struct of N bytes that may be left out; 3+(...) and 0-12(...) what only these versions have.
type shape []op

type op struct {
	kind     byte
	min, max int16
	size     int64
	sub      shape
}

const (
	opArray   = '['
	opMaybe   = '{'
	opVersion = '('
)

// Memory that Go takes for what is not counted by the size of an element: the
// first tagged field of a struct makes a map with one group of slots; every
// further one takes its slot and, as the map grows, old tables.
const (
	firstTagCost = 448
	tagCost      = 192
	arrayCost    = 64
	stringCost   = 16
)

// maxString is the longest string in bytes, also where the wire has room for more:
// flexible versions do, but records that are made of what they carry have int16 lengths, in
// which a longer one would come back as another. Kafka refuses them like this.
const maxString = 1<<15 - 1

func mustShape(text string) shape {
	s, rest, err := parseShape(text, 0)
	if err != nil || rest != "" {
		panic(fmt.Sprintf("BUG: shape %q: stops at %q: %v", text, rest, err))
	}
	return s
}

func parseShape(text string, end byte) (shape, string, error) {
	var s shape
	for text != "" {
		c := text[0]
		switch {
		case c == end:
			return s, text[1:], nil
		case strings.IndexByte("bhilusSyYt", c) >= 0:
			s, text = append(s, op{kind: c}), text[1:]
		case c == opArray, c == opMaybe:
			var size int64
			head, body, ok := strings.Cut(text[1:], ":")
			if _, err := fmt.Sscanf(head, "%d", &size); err != nil || !ok {
				return nil, text, fmt.Errorf("%q without a size", c)
			}
			sub, rest, err := parseShape(body, c+2) // ']' or '}'
			if err != nil {
				return nil, rest, err
			}
			s, text = append(s, op{kind: c, size: size, sub: sub}), rest
		case c >= '0' && c <= '9':
			head, body, ok := strings.Cut(text, "(")
			if !ok {
				return nil, text, fmt.Errorf("version range without fields")
			}
			o := op{kind: opVersion, max: 1<<15 - 1}
			var err error
			if from, open := strings.CutSuffix(head, "+"); open {
				_, err = fmt.Sscanf(from, "%d", &o.min)
			} else {
				_, err = fmt.Sscanf(head, "%d-%d", &o.min, &o.max)
			}
			if err != nil {
				return nil, text, err
			}
			if o.sub, text, err = parseShape(body, ')'); err != nil {
				return nil, text, err
			}
			s = append(s, o)
		default:
			return nil, text, fmt.Errorf("unknown sign %q", c)
		}
	}
	if end != 0 {
		return nil, "", fmt.Errorf("missing %q", end)
	}
	return s, "", nil
}

// hasBytes reports whether any version has a byte field.
func (s shape) hasBytes() bool {
	for _, o := range s {
		if o.kind == 'y' || o.kind == 'Y' || o.sub.hasBytes() {
			return true
		}
	}
	return false
}

// measure walks the whole body and returns the memory its decoded form takes.
func (s shape) measure(version int16, flexible bool, body []byte, max int64) (int64, error) {
	w := walker{b: body, version: version, flexible: flexible, max: max}
	w.walk(s)
	switch {
	case w.mem > max:
		return w.mem, ErrTooLarge
	case w.bad || len(w.b) > 0:
		return w.mem, ErrMalformed
	}
	return w.mem, nil
}

// walker steps over the fields of a body. Its error is sticky.
type walker struct {
	b        []byte
	version  int16
	flexible bool
	bad      bool
	mem, max int64
}

func (w *walker) walk(s shape) {
	for i := range s {
		o := &s[i]
		switch o.kind {
		case 'b':
			w.skip(1)
		case 'h':
			w.skip(2)
		case 'i':
			w.skip(4)
		case 'l':
			w.skip(8)
		case 'u':
			w.skip(16)
		case 's', 'S':
			n := w.length(2)
			if n < 0 && o.kind == 's' || n > maxString {
				w.bad = true
			}
			w.skip(n)
			w.mem += stringCost + int64(n)
		case 'y', 'Y':
			w.skip(w.length(4))
		case 't':
			if w.flexible {
				w.tags()
			}
		case opVersion:
			if o.min <= w.version && w.version <= o.max {
				w.walk(o.sub)
			}
		case opMaybe: // -1: it is left out
			if len(w.b) == 0 || int8(w.b[0]) == -1 {
				w.skip(1)
				break
			}
			w.skip(1)
			w.mem += arrayCost + o.size
			w.walk(o.sub)
		case opArray:
			n := w.length(4)
			if n > len(w.b) { // no element is empty on the wire
				w.bad = true
			}
			if w.bad || n <= 0 {
				break
			}
			// A quarter more, since Go rounds up to its size classes.
			w.mem += arrayCost + o.size*int64(n)*5/4
			for ; n > 0 && !w.bad && w.mem <= w.max; n-- {
				w.walk(o.sub)
			}
		}
		if w.bad || w.mem > w.max {
			w.bad = true
			return
		}
	}
}

func (w *walker) skip(n int) {
	if n <= 0 {
		return
	}
	if n > len(w.b) {
		w.bad, w.b = true, nil
		return
	}
	w.b = w.b[n:]
}

// length reads the length before a string, byte field or array: width bytes, or
// a varint of one more in flexible versions. -1 is null; less is malformed.
func (w *walker) length(width int) int {
	if w.flexible {
		return int(w.uvarint()) - 1
	}
	if len(w.b) < width {
		w.bad, w.b = true, nil
		return -1
	}
	var n int
	if width == 2 {
		n = int(int16(binary.BigEndian.Uint16(w.b)))
	} else {
		n = int(int32(binary.BigEndian.Uint32(w.b)))
	}
	w.b = w.b[width:]
	if n < -1 {
		w.bad = true
	}
	return n
}

func (w *walker) uvarint() uint32 {
	v, n := binary.Uvarint(w.b)
	if n <= 0 || n > 5 || v > 1<<31-1 {
		w.bad, w.b = true, nil
		return 0
	}
	w.b = w.b[n:]
	return uint32(v)
}

func (w *walker) tags() {
	n := w.uvarint()
	if n == 0 {
		return
	}
	w.mem += firstTagCost
	for ; n > 0 && !w.bad; n-- {
		w.mem += tagCost
		w.uvarint()
		w.skip(int(w.uvarint()))
	}
}
