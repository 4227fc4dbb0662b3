package protocol

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	keyProduce            = 0
	keyFetch              = 1
	keyControlledShutdown = 7
	keySaslHandshake      = 17
	keyApiVersions        = 18
	keySaslAuthenticate   = 36
)

// Flags say how the listener treats a request.
type Flags uint8

const (
	// Pipelined requests of one key may start before an earlier one of the
	// same key on the connection has been answered.
	Pipelined Flags = 1 << iota
	// InterBroker requests need ClusterAction on the cluster.
	InterBroker
	// BeforeAuth requests are allowed on a SASL listener before the login.
	BeforeAuth
	// Sasl requests are allowed after the session has expired (KIP-368).
	Sasl
	// KeepsFrame requests alias their frame in a way that handlers use (large
	// byte fields), so the frame is given back only with the reply.
	KeepsFrame
)

// API is one row of the table of what this broker serves.
type API struct {
	Key  int16
	Name string
	// Min and Max are the versions served.
	Min, Max int16
	// AdvertisedMin is the lowest version told to clients. It differs from
	// Min for Produce only: librdkafka switches compression off unless
	// version 0 is named (KAFKA-18659). Max is advertised as it is.
	AdvertisedMin int16
	// FlexibleFrom is the first version with tagged fields (KIP-482), -1 if
	// none.
	FlexibleFrom int16
	Flags        Flags
	// MaxFrame bounds the frame in bytes; 0 means socket.request.max.bytes.
	MaxFrame int
	// MaxMemory bounds what the decoded body may take, in bytes.
	MaxMemory int64
	// Factor is the decoded size of an ordinary body in multiples of its
	// frame. It is taken from the memory budget before the frame is read.
	Factor int

	shape   shape
	aliases bool
}

// AliasesFrame reports whether the decoded body has byte fields, which alias
// the frame. Strings never do.
func (a *API) AliasesFrame() bool { return a.aliases }

// Has reports whether all of f are set.
func (a *API) Has(f Flags) bool { return a.Flags&f == f }

// Lookup finds the row of a key, nil if the broker does not serve it.
func Lookup(key int16) *API {
	if key < 0 || int(key) >= len(byKey) {
		return nil
	}
	return byKey[key]
}

// Supported gives the versions served of a key.
func Supported(key int16) (min, max int16, ok bool) {
	a := Lookup(key)
	if a == nil {
		return 0, 0, false
	}
	return a.Min, a.Max, true
}

// APIs lists the table in the order of the keys. It must not be changed.
func APIs() []*API { return table }

// Measure walks a body without building anything and returns the bytes that
// its decoded form takes besides the frame; it fails for whatever kmsg would
// fail to read. See shape.
func (a *API) Measure(version int16, body []byte) (int64, error) {
	return a.shape.measure(version, a.FlexibleFrom >= 0 && version >= a.FlexibleFrom, body, a.MaxMemory)
}

// Decode builds the request from a body that Measure has accepted. Byte fields
// alias the body, strings do not. See Recycle.
func (a *API) Decode(version int16, body []byte) (kmsg.Request, error) {
	if a.Key == keyProduce {
		r := produces.Get().(*kmsg.ProduceRequest)
		if err := readProduce(r, version, body); err != nil {
			return nil, err
		}
		return r, nil
	}
	r := kmsg.RequestForKey(a.Key)
	r.SetVersion(version)
	if err := r.ReadFrom(body); err != nil {
		return nil, err
	}
	if stop, ok := r.(*kmsg.StopReplicaRequest); ok && version >= 4 {
		// On the wire the flag stands before the epoch; kmsg has it behind.
		stop.IsKRaftController, stop.ControllerEpoch = body[4] != 0, int32(binary.BigEndian.Uint32(body[5:]))
	}
	return r, nil
}

// ApiVersions is the table as a client is told it, at the version asked for.
func ApiVersions(version int16) *kmsg.ApiVersionsResponse {
	r := kmsg.NewPtrApiVersionsResponse()
	r.SetVersion(version)
	r.ApiKeys = make([]kmsg.ApiVersionsResponseApiKey, 0, len(table))
	for _, a := range table {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = a.Key, a.AdvertisedMin, a.Max
		r.ApiKeys = append(r.ApiKeys, k)
	}
	return r
}

// UnsupportedApiVersions answers an ApiVersions request of a version that is
// not served: the layout of version 0, which every client reads, with
// UNSUPPORTED_VERSION and the ranges, so that the client can ask again.
func UnsupportedApiVersions() *kmsg.ApiVersionsResponse {
	r := ApiVersions(0)
	r.ErrorCode = 35
	return r
}

// AnswersAnyVersion reports whether a request of a version that is not served
// is answered (see UnsupportedApiVersions) instead of ending the connection.
func (a *API) AnswersAnyVersion() bool { return a.Key == keyApiVersions }
