package brokertest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/oauth"

	"penstock/dataplane/protocol"
)

// TestSecurity breaks into a cluster of two brokers that is set up as the
// provisioner does it. A bystander's connection, made at the start, must be
// served after each attempt.
func TestSecurity(t *testing.T) {
	s := startSecured(t, 2)
	s.topic("orders", 1)
	s.allow("alice", kmsg.ACLResourceTypeTopic, "orders", kmsg.ACLOperationRead, kmsg.ACLOperationWrite)
	s.allow("alice", kmsg.ACLResourceTypeGroup, "team", kmsg.ACLOperationRead)
	s.allow("greedy", kmsg.ACLResourceTypeTopic, "*", kmsg.ACLOperationAll)
	s.allow("greedy", kmsg.ACLResourceTypeGroup, "*", kmsg.ACLOperationAll)

	bystander := s.client("alice")
	pids := []int{s.Brokers[0].PID(), s.Brokers[1].PID()}
	unharmed := func(t *testing.T) {
		t.Helper()
		if got := codes(bystander.must(metadataOf("orders"))); !slices.Equal(got, []int16{0}) {
			t.Errorf("the bystander is answered %v", got)
		}
		for i, n := range s.Brokers {
			if n.ended() || n.PID() != pids[i] {
				t.Fatalf("broker %d has ended", i)
			}
		}
	}
	t.Run("a stock client with a token works", func(t *testing.T) { stockClient(t, s) })
	t.Run("tokens", func(t *testing.T) { refusedTokens(t, s, unharmed) })
	t.Run("before the login", func(t *testing.T) { beforeLogin(t, s); unharmed(t) })
	t.Run("sessions", func(t *testing.T) { sessions(t, s); unharmed(t) })
	t.Run("without ACLs", func(t *testing.T) { withoutACLs(t, s); unharmed(t) })
	t.Run("internal topics", func(t *testing.T) { internalTopics(t, s); unharmed(t) })
	t.Run("every right", func(t *testing.T) { everyRight(t, s); unharmed(t) })
}

