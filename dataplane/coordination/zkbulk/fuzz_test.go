package zkbulk

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"net"
	"testing"
	"time"
)

type silent struct{ net.Conn }

func (silent) SetReadDeadline(time.Time) error { return nil }
func (silent) Close() error                    { return nil }

// FuzzReplies: whatever a server sends, each znode is told at most once, in order, and nothing is
// taken that was not sent.
func FuzzReplies(f *testing.F) {
	stat := make([]byte, statSize)
	reply := func(xid, code int32, body []byte) []byte {
		return buffer(nil, append(be32(be64(be32(nil, xid), 9), code), body...))
	}
	node := append(buffer(nil, []byte("content")), stat...)
	f.Add(bytes.Join([][]byte{reply(1, 0, buffer(nil, []byte("/a"))), reply(2, 0, node), reply(3, codeNone, nil)}, nil))
	f.Add(reply(1, -4, nil))
	f.Add(be32(nil, -1))
	f.Add(append(reply(1, 0, nil), reply(2, 0, append(be32(nil, 1<<30), stat...))...))
	f.Fuzz(func(t *testing.T, in []byte) {
		c := &conn{nc: silent{}, patience: time.Second, r: bufio.NewReader(bytes.NewReader(in))}
		next, given := 0, 0
		err := c.take(2, func(i int, data []byte, _ Stat, _ error) error {
			if i != next {
				t.Fatalf("znode %d after %d", i, next-1)
			}
			next++
			given += len(data)
			return nil
		})
		if err == nil && next != 2 {
			t.Fatalf("%d of 2 znodes without an error", next)
		}
		if given > len(in) {
			t.Fatalf("%d bytes of %d", given, len(in))
		}
	})
}

func TestAReplyThatIsTooLargeIsNotRead(t *testing.T) {
	c := &conn{nc: silent{}, r: bufio.NewReader(bytes.NewReader(binary.BigEndian.AppendUint32(nil, maxReply+1)))}
	if _, err := c.answer(1); err == nil || cap(c.reply) > 0 {
		t.Errorf("%d bytes taken, %v", cap(c.reply), err)
	}
}
