package brokertest

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	wirebytes "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

const (
	testIssuer   = "https://issuer.test"
	testAudience = "clu_one"
)

// secured is a cluster as the provisioner writes it: tokens for clients, PLAIN
// between brokers and for the control plane, ACLs.
type secured struct {
	*Cluster
	t        *testing.T
	key      *ecdsa.PrivateKey
	internal []string // addresses of the INTERNAL listeners
	adm      *kadm.Client
}

func startSecured(t *testing.T, brokers int, settings ...string) *secured {
	t.Helper()
	return startSecuredBy(t, nil, brokers, settings...)
}

// startSecuredBy starts the brokers by another command; see Options.Wrap.
func startSecuredBy(t *testing.T, wrap []string, brokers int, settings ...string) *secured {
	t.Helper()
	s := &secured{t: t}
	var err error
	if s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		raw, _ := s.key.PublicKey.Bytes()
		b64 := base64.RawURLEncoding.EncodeToString
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]string{
			"kty": "EC", "use": "sig", "alg": "ES256", "crv": "P-256", "kid": "k1", "x": b64(raw[1:33]), "y": b64(raw[33:]),
		}}})
	}))
	t.Cleanup(issuer.Close)
	cache := t.TempDir()
	s.internal = make([]string, brokers)
	s.Cluster = Start(t, Options{Brokers: brokers, Ports: 2, Listeners: func(id int, p []int) []string {
		s.internal[id] = fmt.Sprintf("127.0.0.1:%d", p[1])
		addrs := fmt.Sprintf("CLIENT://127.0.0.1:%d,INTERNAL://127.0.0.1:%d", p[0], p[1])
		return []string{
			"listeners=" + addrs, "advertised.listeners=" + addrs,
			"listener.security.protocol.map=CLIENT:SASL_PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
			"inter.broker.listener.name=INTERNAL",
			"listener.name.client.sasl.enabled.mechanisms=OAUTHBEARER",
			"listener.name.internal.sasl.enabled.mechanisms=PLAIN",
			"sasl.mechanism.inter.broker.protocol=PLAIN",
			`listener.name.internal.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="b-secret" user_broker="b-secret" user_control="c-secret";`,
			"sasl.oauthbearer.jwks.endpoint.url=" + issuer.URL,
			"sasl.oauthbearer.expected.audience=" + testAudience,
			"sasl.oauthbearer.expected.issuer=" + testIssuer,
			fmt.Sprintf("penstock.oauth.jwks.cache.file=%s", filepath.Join(cache, fmt.Sprintf("jwks-%d.json", id))),
			"authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
			"super.users=User:broker;User:control",
			"allow.everyone.if.no.acl.found=false",
			"zookeeper.set.acl=true", "penstock.zookeeper.digest=clu:zk-secret",
			"auto.create.topics.enable=false", "min.insync.replicas=1",
			"penstock.usage.enable=true", "penstock.usage.interval.ms=1000",
			fmt.Sprintf("penstock.usage.topic.replication.factor=%d", brokers),
		}
	}, Settings: settings, Wrap: wrap})
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.internal...), kgo.SASL(plain.Auth{User: "control", Pass: "c-secret"}.AsMechanism()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	s.adm = kadm.NewClient(cl)
	Await(t, 30*time.Second, "the brokers knowing each other", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		req := kmsg.NewPtrMetadataRequest() // kadm answers from what the client heard last
		req.Topics = []kmsg.MetadataRequestTopic{}
		m, err := req.RequestWith(ctx, cl)
		if err == nil && (len(m.Brokers) < brokers || m.ControllerID < 0) {
			err = fmt.Errorf("%d brokers, controller %d", len(m.Brokers), m.ControllerID)
		}
		return err
	})
	return s
}