func stockClient(t *testing.T, s *secured) {
	client := func(sub string, edit ...func(jwt.MapClaims)) *kgo.Client {
		cl, err := kgo.NewClient(kgo.SeedBrokers(s.Bootstrap()...), kgo.DefaultProduceTopic("orders"), kgo.RetryTimeout(2*time.Second),
			kgo.RecordDeliveryTimeout(5*time.Second), kgo.ConsumerGroup("team"), kgo.ConsumeTopics("orders"),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.SASL(oauth.Oauth(func(context.Context) (oauth.Auth, error) { return oauth.Auth{Token: s.token(sub, edit...)}, nil })))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		return cl
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	good := client("alice")
	// acks=all over two brokers: the follower has logged in with PLAIN.
	if err := good.ProduceSync(ctx, kgo.StringRecord("one")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	fs := good.PollFetches(ctx)
	if err := fs.Err(); err != nil || fs.NumRecords() != 1 || string(fs.Records()[0].Value) != "one" {
		t.Fatalf("%d records, %v", fs.NumRecords(), err)
	}
	if err := client("alice", set("aud", "clu_other")).Ping(ctx); err == nil {
		t.Error("a token of another cluster was accepted")
	}
	if err := client("mallory").ProduceSync(ctx, kgo.StringRecord("two")).FirstErr(); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("producing without the right: %v", err)
	}
}

func refusedTokens(t *testing.T, s *secured, unharmed func(*testing.T)) {
	now := time.Now()
	in := func(d time.Duration) int64 { return now.Add(d).Unix() }
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&s.key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	raw, err := s.key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	good := s.token("alice")
	flip := func(part int) string {
		parts := strings.Split(good, ".")
		b, err := base64.RawURLEncoding.DecodeString(parts[part])
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 1
		parts[part] = base64.RawURLEncoding.EncodeToString(b)
		return strings.Join(parts, ".")
	}
	unsigned := sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "k1", claims("alice"))
	parts := strings.Split(good, ".")
	es := jwt.SigningMethodES256
	for name, token := range map[string]string{
		"expired":                              s.token("alice", set("exp", in(-time.Minute))),
		"without an expiry":                    s.token("alice", func(c jwt.MapClaims) { delete(c, "exp") }),
		"expiring in ten years":                s.token("alice", set("exp", in(10*365*24*time.Hour))),
		"not yet valid":                        s.token("alice", set("nbf", in(2*time.Minute))),
		"issued in the future":                 s.token("alice", set("iat", in(2*time.Minute))),
		"of another tenant's cluster":          s.token("alice", set("aud", "clu_two")),
		"without an audience":                  s.token("alice", func(c jwt.MapClaims) { delete(c, "aud") }),
		"of an audience that begins like ours": s.token("alice", set("aud", testAudience+"x")),
		"of another issuer":                    s.token("alice", set("iss", "https://evil.test")),
		"without a subject":                    s.token(""),
		"with a line end in the subject":       s.token("alice\nUser:broker"),
		"with alg none":                        unsigned,
		"with alg none and our signature":      unsigned + parts[2],
		"HS256 with the public key in PEM":     sign(t, jwt.SigningMethodHS256, public, "k1", claims("alice")),
		"HS256 with the public key's DER":      sign(t, jwt.SigningMethodHS256, der, "k1", claims("alice")),
		"HS256 with the public key's point":    sign(t, jwt.SigningMethodHS256, raw, "k1", claims("alice")),
		"of a key nobody knows":                sign(t, es, stranger, "k2", claims("alice")),
		"of a stranger's key under our kid":    sign(t, es, stranger, "k1", claims("alice")),
		"without a kid":                        sign(t, es, s.key, "", claims("alice")),
		// Known fault: "expired" must never hide a bad signature, neither within
		// the clock skew nor beyond.
		"expired within the skew and of a stranger": sign(t, es, stranger, "k1", claims("alice", set("exp", in(-5*time.Second)))),
		"expired and of a stranger":                 sign(t, es, stranger, "k1", claims("alice", set("exp", in(-time.Hour)))),
		"with a flipped bit in the header":          flip(0),
		"with a flipped bit in the claims":          flip(1),
		"with a flipped bit in the signature":       flip(2),
		"with an empty signature":                   parts[0] + "." + parts[1] + ".",
		"with four parts":                           good + ".x",
		"that is no token":                          "x",
	} {
		t.Run(name, func(t *testing.T) {
			w := dialWire(t, s.Brokers[0].Addr)
			began := time.Now()
			if code, _ := w.login(token); code != kerr.SaslAuthenticationFailed.Code {
				t.Errorf("answered %v", kerr.ErrorForCode(code))
			}
			if took := time.Since(began); took < 100*time.Millisecond {
				t.Errorf("a failed login was answered after %v already", took)
			}
			w.mustBeClosed()
			unharmed(t)
		})
	}
	t.Run("any one byte changed", func(t *testing.T) {
		w := dialWire(t, s.Brokers[0].Addr)
		if code, _ := w.login(good); code != 0 {
			t.Fatal("the token itself is refused")
		}
		// At most a few hundred: all at once, since each refusal is held back.
		var open []*rawConn
		for i := 0; i < len(good); i += 5 {
			b := []byte(good)
			if b[i] = b[i] ^ 1; b[i] == '.' || good[i] == '.' {
				continue
			}
			w := dialWire(t, s.Brokers[0].Addr)
			w.handshake("OAUTHBEARER")
			req := kmsg.NewPtrSASLAuthenticateRequest()
			req.SetVersion(2)
			req.SASLAuthBytes = bearer(string(b))
			if _, err := w.Write(format.AppendRequest(nil, req, 9)); err != nil {
				t.Fatal(err)
			}
			open = append(open, w)
		}
		for _, w := range open {
			req := kmsg.NewPtrSASLAuthenticateRequest()
			req.SetVersion(2)
			resp, err := w.answer(req)
			if err != nil {
				t.Fatal(err)
			}
			if r := resp.(*kmsg.SASLAuthenticateResponse); r.ErrorCode == 0 && len(r.SASLAuthBytes) == 0 {
				t.Error("a changed token was accepted")
			}
			w.Close()
		}
		unharmed(t)
	})
	t.Run("OAUTHBEARER messages without a token", func(t *testing.T) {
		for _, msg := range []string{"", "n,,\x01\x01", "n,,\x01auth=\x01\x01", "n,,\x01auth=Bearer \x01\x01", "n,,\x01auth=Basic " + good + "\x01\x01",
			"p=tls,,\x01auth=Bearer " + good + "\x01\x01", "n,a=bob,\x01auth=Bearer " + good + "\x01\x01", "\x00control\x00c-secret", string(bearer(good)) + "x"} {
			w := dialWire(t, s.Brokers[0].Addr)
			w.handshake("OAUTHBEARER")
			if code, _ := w.loginBytes([]byte(msg)); code != kerr.SaslAuthenticationFailed.Code {
				t.Errorf("%q: answered %v", msg, kerr.ErrorForCode(code))
			}
			w.mustBeClosed()
		}
		unharmed(t)
	})
	t.Run("PLAIN", func(t *testing.T) {
		for _, msg := range []string{"\x00control\x00wrong", "\x00control\x00", "\x00nobody\x00c-secret", "broker\x00control\x00c-secret", "\x00control\x00c-secret\x00", "control"} {
			w := dialWire(t, s.internal[0])
			w.handshake("PLAIN")
			if code, _ := w.loginBytes([]byte(msg)); code != kerr.SaslAuthenticationFailed.Code {
				t.Errorf("%q: answered %v", msg, kerr.ErrorForCode(code))
			}
			w.mustBeClosed()
		}
		unharmed(t)
	})
}

