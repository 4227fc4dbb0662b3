package auth

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/config"
	"penstock/dataplane/protocol"
)

func TestPlainLogin(t *testing.T) {
	l := newLogin(t)
	for name, c := range map[string]struct {
		msg string
		who string
	}{
		"good":              {"\x00broker\x00b-secret", "User:broker"},
		"good with authzid": {"control\x00control\x00c-secret", "User:control"},
		"other authzid":     {"control\x00broker\x00b-secret", ""},
		"wrong password":    {"\x00broker\x00c-secret", ""},
		"password prefix":   {"\x00broker\x00b-secre", ""},
		"unknown user":      {"\x00nobody\x00b-secret", ""},
		"no password":       {"\x00broker\x00", ""},
		"no user":           {"\x00\x00b-secret", ""},
		"two parts":         {"broker\x00b-secret", ""},
		"four parts":        {"\x00broker\x00b-secret\x00x", ""},
		"not UTF-8":         {"\x00broker\x00\xff", ""},
		"empty":             {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := l.NewSession()
			mustHandshake(t, s, Plain)
			res, err := s.Authenticate(context.Background(), []byte(c.msg))
			if c.who == "" {
				wantFailed(t, res, err, "b-secret")
				if protocol.Code(err) != 58 {
					t.Fatalf("code %d", protocol.Code(err))
				}
				if _, err := s.Authenticate(context.Background(), []byte("\x00broker\x00b-secret")); !errors.Is(err, kerr.IllegalSaslState) {
					t.Fatalf("a second try on a failed connection: %v", err)
				}
				return
			}
			if err != nil || !res.Done || res.Principal != c.who || res.LifetimeMs != 0 || !res.Expires.IsZero() {
				t.Fatalf("%+v, %v", res, err)
			}
		})
	}
}

func TestHandshakeStates(t *testing.T) {
	l := newLogin(t)
	s := l.NewSession()
	if _, err := s.Authenticate(context.Background(), nil); !errors.Is(err, kerr.IllegalSaslState) {
		t.Fatalf("authenticate first: %v", err)
	}
	s = l.NewSession()
	mechs, err := s.Handshake("SCRAM-SHA-256")
	if !errors.Is(err, kerr.UnsupportedSaslMechanism) || strings.Join(mechs, ",") != "PLAIN,OAUTHBEARER" {
		t.Fatalf("%v, %v", mechs, err)
	}
	s = l.NewSession()
	mustHandshake(t, s, Plain)
	if _, err := s.Handshake(Plain); !errors.Is(err, kerr.IllegalSaslState) {
		t.Fatalf("second handshake: %v", err)
	}
}

func TestNoTokenAndMalformedMessagesAreRefused(t *testing.T) {
	l := newLogin(t)
	good := l.token(t)
	for name, msg := range map[string]string{
		"empty":             "",
		"no fields":         "n,,\x01\x01",
		"no token":          "n,,\x01auth=Bearer \x01\x01",
		"only extensions":   "n,,\x01trace=x\x01\x01",
		"other scheme":      "n,,\x01auth=Basic " + good + "\x01\x01",
		"auth twice":        "n,,\x01auth=Bearer " + good + "\x01auth=Bearer " + good + "\x01\x01",
		"channel binding":   "p=tls-unique,,\x01auth=Bearer " + good + "\x01\x01",
		"client supports":   "y,,\x01auth=Bearer " + good + "\x01\x01",
		"no end":            "n,,\x01auth=Bearer " + good + "\x01",
		"text after":        "n,,\x01auth=Bearer " + good + "\x01\x01x",
		"bad authzid":       "n,b=x,\x01auth=Bearer " + good + "\x01\x01",
		"control character": "n,,\x01auth=Bearer " + good + "\x00\x01\x01",
		"huge":              "n,,\x01auth=Bearer " + strings.Repeat("x", maxBearer) + "\x01\x01",
	} {
		t.Run(name, func(t *testing.T) {
			s := l.NewSession()
			mustHandshake(t, s, OAuthBearer)
			res, err := s.Authenticate(context.Background(), []byte(msg))
			wantFailed(t, res, err, good)
		})
	}
	for name, msg := range map[string]string{
		"lower-case scheme": "n,,\x01auth=bearer " + good + "\x01\x01",
		"own authzid":       "n,a=sa_one,\x01auth=Bearer " + good + "\x01\x01",
		"extension":         "n,,\x01trace=a b\x01auth=Bearer " + good + "\x01\x01",
	} {
		s := l.NewSession()
		mustHandshake(t, s, OAuthBearer)
		if res, err := s.Authenticate(context.Background(), []byte(msg)); err != nil || !res.Done {
			t.Fatalf("%s: %+v, %v", name, res, err)
		}
	}
	s := l.NewSession()
	mustHandshake(t, s, OAuthBearer)
	if res, err := s.Authenticate(context.Background(), []byte("n,a=sa_two,\x01auth=Bearer "+good+"\x01\x01")); err != nil || res.Done {
		t.Fatalf("another's authorization id: %+v, %v", res, err)
	}
}

