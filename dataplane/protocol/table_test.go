package protocol

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fill puts random values into every field of a kmsg struct.
func fill(r *rand.Rand, v reflect.Value) {
	if v.Type() == reflect.TypeFor[kmsg.Tags]() {
		for range r.IntN(8) / 5 {
			v.Addr().Interface().(*kmsg.Tags).Set(100+r.Uint32N(1000), make([]byte, r.IntN(5)))
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "Version" {
				fill(r, v.Field(i))
			}
		}
	case reflect.Slice:
		n := r.IntN(4)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(r, v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Pointer:
		if r.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem())
		}
	case reflect.String:
		v.SetString(string(bytes.Repeat([]byte("x"), r.IntN(200))))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 1)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(r.Uint64()) >> (64 - v.Type().Bits()))
	case reflect.Uint8, reflect.Uint16:
		v.SetUint(r.Uint64() & 0x7f)
	case reflect.Float64:
		v.SetFloat(r.Float64())
	default:
		panic(v.Type().String())
	}
}

// held is the memory behind a decoded value, besides the value itself and what
// aliases the frame.
func held(v reflect.Value) (n int64) {
	if v.Type() == reflect.TypeFor[kmsg.Tags]() {
		t := v.Addr().Interface().(*kmsg.Tags)
		if t.Len() > 0 {
			return 48 + max(8, int64(t.Len()))*33
		}
		return 0
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			n += held(v.Field(i))
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return 0
		}
		n = int64(v.Cap()) * int64(v.Type().Elem().Size())
		for i := range v.Len() {
			n += held(v.Index(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			n = int64(v.Type().Elem().Size()) + held(v.Elem())
		}
	case reflect.String:
		n = int64(v.Len())
	}
	return n
}

func TestEveryAdvertisedVersionCanBeDecodedAndAnswered(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, a := range APIs() {
		req := kmsg.RequestForKey(a.Key)
		if a.Max > req.MaxVersion() {
			t.Errorf("%s: version %d is beyond kmsg's %d", a.Name, a.Max, req.MaxVersion())
		}
		if a.AdvertisedMin > a.Min || a.Min > a.Max || a.Key != 0 && a.AdvertisedMin != a.Min {
			t.Errorf("%s: ranges %d (%d) to %d", a.Name, a.AdvertisedMin, a.Min, a.Max)
		}
		for v := a.Min; v <= a.Max; v++ {
			req.SetVersion(v)
			if want := a.FlexibleFrom >= 0 && v >= a.FlexibleFrom; req.IsFlexible() != want {
				t.Errorf("%s v%d: flexible %v, table says %v", a.Name, v, req.IsFlexible(), want)
			}
			resp := req.ResponseKind()
			fill(r, reflect.ValueOf(resp).Elem())
			again := req.ResponseKind()
			if err := again.ReadFrom(resp.AppendTo(nil)); err != nil || again.GetVersion() != v {
				t.Errorf("%s v%d: response: %v", a.Name, v, err)
			}
		}
	}
}

func TestMeasureAcceptsWhatKmsgEncodesAndIsNeverTooLow(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, a := range APIs() {
		for v := a.Min; v <= a.Max; v++ {
			for range 25 {
				req := kmsg.RequestForKey(a.Key)
				req.SetVersion(v)
				fill(r, reflect.ValueOf(req).Elem())
				body := req.AppendTo(nil)
				n, err := a.Measure(v, body)
				if err != nil && !(errors.Is(err, ErrTooLarge) && a.MaxMemory < 1<<20) {
					t.Fatalf("%s v%d: %v for %x", a.Name, v, err, body)
				}
				got, err := decodeAnew(a, v, body)
				if err != nil {
					t.Fatalf("%s v%d: %v", a.Name, v, err)
				}
				if h := held(reflect.ValueOf(got).Elem()); h > n {
					t.Fatalf("%s v%d: measured %d, holds %d", a.Name, v, n, h)
				}
				for cut := 0; cut < len(body); cut += 1 + r.IntN(4) {
					if _, err := a.Measure(v, body[:cut]); err == nil && a.shapeEnd(v, body[:cut]) {
						t.Fatalf("%s v%d: accepted %d of %d bytes", a.Name, v, cut, len(body))
					}
				}
			}
		}
	}
}

// decodeAnew is Decode without memory that was used before, which is not measured.
func decodeAnew(a *API, version int16, body []byte) (kmsg.Request, error) {
	if a.Key != keyProduce {
		return a.Decode(version, body)
	}
	r := new(kmsg.ProduceRequest)
	return r, readProduce(r, version, body)
}

// shapeEnd reports whether kmsg, too, refuses the body.
func (a *API) shapeEnd(version int16, body []byte) bool {
	_, err := a.Decode(version, body)
	return err != nil
}

func TestMeasureIsCloseForOrdinaryRequests(t *testing.T) {
	p := kmsg.NewPtrProduceRequest()
	for range 10 {
		tp := kmsg.NewProduceRequestTopic()
		tp.Topic = "orders"
		for range 20 {
			pp := kmsg.NewProduceRequestTopicPartition()
			pp.Records = make([]byte, 1<<10)
			tp.Partitions = append(tp.Partitions, pp)
		}
		p.Topics = append(p.Topics, tp)
	}
	p.Version = 9
	body := p.AppendTo(nil)
	if n, err := Lookup(0).Measure(9, body); err != nil || n > int64(len(body))/10 {
		t.Errorf("a Produce of %d bytes is measured as %d more (%v)", len(body), n, err)
	}
}

func TestMeasureDoesNotAllocate(t *testing.T) {
	body := (&kmsg.ProduceRequest{Version: 9, Topics: make([]kmsg.ProduceRequestTopic, 3)}).AppendTo(nil)
	if n := testing.AllocsPerRun(100, func() { Lookup(0).Measure(9, body) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestWhatIsNotServedIsNotAdvertised(t *testing.T) {
	resp := ApiVersions(3)
	if len(resp.ApiKeys) != len(table) {
		t.Errorf("%d keys advertised, %d served", len(resp.ApiKeys), len(table))
	}
	for _, k := range resp.ApiKeys {
		min, max, ok := Supported(k.ApiKey)
		if wantMin := min; !ok || k.MaxVersion != max || k.MinVersion != wantMin && k.ApiKey != 0 {
			t.Errorf("key %d: advertised %d to %d, served %d to %d (%v)", k.ApiKey, k.MinVersion, k.MaxVersion, min, max, ok)
		}
		if k.ApiKey == 0 && k.MinVersion != 0 {
			t.Error("librdkafka compresses only if Produce version 0 is advertised")
		}
	}
	for _, key := range []int16{-1, 38, 62, 999, 1<<15 - 1, -1 << 15} {
		if _, _, ok := Supported(key); ok {
			t.Errorf("key %d is served", key)
		}
	}
}

func TestUnsupportedApiVersionsIsReadableByEveryClient(t *testing.T) {
	b := UnsupportedApiVersions().AppendTo(nil)
	got := kmsg.NewPtrApiVersionsResponse()
	if err := got.ReadFrom(b); err != nil || got.ErrorCode != 35 || len(got.ApiKeys) != len(table) {
		t.Errorf("%v, error %d, %d keys", err, got.ErrorCode, len(got.ApiKeys))
	}
}

// The bytes are those of Apache Kafka 3.9: the flag of a KRaft controller stands
// between the controller's id and its epoch.
func TestStopReplicaOfAKafkaController(t *testing.T) {
	body := []byte{
		0, 0, 0, 11, // controller id
		0,             // isKRaftController
		0, 0, 0x12, 3, // controller epoch
		0, 0, 0, 0, 0, 0, 7, 0xa, // broker epoch
		2, 2, 't', 2, 0, 0, 0, 5, 0, 0, 0, 9, 1, 0, 0, // t-5 at leader epoch 9, to be deleted
		0,
	}
	a := Lookup(5)
	if _, err := a.Measure(4, body); err != nil {
		t.Fatal(err)
	}
	req, err := a.Decode(4, body)
	if err != nil {
		t.Fatal(err)
	}
	r := req.(*kmsg.StopReplicaRequest)
	if r.ControllerID != 11 || r.IsKRaftController || r.ControllerEpoch != 0x1203 || r.BrokerEpoch != 0x70a {
		t.Errorf("controller %d, KRaft %v, epoch %#x, broker epoch %#x", r.ControllerID, r.IsKRaftController, r.ControllerEpoch, r.BrokerEpoch)
	}
	if p := r.Topics[0].PartitionStates[0]; r.Topics[0].Topic != "t" || p.Partition != 5 || p.LeaderEpoch != 9 || !p.Delete {
		t.Errorf("%s: %+v", r.Topics[0].Topic, p)
	}
}
