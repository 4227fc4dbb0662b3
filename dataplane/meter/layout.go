package meter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync/atomic"
	"unsafe"

	"penstock/dataplane/protocol"
	"penstock/tenants"
	"penstock/tenants/usage"
)

// The file, version 1. All numbers are in the machine's byte order, 8-byte
// fields are aligned. Four areas follow each other:
//
//	header      4096 bytes
//	principals  nPrincipals x 320: len u32, name, pad, 6 counters i64, crc u32
//	partitions  nPartitions x 272: len u32, partition i32, crc u32, topic
//	journal     nJournal x 64: state u64, principal u32, partition u32, base,
//	            last, bytes, records, requests, time (ms) i64
//
// A principal or partition is there when its len is not 0, which is stored
// last. A journal entry is there when its state is 1, stored last and cleared
// first. Principal 0 is usage.Overflow.
const (
	magic       = "PSMETER1"
	headerSize  = 4096
	offMagic    = 0
	offEpoch    = 8
	offBroker   = 16
	offNP       = 24 // u32
	offNT       = 28 // u32
	offNJ       = 32 // u32
	offHeadCRC  = 36 // u32 over the bytes before
	offSeq      = 64 // last sequence number used
	offFinal    = 72 // 1: the final record of this boot has been published
	offOp       = 128
	opKind      = offOp
	opIndex     = offOp + 8
	opSlot      = offOp + 16
	opValues    = offOp + 24 // 4 values
	principalSz = 320
	nameOff     = 4
	countersOff = 264
	nameCRCOff  = 312
	partitionSz = 272
	topicOff    = 12
	entrySz     = 64
)

// Kinds of op.
const (
	opNone    = 0
	opCounter = 1 // counter opIndex takes values 0..2, then journal slot opSlot-1 is freed
	opEntry   = 2 // journal slot opIndex takes last, bytes, records, requests
)

const (
	dirIn  = 0
	dirOut = 1
)

// Bounds of what a file may say of itself.
const (
	maxPrincipals = 1 << 16
	maxPartitions = 1 << 16
	maxJournal    = 1 << 20
)

var errFormat = errors.New("meter: not a usable counter file")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// values is one counter: bytes, records, requests.
type values [3]int64

// entry is one journal entry.
type entry struct {
	principal, partition uint32
	base, last           int64
	values               values
	time                 int64 // ms
}

// layout is a counter file in memory, mapped or read.
type layout struct {
	data       []byte
	np, nt, nj uint32
}

func fileSize(np, nt, nj uint32) int64 {
	return headerSize + int64(np)*principalSz + int64(nt)*partitionSz + int64(nj)*entrySz
}

func (l *layout) u64(off int) *uint64 { return (*uint64)(unsafe.Pointer(&l.data[off])) }
func (l *layout) u32(off int) *uint32 { return (*uint32)(unsafe.Pointer(&l.data[off])) }

// Loads and stores are atomic so that neither compiler nor CPU reorders the
// stores that a kill may fall between.
func (l *layout) get(off int) int64       { return int64(atomic.LoadUint64(l.u64(off))) }
func (l *layout) put(off int, v int64)    { atomic.StoreUint64(l.u64(off), uint64(v)) }
func (l *layout) get32(off int) uint32    { return atomic.LoadUint32(l.u32(off)) }
func (l *layout) put32(off int, v uint32) { atomic.StoreUint32(l.u32(off), v) }
func (l *layout) principal(i uint32) int  { return headerSize + int(i)*principalSz }
func (l *layout) partition(i uint32) int  { return l.principal(l.np) + int(i)*partitionSz }
func (l *layout) slot(i uint32) int       { return l.partition(l.nt) + int(i)*entrySz }
func (l *layout) counter(i uint32) int    { return l.principal(i/2) + countersOff + int(i%2)*24 }
func counterIndex(p uint32, d int) uint32 { return p*2 + uint32(d) }

// initialise writes the header of a new file; data is zero.
func (l *layout) initialise(epoch int64, broker int32) {
	copy(l.data, magic)
	l.put(offEpoch, epoch)
	l.put(offBroker, int64(broker))
	l.put32(offNP, l.np)
	l.put32(offNT, l.nt)
	l.put32(offNJ, l.nj)
	l.put32(offHeadCRC, crc32.Checksum(l.data[:offHeadCRC], castagnoli))
	l.setName(0, usage.Overflow)
}

// parse checks the whole of a file's bytes and redoes an op that was under way.
// Entries that make no sense (after a loss of power) are freed; dropped says
// how many.
func parse(data []byte) (l *layout, dropped int, err error) {
	if len(data) < headerSize || string(data[:len(magic)]) != magic {
		return nil, 0, errFormat
	}
	l = &layout{data: data}
	if l.get32(offHeadCRC) != crc32.Checksum(data[:offHeadCRC], castagnoli) {
		return nil, 0, fmt.Errorf("%w: header", errFormat)
	}
	l.np, l.nt, l.nj = l.get32(offNP), l.get32(offNT), l.get32(offNJ)
	if l.np == 0 || l.np > maxPrincipals || l.nt > maxPartitions || l.nj > maxJournal || int64(len(data)) != fileSize(l.np, l.nt, l.nj) {
		return nil, 0, fmt.Errorf("%w: size", errFormat)
	}
	if l.epoch() < 1 || l.seq() < 0 {
		return nil, 0, fmt.Errorf("%w: epoch or sequence", errFormat)
	}
	if !l.redo() {
		dropped++
	}
	for i := uint32(0); i < l.nj; i++ {
		if _, used := l.entry(i); used && !l.sane(i) {
			l.free(i)
			dropped++
		}
	}
	return l, dropped, nil
}

