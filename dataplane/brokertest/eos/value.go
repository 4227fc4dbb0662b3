package eos

import (
	"fmt"
	"strconv"
	"strings"
)

// A record's value tells where it comes from: its input, and the transaction that
// wrote it at each stage, the last of them its own.
//
//	1/204 feed-1.0.13 m0.2.5 m4.0.9

// NoTxn is the transaction of a record that was written outside of any.
const NoTxn = "-"

// Input is what a feeder sends, and what every stage passes on.
type Input struct {
	Feeder, Seq int
}

func (in Input) String() string { return fmt.Sprintf("%d/%d", in.Feeder, in.Seq) }

// keys is how many keys a feeder has. A key's inputs come in rising order.
const keys = 8

func (in Input) key() string { return fmt.Sprintf("%d-%d", in.Feeder, in.Seq%keys) }

// value is a record's as it is first sent.
func (in Input) value(txn string) string { return in.String() + " " + txn }

// passOn is the value that a stage makes of another.
func passOn(value, txn string) string { return value + " " + txn }

// parse reads a value; ok is false if nobody of ours has made it.
func parse(value string) (in Input, txn string, ok bool) {
	words := strings.Split(value, " ")
	feeder, seq, found := strings.Cut(words[0], "/")
	f, err1 := strconv.Atoi(feeder)
	s, err2 := strconv.Atoi(seq)
	if !found || err1 != nil || err2 != nil || len(words) < 2 {
		return Input{}, "", false
	}
	return Input{f, s}, words[len(words)-1], true
}