func TestAfterTheChallengeOnlyTheDummyMessageIsAwaited(t *testing.T) {
	l := newLogin(t)
	s := l.NewSession()
	mustHandshake(t, s, OAuthBearer)
	res, err := s.Authenticate(context.Background(), bearer("a.b.c"))
	if err != nil || res.Done || len(res.Bytes) == 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	res, err = s.Authenticate(context.Background(), bearer(l.token(t)))
	wantFailed(t, res, err, "a.b.c")
}

func TestSessionLifetimeIsTheSmallerOfTokenAndSetting(t *testing.T) {
	for name, c := range map[string]struct {
		token, max time.Duration
		want       time.Duration
	}{
		"token":        {3 * time.Minute, 0, 3 * time.Minute},
		"token below":  {3 * time.Minute, time.Hour, 3 * time.Minute},
		"setting":      {3 * time.Minute, time.Minute, time.Minute},
		"already over": {-10 * time.Second, time.Minute, 0},
		"over, no max": {-10 * time.Second, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLogin(t, func(s *ServerConfig) { s.MaxReauth = c.max })
			before := time.Now()
			res, err := tryToken(t, l.Server, l.token(t, "exp", before.Add(c.token).Unix()))
			if err != nil || !res.Done {
				t.Fatal(err)
			}
			// Never 0, which would mean unlimited; and the deadline is always set.
			if res.LifetimeMs < 1 || res.Expires.IsZero() {
				t.Fatalf("%+v", res)
			}
			got := time.Duration(res.LifetimeMs) * time.Millisecond
			if got > c.want+time.Millisecond || got < c.want-2*time.Second {
				t.Fatalf("lifetime %v, want %v", got, c.want)
			}
			if res.Expires.After(time.Now().Add(c.want + time.Second)) {
				t.Fatalf("expires %v", res.Expires)
			}
		})
	}
	l := newLogin(t, func(s *ServerConfig) { s.MaxReauth = time.Minute })
	s := l.NewSession()
	mustHandshake(t, s, Plain)
	if res, _ := s.Authenticate(context.Background(), []byte("\x00broker\x00b-secret")); res.LifetimeMs < 59_000 || res.LifetimeMs > 60_000 {
		t.Fatalf("PLAIN: %+v", res)
	}
}

