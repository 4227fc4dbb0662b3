package groups

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"penstock/dataplane/coordinator"
)

// loadedLine is what a broker logs when it has loaded a partition's groups.
var loadedLine = regexp.MustCompile(`^time=(\S+) .*msg="groups loaded" .*partition=(\d+) .*took=(\S+)$`)

// loading takes such a line apart: when the load began, by the wall clock.
func loading(line string) (partition int32, began time.Time, ok bool) {
	m := loadedLine.FindStringSubmatch(line)
	if m == nil {
		return 0, began, false
	}
	at, err := time.Parse(time.RFC3339Nano, m[1])
	p, err2 := strconv.ParseInt(m[2], 10, 32)
	took, err3 := time.ParseDuration(m[3])
	if err != nil || err2 != nil || err3 != nil {
		return 0, began, false
	}
	return int32(p), at.Add(-took - time.Millisecond), true // the line's time is cut to milliseconds
}

// readReigns finds in the brokers' logs who coordinated each group since when. Restarted
// brokers write on in the same file.
func (r *run) readReigns() {
	wall, mono := time.Now(), now()
	partitions := int32(4) // brokertest's offsets.topic.num.partitions
	for i, b := range r.c.Brokers {
		f, err := os.Open(filepath.Join(r.c.Dir, fmt.Sprintf("broker-%d.log", i)))
		if err != nil {
			r.t.Error(err)
			return
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			p, began, ok := loading(lines.Text())
			if !ok {
				continue
			}
			for _, g := range r.o.Groups {
				if coordinator.PartitionFor(g.Name, partitions) == p {
					r.h.Add(Event{Kind: Reigns, At: mono - int64(wall.Sub(began)), Group: g.Name, Broker: b.Addr})
				}
			}
		}
		f.Close()
	}
}
