package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestRequestHeaderOfEveryVersion(t *testing.T) {
	f := func(req kmsg.Request, version int16, clientID *string) {
		t.Helper()
		req.SetVersion(version)
		format := kmsg.NewRequestFormatter()
		if clientID != nil {
			format = kmsg.NewRequestFormatter(kmsg.FormatterClientID(*clientID))
		}
		frame := format.AppendRequest(nil, req, 77)[4:]
		h, body, err := ParseRequestHeader(frame)
		if err != nil {
			t.Fatal(err)
		}
		if h.Key != req.Key() || h.Version != version || h.CorrelationID != 77 {
			t.Errorf("%+v", h)
		}
		if clientID == nil && h.ClientID != nil || clientID != nil && (h.ClientID == nil || string(h.ClientID) != *clientID) {
			t.Errorf("client id %q", h.ClientID)
		}
		if !bytes.Equal(body, req.AppendTo(nil)) {
			t.Errorf("body %x", body)
		}
	}
	id, empty := "client", ""
	f(kmsg.NewPtrControlledShutdownRequest(), 2, &id) // 1
	f(kmsg.NewPtrControlledShutdownRequest(), 3, &id) // 2
	f(kmsg.NewPtrMetadataRequest(), 8, nil)
	f(kmsg.NewPtrMetadataRequest(), 9, nil)
	f(kmsg.NewPtrMetadataRequest(), 12, &empty)
	f(kmsg.NewPtrSASLHandshakeRequest(), 1, &id)
	f(kmsg.NewPtrApiVersionsRequest(), 4, &id)
	f(kmsg.NewPtrDeleteRecordsRequest(), 2, &id) // known to kmsg alone
}

func TestControlledShutdown0HasNoClientID(t *testing.T) {
	h, body, err := ParseRequestHeader([]byte{0, 7, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1})
	if err != nil || h.CorrelationID != 5 || !bytes.Equal(body, []byte{0, 0, 0, 1}) {
		t.Errorf("%+v %x %v", h, body, err)
	}
}

func TestRequestHeaderSkipsTaggedFields(t *testing.T) {
	b := []byte{0, 3, 0, 12, 0, 0, 0, 5, 0xff, 0xff, 2, 7, 3, 'a', 'b', 'c', 9, 0, 'B'}
	h, body, err := ParseRequestHeader(b)
	if err != nil || h.CorrelationID != 5 || string(body) != "B" {
		t.Errorf("%+v %q %v", h, body, err)
	}
}

func TestResponseHeaderOfApiVersionsIsAlwaysVersion0(t *testing.T) {
	f := func(key, version int16, want int) {
		t.Helper()
		b := AppendResponseHeader(nil, key, version, 9)
		if len(b) != want || binary.BigEndian.Uint32(b) != 9 {
			t.Errorf("key %d v%d: %x", key, version, b)
		}
		if id, body, err := ParseResponseHeader(key, version, append(b, 'B')); id != 9 || string(body) != "B" || err != nil {
			t.Errorf("read back: %d %q %v", id, body, err)
		}
	}
	f(18, 0, 4)
	f(18, 3, 4)
	f(18, 4, 4)
	f(3, 8, 4)
	f(3, 9, 5)
	f(17, 1, 4)
	f(56, 0, 5)
}

func TestPoolGivesBuffersOfTheAskedSizeAndCountsThem(t *testing.T) {
	p := NewPool()
	for _, n := range []int{0, 1, 1 << 10, 1<<10 + 1, 4 << 20, 4<<20 + 1, 100 << 20} {
		b := p.Get(n)
		if len(b.B) != n {
			t.Errorf("asked %d, got %d", n, len(b.B))
		}
		b.B = append(b.B[:0], 1)
		b.Release()
	}
	b := p.Get(10)
	b.Drop()
	if p.InUse() != 0 {
		t.Errorf("%d in use", p.InUse())
	}
	var none *Buffer
	none.Release()
	defer func() {
		if recover() == nil {
			t.Error("a second Release went unnoticed")
		}
	}()
	b = p.Get(1)
	b.Release()
	b.Release()
}

func FuzzRequestHeader(f *testing.F) {
	f.Add([]byte{0, 3, 0, 12, 0, 0, 0, 5, 0xff, 0xff, 2, 7, 3, 'a', 'b', 'c', 9, 0, 'B'})
	f.Add(kmsg.NewRequestFormatter(kmsg.FormatterClientID("x")).AppendRequest(nil, kmsg.NewPtrProduceRequest(), 1)[4:])
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, body, err := ParseRequestHeader(frame)
		if err == nil && len(body)+len(h.ClientID) > len(frame)-HeaderPrefix {
			t.Fatal("parts exceed the frame")
		}
		ParseResponseHeader(h.Key, h.Version, frame)
	})
}

// FuzzRequestBody runs every served request's decode path as the listener does.
func FuzzRequestBody(f *testing.F) {
	for _, a := range APIs() {
		for v := a.Min; v <= a.Max; v++ {
			r := kmsg.RequestForKey(a.Key)
			r.SetVersion(v)
			f.Add(a.Key, v, r.AppendTo(nil))
		}
	}
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		a := Lookup(key)
		if a == nil || version < a.Min || version > a.Max {
			t.Skip()
		}
		n, err := a.Measure(version, body)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrTooLarge) {
				t.Fatal(err)
			}
			return
		}
		if n > a.MaxMemory {
			t.Fatalf("%d bytes let through, limit %d", n, a.MaxMemory)
		}
		req, err := decodeAnew(a, version, body)
		if err != nil {
			return
		}
		if h := held(reflect.ValueOf(req).Elem()); h > n {
			t.Fatalf("measured %d, holds %d", n, h)
		}
		req.AppendTo(nil)
	})
}
