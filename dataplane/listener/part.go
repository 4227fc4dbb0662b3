package listener

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// restedFor is how long a connection must have been idle to be reset: its peer has read the last
// reply by then, which some systems throw away when a reset comes.
const restedFor = 50 * time.Millisecond

// part closes the connection when the broker stops. A peer that waits for nothing gets a reset
// instead of an end. Many clients (franz-go, sarama, kafka-go) do not look at a connection that they
// wait for nothing on: with an end, they find out when they have sent their next request, perhaps after
// this broker is back and leads again, cannot know whether it was carried out, and pause before they
// try again. With a reset that request cannot even be sent, and they connect anew at once.
func (c *Conn) part() {
	if tc, ok := c.nc.(*net.TCPConn); ok && c.rested(time.Now()) {
		_ = tc.SetLinger(0)
	}
	c.Close("the broker stops")
}

// rested says that the peer waits for nothing and has taken in all that was sent.
func (c *Conn) rested(now time.Time) bool {
	since := c.idleSince.Load()
	if since == 0 || now.UnixNano()-since < restedFor.Nanoseconds() || c.unanswered() || c.raw == nil {
		return false
	}
	unsent, err := -1, error(nil)
	if cerr := c.raw.Control(func(fd uintptr) { unsent, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); cerr != nil || err != nil {
		return false
	}
	return unsent == 0
}
