package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/auth"
	"penstock/dataplane/listener"
)

// DescribeAcls (key 29), versions 1 to 3: the bindings that match a filter.
// Needs Describe on the cluster.
func (h *Handler) describeACLs(r *listener.Request) {
	req := r.Body.(*kmsg.DescribeACLsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeACLsResponse)
	if err := h.aclsRefused(r, kmsg.ACLOperationDescribe); err != nil {
		resp.ErrorCode, resp.ErrorMessage = code(err), text(err)
		r.Reply(resp)
		return
	}
	at := map[auth.Resource]int{}
	bindings, err := h.ACLs.Describe(auth.Filter{
		Type: req.ResourceType, Name: req.ResourceName, Pattern: req.ResourcePatternType,
		Principal: req.Principal, Host: req.Host, Operation: req.Operation, Permission: req.PermissionType,
	})
	resp.ErrorCode, resp.ErrorMessage = code(err), text(err)
	for _, b := range bindings {
		i, ok := at[b.Resource]
		if !ok {
			i = len(resp.Resources)
			at[b.Resource] = i
			res := kmsg.NewDescribeACLsResponseResource()
			res.ResourceType, res.ResourceName, res.ResourcePatternType = b.Type, b.Name, b.Pattern
			resp.Resources = append(resp.Resources, res)
		}
		a := kmsg.NewDescribeACLsResponseResourceACL()
		a.Principal, a.Host, a.Operation, a.PermissionType = b.Principal, b.Host, b.Operation, b.Permission
		resp.Resources[i].ACLs = append(resp.Resources[i].ACLs, a)
	}
	r.Reply(resp)
}

// CreateAcls (key 30), versions 1 to 3: each binding by itself. Needs Alter on
// the cluster.
func (h *Handler) createACLs(r *listener.Request) {
	req := r.Body.(*kmsg.CreateACLsRequest)
	resp := req.ResponseKind().(*kmsg.CreateACLsResponse)
	resp.Results = make([]kmsg.CreateACLsResponseResult, len(req.Creations))
	refused := h.aclsRefused(r, kmsg.ACLOperationAlter)
	bindings := make([]auth.Binding, len(req.Creations))
	for i, c := range req.Creations {
		resp.Results[i] = kmsg.NewCreateACLsResponseResult()
		bindings[i] = auth.Binding{
			Resource: auth.Resource{Type: c.ResourceType, Name: c.ResourceName, Pattern: c.ResourcePatternType},
			Entry:    auth.Entry{Principal: c.Principal, Host: c.Host, Operation: c.Operation, Permission: c.PermissionType},
		}
	}
	var errs []error
	if refused == nil {
		ctx, cancel := h.within(0)
		defer cancel()
		errs = h.ACLs.Create(ctx, bindings)
	}
	for i := range resp.Results {
		err := refused
		if err == nil {
			err = errs[i]
		}
		resp.Results[i].ErrorCode, resp.Results[i].ErrorMessage = code(err), text(err)
	}
	r.Reply(resp)
}

// DeleteAcls (key 31), versions 1 to 3: the bindings that match each filter.
// Needs Alter on the cluster.
func (h *Handler) deleteACLs(r *listener.Request) {
	req := r.Body.(*kmsg.DeleteACLsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteACLsResponse)
	resp.Results = make([]kmsg.DeleteACLsResponseResult, len(req.Filters))
	refused := h.aclsRefused(r, kmsg.ACLOperationAlter)
	filters := make([]auth.Filter, len(req.Filters))
	for i, f := range req.Filters {
		resp.Results[i] = kmsg.NewDeleteACLsResponseResult()
		filters[i] = auth.Filter{
			Type: f.ResourceType, Name: f.ResourceName, Pattern: f.ResourcePatternType,
			Principal: f.Principal, Host: f.Host, Operation: f.Operation, Permission: f.PermissionType,
		}
	}
	var deleted []auth.Deleted
	if refused == nil {
		ctx, cancel := h.within(0)
		defer cancel()
		deleted = h.ACLs.Delete(ctx, filters)
	}
	for i := range resp.Results {
		res := &resp.Results[i]
		err := refused
		if err == nil {
			err = deleted[i].Err
		}
		if res.ErrorCode, res.ErrorMessage = code(err), text(err); err != nil {
			continue
		}
		for _, b := range deleted[i].Matched {
			m := kmsg.NewDeleteACLsResponseResultMatchingACL()
			m.ErrorCode, m.ErrorMessage = code(b.Err), text(b.Err)
			m.ResourceType, m.ResourceName, m.ResourcePatternType = b.Type, b.Name, b.Pattern
			m.Principal, m.Host, m.Operation, m.PermissionType = b.Principal, b.Host, b.Operation, b.Permission
			res.MatchingACLs = append(res.MatchingACLs, m)
		}
	}
	r.Reply(resp)
}

func (h *Handler) aclsRefused(r *listener.Request, op kmsg.ACLOperation) error {
	switch {
	case h.ACLs == nil:
		return kerr.SecurityDisabled
	case !h.authorizeCluster(r, op):
		return kerr.ClusterAuthorizationFailed
	}
	return nil
}
