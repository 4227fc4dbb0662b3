package config

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestNotBefore(t *testing.T) {
	at := time.UnixMilli
	for list, want := range map[string]map[string]time.Time{
		"":                                nil,
		"User:sa_1=5":                     {"User:sa_1": at(5)},
		" User:sa_1=5 , Credential:x=0 ":  {"User:sa_1": at(5), "Credential:x": at(0)},
		"User:a=7,User:a=9,User:a=8":      {"User:a": at(9)},
		"User:CN%3Da%2Cb%25=5,User:a=b=6": {"User:CN=a,b%": at(5), "User:a=b": at(6)},
	} {
		if got, err := ParseNotBefore(list); err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: %v, %v", list, got, err)
		}
	}
	for _, list := range []string{"User:a", "User:=5", "Credential:=5", "a=5", "Group:a=5", "User:a=", "User:a=-1", "User:a=x", "User:%zz=5", "User:a=99999999999999999999", ","} {
		if got, err := ParseNotBefore(list); err == nil {
			t.Errorf("%q was taken: %v", list, got)
		}
	}
}

// A value of one broker's own would hide what is revoked for all.
func TestNotBeforeIsForAllBrokersOnly(t *testing.T) {
	const name = "penstock.auth.not.before"
	s := func(v string) *string { return &v }
	b := mustNew(t)
	cur := kv{}
	for _, c := range []struct {
		op   kmsg.IncrementalAlterConfigOp
		v    *string
		want string
	}{
		{kmsg.IncrementalAlterConfigOpAppend, s("User:a=5"), "User:a=5"}, {kmsg.IncrementalAlterConfigOpAppend, s("Credential:b=6"), "User:a=5,Credential:b=6"},
		{kmsg.IncrementalAlterConfigOpSubtract, s("User:a=5"), "Credential:b=6"},
	} {
		got, err := b.AlterBroker(cur, []Op{{name, c.op, c.v}}, true)
		if err != nil || got[name] != c.want {
			t.Fatalf("%v, %v", got, err)
		}
		cur = got
	}
	n, errs := b.WithDynamic(kv{name: "User:c=7"}, cur)
	if len(errs) != 1 || len(n.NotBefore) != 1 || n.NotBefore["Credential:b"] != time.UnixMilli(6) {
		t.Fatalf("%v, %v", n.NotBefore, errs)
	}
	for _, bad := range []struct {
		v   string
		all bool
	}{{"User:a=5", false}, {"a=5", true}} {
		if _, err := b.AlterBroker(nil, []Op{{name, kmsg.IncrementalAlterConfigOpSet, s(bad.v)}}, bad.all); !errors.Is(err, kerr.InvalidRequest) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := b.AlterBroker(kv{name: "User:a=5"}, []Op{{Name: name, Op: kmsg.IncrementalAlterConfigOpDelete}}, false); err != nil {
		t.Errorf("what another wrote for one broker cannot be removed: %v", err)
	}
	// What cannot be read leaves the last good list.
	if n, errs = n.WithDynamic(nil, kv{name: "rubbish"}); len(errs) != 1 || len(n.NotBefore) != 1 {
		t.Errorf("%v, %v", n.NotBefore, errs)
	}
}