// beforeLogin holds what a stranger may ask against what Kafka answers.
func beforeLogin(t *testing.T, s *secured) {
	for _, a := range protocol.APIs() {
		if a.Has(protocol.BeforeAuth) {
			continue
		}
		for _, addr := range []string{s.Brokers[0].Addr, s.internal[0]} {
			w := dialWire(t, addr)
			if _, err := w.ask(sample(t, a.Key, "orders", "team")); !errors.Is(err, errClosed) {
				t.Errorf("%s before the login: %v", a.Name, err)
			}
			w.Close()
		}
	}
	t.Run("a mechanism of the other listener", func(t *testing.T) {
		for addr, mechanism := range map[string]string{s.Brokers[0].Addr: "PLAIN", s.internal[0]: "OAUTHBEARER"} {
			w := dialWire(t, addr)
			req := kmsg.NewPtrSASLHandshakeRequest()
			req.Mechanism = mechanism
			if got := codes(w.must(req)); !slices.Equal(got, []int16{kerr.UnsupportedSaslMechanism.Code}) {
				t.Errorf("%s: %v", mechanism, got)
			}
			w.mustBeClosed()
		}
	})
	t.Run("a token without a handshake", func(t *testing.T) {
		w := dialWire(t, s.Brokers[0].Addr)
		if code, _ := w.loginBytes(bearer(s.token("alice"))); code != kerr.IllegalSaslState.Code {
			t.Errorf("answered %v", kerr.ErrorForCode(code))
		}
		w.mustBeClosed()
	})
	t.Run("a request between challenge and 0x01", func(t *testing.T) {
		w := dialWire(t, s.Brokers[0].Addr)
		w.handshake("OAUTHBEARER")
		if resp, err := w.authenticate(bearer("x.y.z")); err != nil || len(resp.SASLAuthBytes) == 0 {
			t.Fatalf("%+v %v", resp, err)
		}
		if resp, err := w.authenticate(bearer(s.token("alice"))); err != nil || resp.ErrorCode != kerr.SaslAuthenticationFailed.Code {
			t.Errorf("a good token after a bad one: %+v %v", resp, err)
		}
		w.mustBeClosed()
	})
	t.Run("ApiVersions of the future", func(t *testing.T) {
		w := dialWire(t, s.Brokers[0].Addr)
		req := kmsg.NewPtrApiVersionsRequest()
		b := format.AppendRequest(nil, req, 7)
		b[6], b[7] = 0, 99
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		v0 := kmsg.NewPtrApiVersionsRequest()
		v0.SetVersion(0)
		resp, err := w.answer(v0)
		if err != nil {
			t.Fatal(err)
		}
		r := resp.(*kmsg.ApiVersionsResponse)
		if r.ErrorCode != kerr.UnsupportedVersion.Code || len(r.ApiKeys) != len(protocol.APIs()) {
			t.Errorf("%d keys, %v", len(r.ApiKeys), kerr.ErrorForCode(r.ErrorCode))
		}
		if code, _ := w.login(s.token("alice")); code != 0 {
			t.Errorf("the login after it: %v", kerr.ErrorForCode(code))
		}
		w.must(metadataOf("orders"))
	})
}

