package client

import (
	"context"
	"fmt"

	"penstock/controlplane/api/wire"
)

// StatusError is the end of a wait for something that will not come by itself.
type StatusError struct {
	What    string // such as: topic earthquakes
	State   string // of a cluster or operation
	Problem wire.StatusProblem
}

func (e *StatusError) Error() string {
	s := e.What
	if e.State != "" {
		s += " is " + e.State
	}
	s += ": " + e.Problem.Title
	if e.Problem.Detail != "" {
		s += ": " + e.Problem.Detail
	}
	return s
}

// waitFor repeats a long-polling read until done says so. When the context
// ends the error tells what was missing last.
func waitFor[T any](ctx context.Context, c *Client, what, path string, done func(T) (bool, *wire.StatusProblem, error)) (T, error) {
	for {
		v, err := get[T](ctx, c, path, true)
		if err != nil {
			return v, fmt.Errorf("wait for %s: %w", what, err)
		}
		ok, p, err := done(v)
		if ok || err != nil {
			return v, err
		}
		if ctx.Err() != nil {
			if p != nil {
				return v, fmt.Errorf("wait for %s: %w (%s: %s)", what, ctx.Err(), p.Title, p.Detail)
			}
			return v, fmt.Errorf("wait for %s: %w", what, ctx.Err())
		}
	}
}

// WaitCluster waits until the cluster is ready; a *StatusError when it failed
// or is being deleted.
func (c *Client) WaitCluster(ctx context.Context, id string) (wire.Cluster, error) {
	what := "cluster " + id
	return waitFor(ctx, c, what, clusterPath(id), func(v wire.Cluster) (bool, *wire.StatusProblem, error) {
		switch v.Status.State {
		case "ready":
			return true, nil, nil
		case "failed", "deleting", "deleted":
			e := &StatusError{What: what, State: v.Status.State}
			if v.Status.Problem != nil {
				e.Problem = *v.Status.Problem
			}
			return false, nil, e
		}
		return false, v.Status.Problem, nil
	})
}

// WaitOperation waits until the operation has ended; a *StatusError when it failed.
func (c *Client) WaitOperation(ctx context.Context, id string) (wire.Operation, error) {
	what := "operation " + id
	return waitFor(ctx, c, what, "/v1/operations/"+esc(id), func(v wire.Operation) (bool, *wire.StatusProblem, error) {
		switch v.State {
		case "succeeded":
			return true, nil, nil
		case "failed":
			e := &StatusError{What: what, State: v.State}
			if v.Problem != nil {
				e.Problem = *v.Problem
			}
			return false, nil, e
		}
		return false, v.Problem, nil
	})
}

// WaitTopic waits until the brokers have the topic's newest generation.
func (c *Client) WaitTopic(ctx context.Context, cluster, name string) (wire.Topic, error) {
	what := "topic " + name
	return waitFor(ctx, c, what, topicPath(cluster, name), func(v wire.Topic) (bool, *wire.StatusProblem, error) {
		return enforced(what, v.Status)
	})
}

// WaitQuota waits until every broker enforces the quota's newest generation.
func (c *Client) WaitQuota(ctx context.Context, cluster, account string) (wire.Quota, error) {
	what := "quota of " + account
	return waitFor(ctx, c, what, accountPath(cluster, account)+"/quota", func(v wire.Quota) (bool, *wire.StatusProblem, error) {
		return enforced(what, v.Status)
	})
}

// WaitACL waits until every broker enforces the rule.
func (c *Client) WaitACL(ctx context.Context, cluster, id string) (wire.ACL, error) {
	what := "access rule " + id
	return waitFor(ctx, c, what, clusterPath(cluster)+"/acls/"+esc(id), func(v wire.ACL) (bool, *wire.StatusProblem, error) {
		return enforced(what, v.Status)
	})
}

func enforced(what string, s wire.Status) (bool, *wire.StatusProblem, error) {
	switch {
	case s.Applied:
		return true, nil, nil
	case s.Problem != nil && !s.Problem.Retryable:
		return false, nil, &StatusError{What: what, Problem: *s.Problem}
	}
	return false, s.Problem, nil
}
