package coordination

import (
	"time"

	"github.com/go-zookeeper/zk"
)

// hosts is the library's choice of servers with a quicker start: left to itself
// the library waits a whole second before it tries a lone server again, which
// every broker would pay for each blip, and once more before it learns that its
// session is over. The first attempts follow each other quickly instead; after
// them the library's pace holds, and with it its dropping of what waits to be
// sent.
type hosts struct {
	zk.HostProvider
	quick int // attempts in a row; the library's loop is the only caller
}

const (
	quickAttempts = 10
	quickPause    = 50 * time.Millisecond
)

func (h *hosts) Next() (server string, retryStart bool) {
	server, retryStart = h.HostProvider.Next()
	if retryStart && h.quick < quickAttempts {
		h.quick++
		time.Sleep(quickPause)
		retryStart = false
	}
	return server, retryStart
}

func (h *hosts) Connected() {
	h.quick = 0
	h.HostProvider.Connected()
}
