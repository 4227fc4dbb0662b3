// Package compat is the matrix of `make compat`: suites and programs of other makes, each with a pinned version, run against three brokers of ours (`penstock dev
// --bare --brokers 3`) or, to know whose fault a failure is, of Apache Kafka 4.4. What came of them is a table in docs/compatibility.md.
//
//	make compat                     # all
//	make compat RUN=kgo-txn,sarama  # those only
//	make compat PEER=kafka          # against Apache Kafka
//	make compat WRITE=1             # write what came of it into the table
//
// Each program is small and checks its result itself: java, python, node and sarama hold their sources, and the files that pin their clients' versions. The values of
// a key are 0, 1, 2, ..., so that one that is missing, twice or out of order shows at the next one read. A program ends with 0 and a last line that says what it has
// seen, or with its error. Their logs are in bin/compat.
package compat
