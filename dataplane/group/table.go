package group

import (
	"cmp"
	"maps"
	"slices"
)

// offsetTable holds committed offsets by topic and partition. A broker may hold
// millions, most of them of groups that only sit there: a run of 64 partitions
// is one ascending slice, which costs some 50 bytes an offset where a map of maps
// took hundreds, and takes them in any order without moving more than that.
type offsetTable struct {
	runs  map[runKey][]offset
	n     int
	bytes int64 // an estimate, see budget.go
}

// runKey names a run: the partitions of the topic that are number<<runBits and up.
type runKey struct {
	topic  string
	number int32
}

const runBits = 6

func (t *offsetTable) len() int { return t.n }

// get returns what is committed, nil if nothing is; valid until the next change.
func (t *offsetTable) get(topic string, partition int32) *offset {
	run := t.runs[runKey{topic, partition >> runBits}]
	if i, ok := find(run, partition); ok {
		return &run[i]
	}
	return nil
}

// put takes the offset in, in place of the one of its partition. The topic must
// not alias a request.
func (t *offsetTable) put(topic string, o offset) {
	if t.runs == nil {
		t.runs = make(map[runKey][]offset)
	}
	k := runKey{topic, o.partition >> runBits}
	run := t.runs[k]
	i, ok := find(run, o.partition)
	t.bytes += o.size()
	if ok {
		t.bytes -= run[i].size()
		run[i] = o
		return
	}
	if len(run) == 0 {
		t.bytes += int64(runCost + len(topic))
	}
	t.n++
	t.runs[k] = slices.Insert(run, i, o)
}

// remove says whether there was something.
func (t *offsetTable) remove(topic string, partition int32) bool {
	k := runKey{topic, partition >> runBits}
	run := t.runs[k]
	i, ok := find(run, partition)
	if !ok {
		return false
	}
	t.n--
	t.bytes -= run[i].size()
	if len(run) == 1 {
		t.bytes -= int64(runCost + len(topic))
		delete(t.runs, k)
	} else {
		t.runs[k] = slices.Delete(run, i, i+1)
	}
	return true
}

// each gives all to f, in no order; f must not change the table.
func (t *offsetTable) each(f func(topic string, o *offset)) {
	for k, run := range t.runs {
		for i := range run {
			f(k.topic, &run[i])
		}
	}
}

// sorted lists the runs by topic and partition.
func (t *offsetTable) sorted() []runKey {
	return slices.SortedFunc(maps.Keys(t.runs), func(a, b runKey) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.number, b.number))
	})
}

// clip gives back what runs have room for and do not hold; for a table that was
// built and will change little.
func (t *offsetTable) clip() {
	for k, run := range t.runs {
		if cap(run) > len(run)+len(run)/8 {
			t.runs[k] = append(make([]offset, 0, len(run)), run...)
		}
	}
}

func find(run []offset, partition int32) (int, bool) {
	return slices.BinarySearchFunc(run, partition, func(o offset, p int32) int { return cmp.Compare(o.partition, p) })
}
