package dev

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/controlplane/dev/data"
)

// asRead gives the events as a consumer would have them.
func asRead(all []data.Event) []*kgo.Record {
	var out []*kgo.Record
	for i, e := range all {
		out = append(out, &kgo.Record{Key: []byte(e.Network), Value: bytes.Clone(e.Line), Timestamp: time.UnixMilli(e.Time), Offset: int64(i)})
	}
	return out
}

// The demonstration's own check must be able to fail.
func TestComparisonSeesEveryKindOfDamage(t *testing.T) {
	all, err := data.Earthquakes()
	if err != nil {
		t.Fatal(err)
	}
	if err := compare(asRead(all), all); err != nil {
		t.Fatal(err)
	}
	sameKey := 1
	for all[sameKey].Network != all[0].Network {
		sameKey++
	}
	for name, damage := range map[string]func(r []*kgo.Record) []*kgo.Record{
		"lost":      func(r []*kgo.Record) []*kgo.Record { return r[1:] },
		"doubled":   func(r []*kgo.Record) []*kgo.Record { return append(r, r[7]) },
		"replaced":  func(r []*kgo.Record) []*kgo.Record { r[7] = r[8]; return r },
		"reordered": func(r []*kgo.Record) []*kgo.Record { r[0], r[sameKey] = r[sameKey], r[0]; return r },
		"one byte":  func(r []*kgo.Record) []*kgo.Record { r[7].Value[5] ^= 1; return r },
		"key":       func(r []*kgo.Record) []*kgo.Record { r[7].Key = []byte("xx"); return r },
		"time":      func(r []*kgo.Record) []*kgo.Record { r[7].Timestamp = r[7].Timestamp.Add(time.Millisecond); return r },
	} {
		if err := compare(damage(asRead(all)), all); err == nil {
			t.Errorf("%s: not seen", name)
		}
	}
}

func TestPlainReportIsOneLineAStep(t *testing.T) {
	var out strings.Builder
	r := newReporter(&out, false)
	if err := r.do("first", func() (string, error) { r.progress("half"); return "fine", nil }); err != nil {
		t.Fatal(err)
	}
	if err := r.do("second", func() (string, error) { return "", errors.New("broken") }); err == nil || err.Error() != "second: broken" {
		t.Errorf("%v", err)
	}
	r.row("rate", "%d/s", 5)
	r.table()
	got := out.String()
	if strings.Contains(got, "\r") || strings.Contains(got, "\033") || !strings.Contains(got, "first: fine") ||
		!strings.Contains(got, "✗") || !strings.Contains(got, "rate   5/s") {
		t.Errorf("%q", got)
	}
}

func TestTerminalReportClearsItsLine(t *testing.T) {
	var out strings.Builder
	r := newReporter(&out, true)
	if err := r.do("step", func() (string, error) { return "", nil }); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "\r\033[K✓") || !strings.HasSuffix(got, ")\n") {
		t.Errorf("%q", got)
	}
}

func TestPostgresFolderIsNamedAfterTheStateFolder(t *testing.T) {
	a, err := placePostgres("/home/x/one/.penstock")
	if err != nil {
		t.Fatal(err)
	}
	b, err := placePostgres("/home/x/two/.penstock")
	if err != nil {
		t.Fatal(err)
	}
	if a == b {
		t.Errorf("two folders share %s", a)
	}
	if again, _ := placePostgres("/home/x/one/.penstock"); again != a {
		t.Errorf("%s, then %s", a, again)
	}
}

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 1707: "1,707", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) = %s, want %s", n, got, want)
		}
	}
}