// sessions is KIP-368: the token's end ends the session, a new token goes on.
func sessions(t *testing.T, s *secured) {
	soon := func(d time.Duration) func(jwt.MapClaims) {
		return set("exp", jwt.NewNumericDate(time.Now().Add(d)))
	}
	open := func(token string) (*rawConn, time.Duration) {
		w := dialWire(t, s.Brokers[0].Addr)
		code, ms := w.login(token)
		if code != 0 {
			t.Fatal(kerr.ErrorForCode(code))
		}
		return w, time.Duration(ms) * time.Millisecond
	}
	jwt.TimePrecision = time.Millisecond
	defer func() { jwt.TimePrecision = time.Second }()

	idle, life := open(s.token("alice", soon(1500*time.Millisecond)))
	if life <= 0 || life > 1500*time.Millisecond {
		t.Errorf("a session of a token with 1.5 s left lasts %v", life)
	}
	lively, _ := open(s.token("alice", soon(1500*time.Millisecond)))
	late, _ := open(s.token("alice", soon(1500*time.Millisecond)))
	ends := time.Now().Add(life)
	idle.must(metadataOf("orders"))
	if code, ms := lively.login(s.token("alice")); code != 0 || ms < 3_000_000 {
		t.Errorf("re-authentication: %v, lifetime %d ms", kerr.ErrorForCode(code), ms)
	}

	other, _ := open(s.token("alice"))
	if code, _ := other.login(s.token("greedy")); code != kerr.SaslAuthenticationFailed.Code {
		t.Errorf("re-authentication as another principal: %v", kerr.ErrorForCode(code))
	}
	other.mustBeClosed()
	bad, _ := open(s.token("alice"))
	if code, _ := bad.login(s.token("alice", set("aud", "clu_two"))); code != kerr.SaslAuthenticationFailed.Code {
		t.Errorf("re-authentication with a bad token: %v", kerr.ErrorForCode(code))
	}
	bad.mustBeClosed()

	// Within the clock skew, but over: lives for no request.
	over, life := open(s.token("alice", soon(-5*time.Second)))
	if life != time.Millisecond {
		t.Errorf("an expired token gives a session of %v; 0 would be for ever", life)
	}
	time.Sleep(time.Until(ends) + 50*time.Millisecond) // the end of the tokens above
	for name, w := range map[string]*rawConn{"idle": idle, "over": over} {
		if _, err := w.ask(metadataOf("orders")); !errors.Is(err, errClosed) {
			t.Errorf("%s: a request after the session's end: %v", name, err)
		}
	}
	lively.must(metadataOf("orders"))
	if code, _ := late.login(s.token("alice")); code != 0 {
		t.Errorf("re-authentication after the session's end: %v", kerr.ErrorForCode(code))
	}
	late.must(metadataOf("orders"))
}
