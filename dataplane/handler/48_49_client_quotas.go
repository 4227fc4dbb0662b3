package handler

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/admission"
	"penstock/dataplane/listener"
)

// Entity types of client quotas (KIP-546), and of addresses (KIP-612), which stand alone.
const (
	entityUser   = "user"
	entityClient = "client-id"
	entityIP     = "ip"
)

// quotaKeys are the quotas that this broker enforces on users and client ids, ipQuotaKeys on
// addresses.
var (
	quotaKeys   = []string{admission.ProducerByteRate, admission.ConsumerByteRate, admission.RequestPercentage}
	ipQuotaKeys = []string{admission.ConnectionCreationRate}
)

// DescribeClientQuotas (key 48), versions 0 and 1: the quota entities that
// match every component; strict ones have no other part. A null name matches
// the default entity. Needs DescribeConfigs on the cluster.
func (h *Handler) describeClientQuotas(r *listener.Request) {
	req := r.Body.(*kmsg.DescribeClientQuotasRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClientQuotasResponse)
	entries, err := h.findQuotas(r, req)
	resp.ErrorCode, resp.ErrorMessage = code(err), text(err)
	if err == nil {
		resp.Entries = entries
	}
	r.Reply(resp)
}

func (h *Handler) findQuotas(r *listener.Request, req *kmsg.DescribeClientQuotasRequest) ([]kmsg.DescribeClientQuotasResponseEntry, error) {
	if !h.authorizeCluster(r, kmsg.ACLOperationDescribeConfigs) {
		return nil, kerr.ClusterAuthorizationFailed
	}
	want := map[string]kmsg.DescribeClientQuotasRequestComponent{}
	for _, c := range req.Components {
		if c.EntityType == "" {
			return nil, fmt.Errorf("%w: an entity type is empty", kerr.InvalidRequest)
		}
		if c.EntityType != entityUser && c.EntityType != entityClient && c.EntityType != entityIP {
			return nil, fmt.Errorf("%w: quotas for %q are not served", kerr.UnsupportedVersion, c.EntityType)
		}
		if _, twice := want[c.EntityType]; twice {
			return nil, fmt.Errorf("%w: %q is named twice", kerr.InvalidRequest, c.EntityType)
		}
		if c.MatchType < 0 || c.MatchType > 2 || (c.MatchType == 0) != (c.Match != nil) {
			return nil, fmt.Errorf("%w: match type %d", kerr.InvalidRequest, c.MatchType)
		}
		want[c.EntityType] = c
	}
	if _, ip := want[entityIP]; ip && len(want) > 1 {
		return nil, fmt.Errorf("%w: addresses do not go together with users and client ids", kerr.InvalidRequest)
	}
	ctx, cancel := h.within(0)
	defer cancel()
	all, err := h.Store.Quotas(ctx)
	if err != nil {
		return nil, err
	}
	entries := []kmsg.DescribeClientQuotasResponseEntry{}
	for _, q := range all {
		if len(q.Values) == 0 || !matches(want, entityUser, q.User, req.Strict) || !matches(want, entityClient, q.ClientID, req.Strict) || !matches(want, entityIP, q.IP, req.Strict) {
			continue
		}
		e := kmsg.NewDescribeClientQuotasResponseEntry()
		addPart := func(typ string, name *string) {
			if name == nil {
				return
			}
			p := kmsg.NewDescribeClientQuotasResponseEntryEntity()
			p.Type = typ
			if *name != DefaultEntity {
				p.Name = name
			}
			e.Entity = append(e.Entity, p)
		}
		addPart(entityUser, q.User)
		addPart(entityClient, q.ClientID)
		addPart(entityIP, q.IP)
		for _, k := range slices.Sorted(maps.Keys(q.Values)) {
			v, err := strconv.ParseFloat(q.Values[k], 64)
			if err != nil {
				continue // not a quota: SCRAM credentials live on the same znodes
			}
			value := kmsg.NewDescribeClientQuotasResponseEntryValue()
			value.Key, value.Value = k, v
			e.Values = append(e.Values, value)
		}
		if len(e.Values) > 0 {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

func matches(want map[string]kmsg.DescribeClientQuotasRequestComponent, typ string, name *string, strict bool) bool {
	c, asked := want[typ]
	if !asked {
		return name == nil || !strict
	}
	switch {
	case name == nil:
		return false
	case c.MatchType == 0:
		return *name == *c.Match
	case c.MatchType == 1:
		return *name == DefaultEntity
	}
	return true
}

// AlterClientQuotas (key 49), versions 0 and 1: sets and removes quotas of
// entities, each by itself. A null name is the default entity. Needs
// AlterConfigs on the cluster.
func (h *Handler) alterClientQuotas(r *listener.Request) {
	req := r.Body.(*kmsg.AlterClientQuotasRequest)
	resp := req.ResponseKind().(*kmsg.AlterClientQuotasResponse)
	ctx, cancel := h.within(0)
	defer cancel()
	allowed := h.authorizeCluster(r, kmsg.ACLOperationAlterConfigs)
	for i := range req.Entries {
		in := &req.Entries[i]
		var err error = kerr.ClusterAuthorizationFailed
		if allowed {
			err = h.alterQuota(ctx, in, req.ValidateOnly)
		}
		out := kmsg.NewAlterClientQuotasResponseEntry()
		out.ErrorCode, out.ErrorMessage = code(err), text(err)
		for _, e := range in.Entity {
			p := kmsg.NewAlterClientQuotasResponseEntryEntity()
			p.Type, p.Name = e.Type, e.Name
			out.Entity = append(out.Entity, p)
		}
		resp.Entries = append(resp.Entries, out)
	}
	r.Reply(resp)
}

func (h *Handler) alterQuota(ctx context.Context, in *kmsg.AlterClientQuotasRequestEntry, dry bool) error {
	entity, err := quotaEntity(in.Entity)
	if err != nil {
		return err
	}
	if dry {
		_, err := alterValues(entity, map[string]string{}, in.Ops)
		return err
	}
	return h.Store.ChangeQuotas(ctx, entity, func(now map[string]string) (map[string]string, error) {
		return alterValues(entity, now, in.Ops)
	})
}

// alterValues applies the ops to values; settings that are no quotas, as SCRAM
// credentials on the same znode, stay.
func alterValues(of QuotaEntity, values map[string]string, ops []kmsg.AlterClientQuotasRequestEntryOp) (map[string]string, error) {
	keys := quotaKeys
	if of.IP != nil {
		keys = ipQuotaKeys
	}
	for _, op := range ops {
		switch {
		case !slices.Contains(keys, op.Key):
			return nil, fmt.Errorf("%w: no such quota: %q", kerr.InvalidRequest, op.Key)
		case op.Remove:
			delete(values, op.Key)
		case of.IP != nil && (math.IsNaN(op.Value) || op.Value < 0 || op.Value > math.MaxInt32 || op.Value != math.Trunc(op.Value)):
			return nil, fmt.Errorf("%w: %s is a whole number of connections per second", kerr.InvalidRequest, op.Key)
		case of.IP != nil: // 0 is one connection each window
			values[op.Key] = strconv.FormatFloat(op.Value, 'f', -1, 64)
		case math.IsNaN(op.Value) || math.IsInf(op.Value, 0) || op.Value <= 0:
			return nil, fmt.Errorf("%w: %s must be above 0", kerr.InvalidRequest, op.Key)
		case op.Key != "request_percentage" && op.Value != math.Trunc(op.Value):
			return nil, fmt.Errorf("%w: %s is a whole number of bytes per second", kerr.InvalidRequest, op.Key)
		default:
			values[op.Key] = strconv.FormatFloat(op.Value, 'f', -1, 64)
		}
	}
	return values, nil
}

func quotaEntity(parts []kmsg.AlterClientQuotasRequestEntryEntity) (QuotaEntity, error) {
	var q QuotaEntity
	for _, p := range parts {
		name := DefaultEntity
		if p.Name != nil {
			name = *p.Name
			if name == "" || name == DefaultEntity {
				return q, fmt.Errorf("%w: %q is no name of a %s", kerr.InvalidRequest, name, p.Type)
			}
		}
		switch {
		case p.Type == entityUser && q.User == nil:
			q.User = &name
		case p.Type == entityClient && q.ClientID == nil:
			q.ClientID = &name
		case p.Type == entityIP && q.IP == nil:
			if p.Name != nil {
				if _, err := netip.ParseAddr(name); err != nil {
					return q, fmt.Errorf("%w: %q is not an IP address", kerr.InvalidRequest, name)
				}
			}
			q.IP = &name
		case p.Type == entityUser || p.Type == entityClient || p.Type == entityIP:
			return q, fmt.Errorf("%w: %q is named twice", kerr.InvalidRequest, p.Type)
		default:
			return q, fmt.Errorf("%w: quotas for %q are not served", kerr.InvalidRequest, p.Type)
		}
	}
	if q.IP != nil && len(parts) > 1 {
		return q, fmt.Errorf("%w: an address does not go together with a user or a client id", kerr.InvalidRequest)
	}
	if len(parts) == 0 {
		return q, fmt.Errorf("%w: an entity has at least one part", kerr.InvalidRequest)
	}
	return q, nil
}