// claims are those of a good token of sub, changed by edit.
func claims(sub string, edit ...func(jwt.MapClaims)) jwt.MapClaims {
	now := time.Now()
	c := jwt.MapClaims{"iss": testIssuer, "aud": testAudience, "sub": sub, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	for _, f := range edit {
		f(c)
	}
	return c
}

func (s *secured) token(sub string, edit ...func(jwt.MapClaims)) string {
	s.t.Helper()
	return sign(s.t, jwt.SigningMethodES256, s.key, "k1", claims(sub, edit...))
}

func sign(t *testing.T, m jwt.SigningMethod, key any, kid string, c jwt.MapClaims) string {
	t.Helper()
	tok := jwt.NewWithClaims(m, c)
	tok.Header["kid"] = kid
	text, err := tok.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func set(name string, v any) func(jwt.MapClaims) { return func(c jwt.MapClaims) { c[name] = v } }

// allow gives a principal an operation on topics or groups of a name.
func (s *secured) allow(sub string, typ kmsg.ACLResourceType, name string, ops ...kmsg.ACLOperation) {
	s.t.Helper()
	req := kmsg.NewPtrCreateACLsRequest()
	for _, op := range ops {
		c := kmsg.NewCreateACLsRequestCreation()
		c.ResourceType, c.ResourceName, c.ResourcePatternType = typ, name, kmsg.ACLResourcePatternTypeLiteral
		c.Principal, c.Host, c.Operation, c.PermissionType = "User:"+sub, "*", op, kmsg.ACLPermissionTypeAllow
		req.Creations = append(req.Creations, c)
	}
	for _, addr := range s.internal { // each broker, so that all know it when this returns
		c := s.control(addr)
		resp := c.must(req).(*kmsg.CreateACLsResponse)
		if got := codes(resp); !slices.Equal(got, []int16{0}) {
			s.t.Fatalf("creating ACLs: %v", got)
		}
		c.Close()
	}
}

func (s *secured) topic(name string, partitions int32, configs ...string) {
	s.t.Helper()
	cfg := map[string]*string{}
	for _, kv := range configs {
		k, v, _ := strings.Cut(kv, "=")
		cfg[k] = &v
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := s.adm.CreateTopic(ctx, partitions, int16(len(s.Brokers)), cfg, name); err != nil {
		s.t.Fatalf("creating topic %s: %v", name, err)
	}
}

// rawConn is a client that says exactly what it is told to.
type rawConn struct {
	net.Conn
	t    testing.TB
	r    *bufio.Reader
	corr int32
}

var format = kmsg.NewRequestFormatter(kmsg.FormatterClientID("raw"))

func dialWire(t testing.TB, addr string) *rawConn {
	t.Helper()
	nc, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	w := &rawConn{Conn: nc, t: t, r: bufio.NewReader(nc)}
	t.Cleanup(func() { nc.Close() })
	return w
}

var errClosed = errors.New("the broker has closed the connection")

// frame reads one reply without its length; errClosed when there is none.
func (w *rawConn) frame() ([]byte, error) {
	_ = w.SetReadDeadline(time.Now().Add(20 * time.Second))
	var head [4]byte
	if _, err := io.ReadFull(w.r, head[:]); err != nil {
		var ne net.Error
		if errors.As(err, &ne) && ne.Timeout() {
			return nil, fmt.Errorf("neither answered nor closed: %w", err)
		}
		return nil, errClosed
	}
	b := make([]byte, wirebytes.BigEndian.Uint32(head[:]))
	_, err := io.ReadFull(w.r, b)
	return b, err
}

// ask sends a request at the version it has and reads its reply.
func (w *rawConn) ask(req kmsg.Request) (kmsg.Response, error) {
	w.corr++
	if _, err := w.Write(format.AppendRequest(nil, req, w.corr)); err != nil {
		return nil, errClosed
	}
	return w.answer(req)
}

func (w *rawConn) answer(req kmsg.Request) (kmsg.Response, error) {
	b, err := w.frame()
	if err != nil {
		return nil, err
	}
	b = b[4:]
	resp := req.ResponseKind()
	if resp.SetVersion(req.GetVersion()); resp.IsFlexible() && req.Key() != 18 {
		b = b[1:]
	}
	return resp, resp.ReadFrom(b)
}

func (w *rawConn) must(req kmsg.Request) kmsg.Response {
	w.t.Helper()
	setVersion(req)
	resp, err := w.ask(req)
	if err != nil {
		w.t.Fatalf("%T: %v", req, err)
	}
	return resp
}

// byName are the last versions of Produce, OffsetCommit and OffsetFetch that name topics, as
// these tests do.
var byName = map[int16]int16{0: 12, 8: 9, 9: 9}

// naming has a client's own requests of these kinds name topics.
func naming() kgo.Opt {
	v := kversion.Stable()
	for key, last := range byName {
		v.SetMaxKeyVersion(key, last)
	}
	return kgo.MaxVersions(v)
}

// setVersion takes the highest that the broker serves, and that names topics.
func setVersion(req kmsg.Request) {
	if v, ok := highest[req.Key()]; ok {
		if named, ok := byName[req.Key()]; ok {
			v = min(v, named)
		}
		req.SetVersion(v)
	}
}

func (w *rawConn) handshake(mechanism string) {
	w.t.Helper()
	req := kmsg.NewPtrSASLHandshakeRequest()
	req.Mechanism = mechanism
	if resp := w.must(req).(*kmsg.SASLHandshakeResponse); resp.ErrorCode != 0 {
		w.t.Fatalf("handshake %s: %v", mechanism, kerr.ErrorForCode(resp.ErrorCode))
	}
}

func (w *rawConn) authenticate(b []byte) (*kmsg.SASLAuthenticateResponse, error) {
	req := kmsg.NewPtrSASLAuthenticateRequest()
	req.SASLAuthBytes = b
	req.SetVersion(2)
	resp, err := w.ask(req)
	if err != nil {
		return nil, err
	}
	return resp.(*kmsg.SASLAuthenticateResponse), nil
}

func bearer(token string) []byte { return []byte("n,,\x01auth=Bearer " + token + "\x01\x01") }

// login sends a token and returns the code of the refusal, 0 if it was
// accepted, and the session's lifetime.
func (w *rawConn) login(token string) (code int16, lifetime int64) {
	w.t.Helper()
	w.handshake("OAUTHBEARER")
	return w.loginBytes(bearer(token))
}

func (w *rawConn) loginBytes(b []byte) (int16, int64) {
	w.t.Helper()
	resp, err := w.authenticate(b)
	if err == nil && resp.ErrorCode == 0 && len(resp.SASLAuthBytes) > 0 {
		if want := `{"status":"invalid_token"}`; string(resp.SASLAuthBytes) != want {
			w.t.Errorf("challenge %q", resp.SASLAuthBytes)
		}
		resp, err = w.authenticate([]byte{1})
		if err == nil && resp.ErrorCode == 0 {
			w.t.Fatal("a refused token became a login")
		}
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.ErrorCode, resp.SessionLifetimeMillis
}

// client is a raw connection of a logged-in principal.
func (s *secured) client(sub string) *rawConn {
	s.t.Helper()
	w := dialWire(s.t, s.Brokers[0].Addr)
	if code, _ := w.login(s.token(sub)); code != 0 {
		s.t.Fatalf("login of %s: %v", sub, kerr.ErrorForCode(code))
	}
	return w
}

// control is a raw connection of the control plane.
func (s *secured) control(addr string) *rawConn {
	s.t.Helper()
	w := dialWire(s.t, addr)
	w.handshake("PLAIN")
	if code, _ := w.loginBytes([]byte("\x00control\x00c-secret")); code != 0 {
		s.t.Fatal(kerr.ErrorForCode(code))
	}
	return w
}

// mustBeClosed says that nothing more comes, within seconds.
func (w *rawConn) mustBeClosed() {
	w.t.Helper()
	if b, err := w.frame(); !errors.Is(err, errClosed) {
		w.t.Fatalf("the connection is open: %x, %v", b, err)
	}
}

// codes are all error codes in a response, each once, in order.
func codes(resp kmsg.Response) []int16 {
	found := map[int16]bool{}
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem())
			}
		case reflect.Slice:
			if v.Type().Elem().Kind() == reflect.Struct {
				for i := range v.Len() {
					walk(v.Index(i))
				}
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if f := v.Type().Field(i); f.Name == "ErrorCode" {
					found[int16(v.Field(i).Int())] = true
				} else if f.IsExported() && f.Name != "UnknownTags" {
					walk(v.Field(i))
				}
			}
		}
	}
	walk(reflect.ValueOf(resp))
	return slices.Sorted(maps.Keys(found))
}

// memory is a line of the process's status, VmRSS or VmHWM, in MiB.
func (n *Node) memory(line string) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.PID()))
	if err != nil {
		n.c.t.Fatal(err)
	}
	for l := range strings.SplitSeq(string(b), "\n") {
		if rest, ok := strings.CutPrefix(l, line+":"); ok {
			kb, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			if err != nil {
				n.c.t.Fatal(err)
			}
			return kb / 1024
		}
	}
	n.c.t.Fatalf("no %s of the broker", line)
	return 0
}

// forgetPeak sets VmHWM back to what is in memory now.
func (n *Node) forgetPeak() {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", n.PID()), []byte("5"), 0); err != nil {
		n.c.t.Logf("the peak of memory cannot be reset: %v", err)
	}
}
