package txn

import (
	"cmp"
	"regexp"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Describe handles one id of DescribeTransactions (version 0). Errors: INVALID_REQUEST (no
// id), TRANSACTIONAL_ID_NOT_FOUND, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
func (c *Coordinator) Describe(id string) kmsg.DescribeTransactionsResponseTransactionState {
	d := kmsg.NewDescribeTransactionsResponseTransactionState()
	d.TransactionalID = id
	if id == "" {
		d.ErrorCode = kerr.InvalidRequest.Code
		return d
	}
	err := c.with(id, func(t *transaction, _ *effects) {
		d.ProducerID, d.ProducerEpoch, d.State = t.producerID, t.epoch, t.state.String()
		d.TimeoutMillis, d.StartTimestamp = t.timeout, t.start
		for _, p := range byTopic(t.parts) {
			dt := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
			dt.Topic, dt.Partitions = p.topic, p.partitions
			d.Topics = append(d.Topics, dt)
		}
	})
	if err == kerr.InvalidProducerIDMapping {
		err = kerr.TransactionalIDNotFound
	}
	d.ErrorCode = code(err)
	return d
}

// List handles ListTransactions (versions 0 to 2): the transactional ids that this broker
// coordinates, ordered, by state, producer id, age of the transaction (v1, KIP-994) and a
// regular expression in RE2's syntax that matches the whole id (v2, KIP-1152). While a
// partition is being loaded the answer is COORDINATOR_LOAD_IN_PROGRESS alone; a bad
// expression is INVALID_REGULAR_EXPRESSION.
func (c *Coordinator) List(req *kmsg.ListTransactionsRequest) *kmsg.ListTransactionsResponse {
	resp := kmsg.NewPtrListTransactionsResponse()
	resp.Version = req.Version
	all, loading := c.shards.All()
	if loading {
		resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		return resp
	}
	var pattern *regexp.Regexp
	if req.Version >= 2 && req.TransactionalIDPattern != nil && *req.TransactionalIDPattern != "" {
		var err error
		if pattern, err = regexp.Compile(*req.TransactionalIDPattern); err != nil {
			resp.ErrorCode = kerr.InvalidRegularExpression.Code
			return resp
		}
		pattern.Longest() // so that a match of the whole id is the one that is found
	}
	for _, name := range req.StateFilters {
		if !slices.Contains(stateNames[:], name) {
			resp.UnknownStateFilters = append(resp.UnknownStateFilters, name)
		}
	}
	now := nowMillis()
	for _, t := range all {
		t.mu.Lock()
		gone, producerID, name, start := t.gone, t.producerID, t.state.String(), t.start
		t.mu.Unlock()
		switch {
		case gone != alive,
			len(req.ProducerIDFilters) > 0 && !slices.Contains(req.ProducerIDFilters, producerID),
			len(req.StateFilters) > 0 && !slices.Contains(req.StateFilters, name),
			req.Version >= 1 && req.DurationFilterMillis >= 0 && now-start <= req.DurationFilterMillis,
			pattern != nil && !matchesAll(pattern, t.id):
			continue
		}
		l := kmsg.NewListTransactionsResponseTransactionState()
		l.TransactionalID, l.ProducerID, l.TransactionState = t.id, producerID, name
		resp.TransactionStates = append(resp.TransactionStates, l)
	}
	slices.SortFunc(resp.TransactionStates, func(a, b kmsg.ListTransactionsResponseTransactionState) int {
		return cmp.Compare(a.TransactionalID, b.TransactionalID)
	})
	return resp
}

func matchesAll(longest *regexp.Regexp, s string) bool {
	at := longest.FindStringIndex(s)
	return at != nil && at[0] == 0 && at[1] == len(s)
}
