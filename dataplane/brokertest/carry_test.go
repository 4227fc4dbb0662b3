//go:build compat

package brokertest

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// end is how a leg ends.
type end int

const (
	clean end = iota
	killed
)

// leg is one make's turn with the folder.
type leg struct {
	who make_
	end end
}

// TestCarriedFolder carries a log folder, and the znodes of its broker, between
// Apache Kafka 3.9 and ours. Each that takes it over must serve all that is in
// it, byte for byte, and adds to it; after each stop Kafka's tool and readers of
// our own go through the files.
func TestCarriedFolder(t *testing.T) {
	for _, c := range []struct {
		name string
		dirs int
		legs []leg
	}{
		{"begun by Kafka", 1, []leg{{kafka, clean}, {penstock, clean}, {kafka, killed}, {penstock, killed}, {kafka, clean}, {penstock, clean}}},
		{"begun by ours", 2, []leg{{penstock, clean}, {kafka, clean}, {penstock, killed}, {kafka, killed}, {penstock, clean}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFolder(t, c.dirs)
			for i, l := range c.legs {
				f.run(i, l)
				if i == 0 && l.who == kafka {
					f.rebuild()
				}
			}
			f.dumps.wait()
		})
	}
}

func (f *folder) run(n int, l leg) {
	f.t.Helper()
	f.start(l.who)
	if n == 0 {
		f.createTopics()
		f.steady = f.client(smallBatches, kgo.ProducerBatchCompression(kgo.SnappyCompression()))
	}
	f.awaitDecided("txlate")
	settle(f.late, wasAborted)
	f.late = nil
	f.awaitDecided("txflood")
	f.verifyTransactionsInFlight()
	f.verify("taken over")
	f.verifyInternals()
	f.verifyState()
	if !f.crashed {
		f.undisturbed()
	}
	f.swapDone()
	if n == 0 && l.who == kafka {
		f.excludes()
	}

	f.extend(n)
	if l.who == kafka {
		f.transactions(n)
	}
	f.awaitCleaned()
	f.deleteRecords()
	f.commit(n)
	f.verify("extended")
	f.verifyState()
	f.deleteATopic()
	f.before = f.internals()
	last := func() { f.openLate(n) } // as late as can be, since it must not time out before the move
	what := fmt.Sprintf("leg %d, %s", n, l.who)
	f.last, f.crashed = l.who, l.end == killed
	if l.end == killed {
		f.before = nil // groups and transactions go on until the end
		kill := func() { last(); f.kill() }
		if l.who == kafka {
			f.floodTransactions(n, func(kill func()) { f.flood(n, kill) }, kill)
		} else {
			f.flood(n, kill)
		}
		f.dump(what+", killed", true)
		f.leaveSwap()
		f.leaveTorn()
		return
	}
	last()
	f.stop()
	f.checkFiles()
	f.dump(what, false)
}
