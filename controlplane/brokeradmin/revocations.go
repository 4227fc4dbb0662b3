package brokeradmin

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// notBefore is the brokers' list of revocations, a dynamic setting of all of them.
const notBefore = "penstock.auth.not.before"

// Revocation is one entry of it: tokens with this name in them that were issued
// before the time are refused, and connections that logged in with one are cut.
type Revocation struct {
	Name string // User:NAME, Credential:ID
	At   time.Time
}

func (r Revocation) entry() string {
	// PathEscape leaves a comma and an equals sign as they are.
	name := strings.NewReplacer(",", "%2C", "=", "%3D").Replace(url.PathEscape(r.Name))
	return name + "=" + strconv.FormatInt(r.At.UnixMilli(), 10)
}

// EnsureRevoked adds the entry and returns when every broker goes by it. What others
// have put into the list stays.
func (a *Admin) EnsureRevoked(ctx context.Context, r Revocation) error {
	return a.changeRevocations(ctx, kadm.AppendConfig, r)
}

// DropRevoked takes the entry out, if it is there.
func (a *Admin) DropRevoked(ctx context.Context, r Revocation) error {
	return a.changeRevocations(ctx, kadm.SubtractConfig, r)
}

func (a *Admin) changeRevocations(ctx context.Context, op kadm.IncrementalOp, r Revocation) error {
	entry := r.entry()
	// Adding twice, or taking away what is not there, changes nothing.
	rs, err := a.adm.AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Op: op, Name: notBefore, Value: &entry}})
	if err == nil && len(rs) != 1 {
		err = fmt.Errorf("%d answers", len(rs))
	}
	if err == nil && rs[0].Err != nil {
		if err = rs[0].Err; rs[0].ErrMessage != "" {
			err = fmt.Errorf("%w: %s", err, rs[0].ErrMessage)
		}
	}
	if err != nil {
		return fmt.Errorf("alter %s (%s): %w", notBefore, entry, err)
	}
	return a.everywhere(ctx, "revocation "+entry, func(ctx context.Context, b *kgo.Broker) (bool, error) {
		list, err := revocations(ctx, b)
		return slices.Contains(list, entry) == (op == kadm.AppendConfig), err
	})
}

// revocations are those that the broker itself goes by.
func revocations(ctx context.Context, b *kgo.Broker) ([]string, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	rr := kmsg.NewDescribeConfigsRequestResource()
	rr.ResourceType, rr.ConfigNames = kmsg.ConfigResourceTypeBroker, []string{notBefore} // without a name: those for all
	req.Resources = append(req.Resources, rr)
	resp, err := req.RequestWith(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("describe %s: %w", notBefore, err)
	}
	for _, r := range resp.Resources {
		if err := codeError(r.ErrorCode, r.ErrorMessage); err != nil {
			return nil, fmt.Errorf("describe %s: %w", notBefore, err)
		}
		for _, c := range r.Configs {
			if c.Value != nil {
				return strings.Split(*c.Value, ","), nil
			}
		}
	}
	return nil, nil
}
