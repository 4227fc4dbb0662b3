package provision

import (
	"strings"
	"testing"
)

func TestRenderedProperties(t *testing.T) {
	s := spec(2)
	s.Security.Secrets = Secrets{BrokerPassword: "bp", ControlPassword: "cp", ZooKeeperUser: "clu_test", ZooKeeperPassword: "zp"}
	s.Set = []Property{{"num.partitions", "7"}, {"penstock.x", `a\b`}}
	got := string(render(s, layout{dir: "/d", client: 1001, internal: 1002}))
	for _, want := range []string{
		"broker.id=2",
		"log.dirs=/d/data",
		"listeners=CLIENT://127.0.0.1:1001,INTERNAL://127.0.0.1:1002",
		"inter.broker.listener.name=INTERNAL",
		`listener.name.internal.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="bp" user_broker="bp" user_control="cp";`,
		"zookeeper.connect=127.0.0.1:2181/clusters/clu_test",
		"penstock.zookeeper.digest=clu_test:zp",
		"sasl.oauthbearer.expected.audience=clu_test",
		"min.insync.replicas=2",
		"default.replication.factor=3",
		"num.partitions=7", // --set wins
		`penstock.x=a\\b`,
	} {
		if !strings.Contains("\n"+got, "\n"+want+"\n") {
			t.Errorf("no line %q in\n%s", want, got)
		}
	}
	if n := strings.Count(got, "num.partitions="); n != 1 {
		t.Errorf("num.partitions stands %d times", n)
	}
}

func TestBareBrokersTakeAnyoneAndMakeTopics(t *testing.T) {
	s := spec(0)
	s.Security, s.Chroot, s.Brokers = nil, "", 1
	got := string(render(s, layout{dir: "/d", client: 1001}))
	for _, want := range []string{"listeners=PLAINTEXT://127.0.0.1:1001", "auto.create.topics.enable=true", "num.partitions=4",
		"offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1", "group.initial.rebalance.delay.ms=0", "min.insync.replicas=1"} {
		if !strings.Contains("\n"+got, "\n"+want+"\n") {
			t.Errorf("no line %q in\n%s", want, got)
		}
	}
	for _, no := range []string{"sasl", "authorizer", "digest", "usage"} {
		if strings.Contains(got, no) {
			t.Errorf("%q in a bare broker's settings:\n%s", no, got)
		}
	}
}

func TestSecretsRoundTrip(t *testing.T) {
	s := NewSecrets("clu_x")
	got, err := DecodeSecrets(s.Encode())
	if err != nil || got != s {
		t.Errorf("%+v, %v", got, err)
	}
	if s == NewSecrets("clu_x") {
		t.Error("secrets repeat")
	}
	if _, err := DecodeSecrets([]byte(`{"broker_password":"x"}`)); err == nil {
		t.Error("incomplete secrets were taken")
	}
}
