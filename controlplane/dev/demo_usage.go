package dev

import (
	"context"
	"fmt"
	"maps"
	"time"

	"penstock/controlplane/api/wire"
)

// usageKey is one line of the usage: a service account and a direction.
type usageKey struct{ account, direction string }

func usageBytes(u wire.Usage) map[usageKey]int64 {
	m := map[usageKey]int64{}
	for _, e := range u.Entries {
		// The control plane is a client of the brokers, too, but no service account.
		if e.ServiceAccountID == "" {
			continue
		}
		m[usageKey{e.ServiceAccountID, e.Direction}] = e.Bytes
	}
	return m
}

// publishing is how long brokers may take to publish what they have counted,
// with room: they do so every second.
const publishing = 3 * time.Second

// freshUsage waits until the ledger has read everything that brokers had
// published by some time after the call.
func (d *demo) freshUsage(ctx context.Context) (u wire.Usage, err error) {
	asked := time.Now().Add(publishing)
	err = until(ctx, "usage", func(ctx context.Context) (err error) {
		if u, err = d.tenant.Usage(ctx, d.st.ClusterID); err != nil {
			return err
		}
		if u.ReadAt == nil || u.ReadAt.Before(asked) {
			return fmt.Errorf("read at %v", u.ReadAt)
		}
		return nil
	})
	return u, err
}

// baseline notes the usage before this run, so that this run's can be told
// apart. A cluster that has just been made has none.
func (d *demo) baseline(ctx context.Context) (string, error) {
	d.before = map[usageKey]int64{}
	if !d.st.Produced {
		u, err := d.tenant.Usage(ctx, d.st.ClusterID)
		if err != nil {
			return "", err
		}
		if len(u.Entries) == 0 {
			return "none", nil
		}
	}
	u, err := d.freshUsage(ctx)
	if err != nil {
		return "", err
	}
	d.before = usageBytes(u)
	var sum int64
	for _, n := range d.before {
		sum += n
	}
	return size(float64(sum)), nil
}

// usage compares what the brokers metered with what the clients really sent and
// read, to the byte.
func (d *demo) usage(ctx context.Context) error {
	return d.r.do("usage by service account and direction equals what was sent and read", func() (string, error) {
		want := map[usageKey]int64{}
		names := map[string]string{d.st.Account.ClientID: "mover", d.st.Bystander.ClientID: "bystander", d.st.Greedy.ClientID: "greedy"}
		for account, c := range d.counts {
			want[usageKey{account, "in"}] = c.in.Load()
			want[usageKey{account, "out"}] = c.out.Load()
		}
		maps.DeleteFunc(want, func(_ usageKey, n int64) bool { return n == 0 })
		var got map[usageKey]int64
		equal := func() error {
			u, err := d.freshUsage(ctx)
			if err != nil {
				return err
			}
			got = usageBytes(u)
			for k, n := range got {
				if got[k] = n - d.before[k]; got[k] == 0 {
					delete(got, k)
				}
			}
			if !maps.Equal(got, want) {
				return fmt.Errorf("%s", difference(got, want, names))
			}
			return nil
		}
		// What was appended by a killed broker and never committed is taken back
		// when it is in sync again, so it may take more than one look.
		var err error
		for deadline := time.Now().Add(30 * time.Second); ; {
			if err = equal(); err == nil || time.Now().After(deadline) || ctx.Err() != nil {
				break
			}
		}
		if err != nil {
			return "", err
		}
		var sum int64
		for _, a := range []string{d.st.Account.ClientID, d.st.Bystander.ClientID, d.st.Greedy.ClientID} {
			in, out := got[usageKey{a, "in"}], got[usageKey{a, "out"}]
			sum += in + out
			d.r.row("usage of "+names[a], "%s bytes in, %s bytes out, as metered and as counted by the clients", thousands(in), thousands(out))
		}
		return thousands(sum) + " bytes, exactly", nil
	})
}

func difference(got, want map[usageKey]int64, names map[string]string) string {
	s := ""
	all := maps.Clone(got)
	maps.Copy(all, want)
	for k := range all {
		if got[k] != want[k] {
			s += fmt.Sprintf(" %s %s: metered %d, counted %d (%+d);", names[k.account], k.direction, got[k], want[k], got[k]-want[k])
		}
	}
	return "usage differs:" + s
}
