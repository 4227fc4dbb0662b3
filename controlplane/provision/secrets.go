package provision

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// Secrets are a cluster's own credentials. The control plane keeps them sealed;
// a broker's folder holds those that the broker needs.
type Secrets struct {
	// BrokerPassword is of the user `broker`, with which brokers of the cluster
	// log in at each other.
	BrokerPassword string `json:"broker_password"`
	// ControlPassword is of the user `control`, the control plane's own.
	ControlPassword string `json:"control_password"`
	// ZooKeeperUser and ZooKeeperPassword are the digest that owns the chroot.
	ZooKeeperUser     string `json:"zookeeper_user"`
	ZooKeeperPassword string `json:"zookeeper_password"`
}

// NewSecrets makes the secrets of a new cluster: 192 random bits each.
func NewSecrets(clusterID string) Secrets {
	return Secrets{
		BrokerPassword:    password(),
		ControlPassword:   password(),
		ZooKeeperUser:     clusterID,
		ZooKeeperPassword: password(),
	}
}

func password() string {
	b := make([]byte, 24)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the program rather than give bad bytes
	return base64.RawURLEncoding.EncodeToString(b)
}

// Encode writes the secrets for sealing.
func (s Secrets) Encode() []byte {
	b, err := json.Marshal(s)
	if err != nil { // strings only
		panic(err)
	}
	return b
}

// DecodeSecrets reads what Encode wrote.
func DecodeSecrets(b []byte) (Secrets, error) {
	var s Secrets
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("read a cluster's secrets: %w", err)
	}
	if s.BrokerPassword == "" || s.ControlPassword == "" || s.ZooKeeperPassword == "" {
		return s, fmt.Errorf("read a cluster's secrets: one is missing")
	}
	return s, nil
}