func (l *layout) epoch() int64 { return l.get(offEpoch) }
func (l *layout) seq() int64   { return l.get(offSeq) }

// redo completes the op of the file, if one was under way.
func (l *layout) redo() (ok bool) {
	kind := l.get(opKind)
	idx, slot := l.get(opIndex), l.get(opSlot)
	switch {
	case kind == opNone:
		return true
	case kind == opCounter && idx >= 0 && idx < int64(l.np)*2 && slot >= 0 && slot <= int64(l.nj):
	case kind == opEntry && idx >= 0 && idx < int64(l.nj):
	default:
		l.put(opKind, opNone)
		return false
	}
	l.apply()
	return true
}

// begin makes an op valid: from its last store on it will be carried out.
func (l *layout) begin(kind int64, index, slot int64, v [4]int64) {
	l.put(opIndex, index)
	l.put(opSlot, slot)
	for i := range v {
		l.put(opValues+8*i, v[i])
	}
	l.put(opKind, kind)
}

// apply carries out the valid op and ends it.
func (l *layout) apply() {
	idx, slot := uint32(l.get(opIndex)), l.get(opSlot)
	switch l.get(opKind) {
	case opCounter:
		c := l.counter(idx)
		for i := range 3 {
			l.put(c+8*i, l.get(opValues+8*i))
		}
		if slot > 0 {
			l.free(uint32(slot - 1))
		}
	case opEntry:
		o := l.slot(idx)
		for i, f := range []int{24, 32, 40, 48} {
			l.put(o+f, l.get(opValues+8*i))
		}
	}
	l.put(opKind, opNone)
}

// values reads a counter.
func (l *layout) values(counter uint32) values {
	c := l.counter(counter)
	return values{l.get(c), l.get(c + 8), l.get(c + 16)}
}

// add adds to a counter and frees a journal slot (-1: none) in one step.
func (l *layout) add(counter uint32, v values, slot int64) {
	old := l.values(counter)
	l.begin(opCounter, int64(counter), slot+1, [4]int64{old[0] + v[0], old[1] + v[1], old[2] + v[2]})
	l.apply()
}

// name reads a principal; "" if there is none or it is damaged.
func (l *layout) name(i uint32) string {
	o := l.principal(i)
	n := l.get32(o)
	if n == 0 || n > usage.MaxPrincipal {
		return ""
	}
	name := l.data[o+nameOff : o+nameOff+int(n)]
	if crc32.Checksum(name, castagnoli) != l.get32(o+nameCRCOff) || !usage.ValidPrincipal(string(name)) {
		return ""
	}
	return string(name)
}

func (l *layout) setName(i uint32, name string) {
	o := l.principal(i)
	copy(l.data[o+nameOff:], name)
	l.put32(o+nameCRCOff, crc32.Checksum([]byte(name), castagnoli))
	l.put32(o, uint32(len(name)))
}

// tp reads a partition; ok is false if there is none or it is damaged.
func (l *layout) tp(i uint32) (tp protocol.TopicPartition, ok bool) {
	o := l.partition(i)
	n := l.get32(o)
	if n == 0 || n > tenants.MaxTopicName {
		return tp, false
	}
	topic := l.data[o+topicOff : o+topicOff+int(n)]
	tp = protocol.TopicPartition{Topic: string(topic), Partition: int32(l.get32(o + 4))}
	return tp, l.get32(o+8) == tpCRC(tp) && tp.Partition >= 0
}

func (l *layout) setTP(i uint32, tp protocol.TopicPartition) {
	o := l.partition(i)
	l.put32(o, 0)
	l.put32(o+4, uint32(tp.Partition))
	l.put32(o+8, tpCRC(tp))
	copy(l.data[o+topicOff:], tp.Topic)
	l.put32(o, uint32(len(tp.Topic)))
}

func tpCRC(tp protocol.TopicPartition) uint32 {
	c := crc32.Checksum([]byte(tp.Topic), castagnoli)
	return crc32.Update(c, castagnoli, binary.BigEndian.AppendUint32(nil, uint32(tp.Partition)))
}

func (l *layout) entry(i uint32) (e entry, used bool) {
	o := l.slot(i)
	if l.get(o) != 1 {
		return entry{}, false
	}
	return entry{
		principal: l.get32(o + 8), partition: l.get32(o + 12), base: l.get(o + 16), last: l.get(o + 24),
		values: values{l.get(o + 32), l.get(o + 40), l.get(o + 48)}, time: l.get(o + 56),
	}, true
}

func (l *layout) setEntry(i uint32, e entry) {
	o := l.slot(i)
	l.put32(o+8, e.principal)
	l.put32(o+12, e.partition)
	l.put(o+16, e.base)
	l.put(o+24, e.last)
	for j := range e.values {
		l.put(o+32+8*j, e.values[j])
	}
	l.put(o+56, e.time)
	l.put(o, 1)
}

func (l *layout) free(i uint32) { l.put(l.slot(i), 0) }

func (l *layout) sane(i uint32) bool {
	e, _ := l.entry(i)
	if e.principal >= l.np || e.partition >= l.nt || e.base < 0 || e.last < e.base || e.values[0] < 0 || e.values[1] < 0 || e.values[2] < 0 {
		return false
	}
	_, ok := l.tp(e.partition)
	return ok && l.name(e.principal) != ""
}