func TestReauthenticationKeepsMechanismAndPrincipal(t *testing.T) {
	l := newLogin(t)
	start := func() *Session {
		s := l.NewSession()
		mustHandshake(t, s, OAuthBearer)
		if res, err := s.Authenticate(context.Background(), bearer(l.token(t))); err != nil || !res.Done {
			t.Fatal(err)
		}
		return s
	}
	s := start()
	for range 3 {
		mustHandshake(t, s, OAuthBearer)
		if res, err := s.Authenticate(context.Background(), bearer(l.token(t))); err != nil || !res.Done || res.Principal != "User:sa_one" {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	mustHandshake(t, s, OAuthBearer)
	res, err := s.Authenticate(context.Background(), bearer(l.token(t, "sub", "sa_two")))
	wantFailed(t, res, err, "sa_two")

	s = start()
	mustHandshake(t, s, Plain)
	res, err = s.Authenticate(context.Background(), []byte("\x00broker\x00b-secret"))
	wantFailed(t, res, err, "b-secret")

	s = start() // without a handshake there is no re-authentication
	if _, err := s.Authenticate(context.Background(), bearer(l.token(t))); !errors.Is(err, kerr.IllegalSaslState) {
		t.Fatal(err)
	}
}

func TestJAAS(t *testing.T) {
	j, err := ParseJAAS(PlainModule + " required\n  username=\"broker\" password='p;\\'q\\\\'\n user_broker=\"a\\\"b c=;\" user_control=bare;\n")
	if err != nil {
		t.Fatal(err)
	}
	if user, pass, ok := j.Credentials(); user != "broker" || pass != `p;'q\` || !ok {
		t.Fatalf("%q %q %v", user, pass, ok)
	}
	if u := j.Users(); len(u) != 2 || u["broker"] != `a"b c=;` || u["control"] != "bare" {
		t.Fatalf("%q", u)
	}
	for _, bad := range []string{"", ";", "M", "M required", "M sometimes;", `M required a="x"`, `M required a="x;`, "M required a;", "M required a=;", "M required; N required;", `M required a="1" a="2";`, `M required "x"="y";`} {
		if _, err := ParseJAAS(bad); err == nil {
			t.Errorf("%q accepted", bad)
		} else if strings.Contains(err.Error(), "x") && strings.Contains(bad, "x") && strings.Contains(err.Error(), `"x`) {
			t.Errorf("%q quoted in %v", bad, err)
		}
	}
}

func brokerConfig(t *testing.T, more map[string]string) *config.Broker {
	p := map[string]string{
		"broker.id": "1", "log.dirs": "/d", "zookeeper.connect": "z:1", "listeners": "CLIENT://127.0.0.1:1,INTERNAL://127.0.0.1:2",
		"listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:SASL_PLAINTEXT", "inter.broker.listener.name": "INTERNAL",
		"listener.name.client.sasl.enabled.mechanisms": "OAUTHBEARER", "listener.name.internal.sasl.enabled.mechanisms": "PLAIN",
		"sasl.mechanism.inter.broker.protocol":          "PLAIN",
		"listener.name.internal.plain.sasl.jaas.config": PlainModule + ` required username="broker" password="pw" user_broker="pw" user_control="cw";`,
		"sasl.oauthbearer.jwks.endpoint.url":            "http://127.0.0.1:1/jwks", "sasl.oauthbearer.expected.audience": testAudience,
		"sasl.oauthbearer.expected.issuer": testIssuer,
	}
	for k, v := range more {
		p[k] = v
	}
	b, err := config.New(p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestListenersFromSettings(t *testing.T) {
	b := brokerConfig(t, nil)
	for listener, mech := range map[string]string{"CLIENT": OAuthBearer, "INTERNAL": Plain} {
		s, err := ForListener(b, listener, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		mechs, err := s.NewSession().Handshake(mech)
		if err != nil || len(mechs) != 1 || mechs[0] != mech {
			t.Fatalf("%s: %v, %v", listener, mechs, err)
		}
	}
	user, password, ok, err := InterBrokerCredentials(b)
	if user != "broker" || password != "pw" || !ok || err != nil {
		t.Fatalf("%q %q %v %v", user, password, ok, err)
	}
	for _, broken := range []map[string]string{
		{"sasl.oauthbearer.expected.audience": ""}, {"sasl.oauthbearer.expected.issuer": ""},
		{"listener.name.client.sasl.enabled.mechanisms": "GSSAPI"}, {"listener.name.client.sasl.enabled.mechanisms": ""},
		{"listener.name.client.sasl.enabled.mechanisms": "PLAIN"},
	} {
		if s, err := ForListener(brokerConfig(t, broken), "CLIENT", nil, nil); err == nil {
			s.Close()
			t.Errorf("%v accepted", broken)
		}
	}
}

func FuzzParseBearer(f *testing.F) {
	f.Add([]byte("n,a=x=2Cy,\x01auth=Bearer a.b.c\x01k=v\x01\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		token, _, err := parseBearer(b)
		if (err == nil) != (token != "") {
			t.Fatalf("token %q, error %v", token, err)
		}
	})
}

func FuzzParseJAAS(f *testing.F) {
	f.Add(PlainModule + ` required username="a" password='b\'' user_a=b;`)
	f.Fuzz(func(t *testing.T, s string) { ParseJAAS(s) })
}
