package compat

import (
	"os"
	"regexp"
	"testing"
)

// program is a row of the matrix.
type program struct {
	name   string // of RUN=
	client string
	pin    pin    // where its version stands
	what   string // what it does, for the table
	run    func(*rig) error
}

// pin is a file of this folder, and what stands before the version there.
type pin struct{ file, before string }

var (
	javaPin = pin{"java/pom.xml", `<kafka\.version>`}
	kgoPin  = pin{"../../../go.mod", `github\.com/twmb/franz-go v`}
)

// matrix is what `make compat` runs, in this order.
var matrix = []program{
	{"kgo", "franz-go", kgoPin, "its own tests of `pkg/kgo`, replication 3, without the chains below", kgo("", "TestGroupETL|TestTxnEtl")},
	{"kgo-groups", "franz-go", kgoPin, "its chain of three groups, members coming and going: range, cooperative-sticky, static members, KIP-848", kgo("TestGroupETL", "")},
	{"kgo-groups-chaos", "franz-go", kgoPin, "the same with every connection killed within 1.5 s", kgo("TestGroupETL", "", "KGO_TEST_CHAOS=1")},
	{"kgo-txn", "franz-go", kgoPin, "its chain of three groups, exactly once by transactions, KIP-848 too", kgo("TestTxnEtl", "")},
	{"kgo-txn-chaos", "franz-go", kgoPin, "the same with every connection killed within 1.5 s", kgo("TestTxnEtl", "", "KGO_TEST_CHAOS=1")},
	{"verifiable-classic", "Kafka's verifiable-producer and -consumer", javaPin, "two consumers, one ends: each record read once, in order", verifiable("classic")},
	{"verifiable-consumer", "Kafka's verifiable-producer and -consumer", javaPin, "the same with `group.protocol=consumer`", verifiable("consumer")},
	{"java-classic", "Kafka's Java client", javaPin, "a group with the cooperative-sticky assignor", java("group-classic")},
	{"java-consumer", "Kafka's Java client", javaPin, "a group with `group.protocol=consumer`", java("group-consumer")},
	{"java-txn", "Kafka's Java client", javaPin, "read, process and write in transactions", java("transactions")},
	{"streams-wordcount", "Kafka Streams", javaPin, "word count with a state store", java("wordcount")},
	{"streams-windows", "Kafka Streams", javaPin, "sums by key and window in a window store", java("windows")},
	{"librdkafka-cooperative", "librdkafka (confluent-kafka)", pin{"python/requirements.txt", "confluent-kafka=="}, "a group with cooperative-sticky", python("confluent.py", "group-cooperative")},
	{"librdkafka-consumer", "librdkafka (confluent-kafka)", pin{"python/requirements.txt", "confluent-kafka=="}, "a group with `group.protocol=consumer`", python("confluent.py", "group-consumer")},
	{"librdkafka-txn", "librdkafka (confluent-kafka)", pin{"python/requirements.txt", "confluent-kafka=="}, "read, process and write in transactions", python("confluent.py", "transactions")},
	{"kafka-python", "kafka-python", pin{"python/requirements.txt", "kafka-python=="}, "a group", python("kafkapython.py", "group")},
	{"kafka-python-txn", "kafka-python", pin{"python/requirements.txt", "kafka-python=="}, "read, process and write in transactions", python("kafkapython.py", "transactions")},
	{"kafkajs", "kafkajs", pin{"node/package.json", `"kafkajs": "`}, "a group", node("group")},
	{"kafkajs-txn", "kafkajs", pin{"node/package.json", `"kafkajs": "`}, "read, process and write in transactions", node("transactions")},
	{"sarama", "sarama", pin{"sarama/go.mod", `github\.com/IBM/sarama v`}, "a group", sarama("group")},
	{"sarama-txn", "sarama", pin{"sarama/go.mod", `github\.com/IBM/sarama v`}, "read, process and write in transactions", sarama("transactions")},
}

// version reads the pinned version.
func (p pin) version(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(p.before + `([0-9][0-9.]*[0-9])\b`).FindSubmatch(b)
	if m == nil {
		t.Fatalf("%s pins no version behind %q", p.file, p.before)
	}
	return string(m[1])
}
