package usage

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func good() Record {
	return Record{Version: Version, Cluster: "clu", Broker: 2, BootEpoch: 1700, Seq: 3, At: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), Final: true,
		Entries: []Entry{{"User:a", In, 1 << 60, 2, 3}, {"User:a", Out, 4, 0, 5}}}
}

func TestRecordKeepsItsContent(t *testing.T) {
	r := good()
	b, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := Decode(b)
	if err != nil || !reflect.DeepEqual(*back, r) {
		t.Fatalf("%+v, %v", back, err)
	}
	if string(r.Key()) != "broker-2" {
		t.Error(string(r.Key()))
	}
}

// The form of version 1, byte for byte: records of old brokers must stay readable.
func TestVersion1Form(t *testing.T) {
	const want = `{"version":1,"cluster":"clu","broker":2,"boot_epoch":1700,"seq":3,"at":"2026-01-02T03:04:05.000006Z","final":true,"entries":[` +
		`{"principal":"User:a","direction":"in","bytes":1152921504606846976,"records":2,"requests":3},{"principal":"User:a","direction":"out","bytes":4,"records":0,"requests":5}]}`
	r := good()
	if b, err := r.Encode(); err != nil || string(b) != want {
		t.Fatalf("%s, %v", b, err)
	}
}

func TestLargestRecordFits(t *testing.T) {
	r := good()
	r.Entries = nil
	for i := range MaxEntries {
		p := fmt.Sprintf("User:%0*d", MaxPrincipal-5, i)
		r.Entries = append(r.Entries, Entry{p, Out, 1<<63 - 1, 1<<63 - 1, 1<<63 - 1})
	}
	b, err := r.Encode()
	if err != nil || len(b) > MaxSize {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	r.Entries = append(r.Entries, Entry{"User:x", In, 1, 1, 1})
	if _, err := r.Encode(); err == nil {
		t.Error("one more accepted")
	}
}

func TestBadRecordsAreRefused(t *testing.T) {
	r := good()
	b, _ := r.Encode()
	text := string(b)
	for name, in := range map[string]string{
		"empty": "", "no object": "[]", "null": "null", "cut": text[:len(text)-1], "text after": text + "{}", "unknown field": strings.Replace(text, `"seq"`, `"sequel":1,"seq"`, 1),
		"negative": strings.Replace(text, `"bytes":4`, `"bytes":-4`, 1), "fraction": strings.Replace(text, `"bytes":4`, `"bytes":4.5`, 1), "too large": strings.Replace(text, `"bytes":4`, `"bytes":9223372036854775808`, 1),
		"direction": strings.Replace(text, `"out"`, `"up"`, 1), "twice": strings.Replace(text, `"out"`, `"in"`, 1), "principal": strings.Replace(text, "User:a", `\n`, 1),
		"no principal": strings.Replace(text, "User:a", "", 1), "broker": strings.Replace(text, `"broker":2`, `"broker":-2`, 1), "epoch": strings.Replace(text, "1700", "0", 1),
		"seq": strings.Replace(text, `"seq":3`, `"seq":0`, 1), "time": strings.Replace(text, "2026", "0001", 1), "size": strings.Replace(text, `"seq"`, strings.Repeat(" ", MaxSize)+`"seq"`, 1),
	} {
		if _, err := Decode([]byte(in)); err == nil {
			t.Errorf("%s accepted", name)
		}
	}
	for _, v := range []string{"0", "2", "-1"} {
		if _, err := Decode([]byte(strings.Replace(text, `"version":1`, `"version":`+v, 1))); !errors.Is(err, ErrVersion) {
			t.Errorf("version %s: %v", v, err)
		}
	}
	if _, err := Decode([]byte(`{"version":2,"whatever":true}`)); !errors.Is(err, ErrVersion) {
		t.Errorf("a newer record: %v", err)
	}
	for _, change := range []func(*Record){func(r *Record) { r.Seq = 0 }, func(r *Record) { r.At = time.Time{} }, func(r *Record) { r.Entries[0].Principal = strings.Repeat("x", MaxPrincipal+1) }, func(r *Record) { r.Cluster = "\xff" }} {
		r := good()
		change(&r)
		if _, err := r.Encode(); err == nil {
			t.Errorf("%+v encoded", r)
		}
	}
}

func FuzzDecode(f *testing.F) {
	r := good()
	b, _ := r.Encode()
	f.Add(b)
	f.Add([]byte(`{"version":1,"entries":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decode(b)
		if err != nil {
			return
		}
		again, err := r.Encode()
		if err != nil {
			t.Fatalf("decoded but not encoded: %v", err)
		}
		back, err := Decode(again)
		if err != nil || len(back.Entries) != len(r.Entries) || !back.At.Equal(r.At) {
			t.Fatalf("%+v became %+v (%v)", r, back, err)
		}
	})
}
