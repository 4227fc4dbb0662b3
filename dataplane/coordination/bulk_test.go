package coordination

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"penstock/dataplane/coordination/zktest"
	"penstock/dataplane/protocol"
)

// Many states are read over a connection of their own; where that cannot be had they are
// read over the client's, with the same outcome.
func TestManyStatesAreReadWithAndWithoutAConnectionOfTheirOwn(t *testing.T) {
	ctx := testContext(t)
	path := zktest.Chroot(t)
	c := connect(t, Config{Connect: path})
	must(t, c.EnsureLayout(ctx))
	f, _, _, err := c.ElectController(ctx, 1)
	must(t, err)
	const n = 2 * bulkFrom
	parts := map[int32][]int32{}
	var ws []StateWrite
	var tps []protocol.TopicPartition
	for i := range int32(n) {
		parts[i] = []int32{1}
		tps = append(tps, protocol.TopicPartition{Topic: "t", Partition: i})
		if i%3 != 0 {
			ws = append(ws, StateWrite{TP: tps[i], State: PartitionState{Leader: i, LeaderEpoch: 2 * i, ControllerEpoch: 1, ISR: []int32{i, i + 1}}})
		}
	}
	must(t, c.CreateTopic(ctx, f, "t", TopicAssignment{ID: NewTopicID(), Partitions: parts}, nil))
	errs, err := c.CreateStates(ctx, f, ws)
	must(t, errors.Join(append(errs, err)...))
	errs, err = c.UpdateStates(ctx, f, ws[:1])
	must(t, errors.Join(append(errs, err)...))
	check := func(how string, got map[protocol.TopicPartition]PartitionState, err error) {
		t.Helper()
		if err != nil || len(got) != len(ws) {
			t.Fatalf("%s: %d of %d states, %v", how, len(got), len(ws), err)
		}
		for _, w := range ws {
			s := got[w.TP]
			if s.Leader != w.State.Leader || s.LeaderEpoch != w.State.LeaderEpoch || !slices.Equal(s.ISR, w.State.ISR) || s.Version != w.State.Version || s.Written == 0 {
				t.Fatalf("%s: %v is %+v, written as %+v", how, w.TP, s, w.State)
			}
		}
		if got[ws[0].TP].Written <= got[ws[1].TP].Written {
			t.Errorf("%s: the last write is not told from the first", how)
		}
	}
	got, err := c.bulkStates(ctx, tps)
	check("on a connection of their own", got, err)

	host, chroot, _ := strings.Cut(path, "/")
	d := connect(t, Config{Connect: onlyOne(t, host) + "/" + chroot})
	if _, err := d.bulkStates(ctx, tps); err == nil {
		t.Fatal("a second connection is let in")
	}
	got, err = d.PartitionStates(ctx, tps)
	check("on the client's", got, err)
}

// onlyOne is the address of a proxy that lets one connection through to the server, and no
// further one.
func onlyOne(t *testing.T, server string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var wg sync.WaitGroup
	var up, down net.Conn
	refusing := make(chan struct{})
	wg.Go(func() {
		defer close(refusing)
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			if up != nil {
				in.Close()
				continue
			}
			if down, err = net.Dial("tcp", server); err != nil {
				return
			}
			up = in
			wg.Go(func() { _, _ = io.Copy(up, down); up.Close() })
			wg.Go(func() { _, _ = io.Copy(down, up); down.Close() })
		}
	})
	t.Cleanup(func() {
		l.Close()
		<-refusing
		if up != nil {
			up.Close()
			down.Close()
		}
		wg.Wait()
	})
	return l.Addr().String()
}
