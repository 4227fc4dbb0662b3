package coordination

// Endpoint is one advertised address of a broker.
type Endpoint struct {
	Listener         string // upper case
	SecurityProtocol string // PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
	Host             string
	Port             int32
}

// Broker is a registration under /brokers/ids.
type Broker struct {
	ID        int32
	Endpoints []Endpoint
	Rack      string // "" when it has none
	JMXPort   int32  // -1 when it has none
	Epoch     int64  // czxid of the registration; set by reads
}
