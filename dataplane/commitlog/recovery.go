package commitlog

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Recovery is what opening a log had to do to it; all zero where it was read as it is.
type Recovery struct {
	Segments int           // read through, their indexes built anew
	Scanned  int64         // bytes read through
	Cut      int64         // bytes dropped: of torn ends, and of whole segments behind them
	Dropped  int           // whole segments dropped
	Took     time.Duration // opening the log in all
}

func (r *Recovery) note(before, after int64) {
	r.Segments++
	r.Scanned += before
	r.Cut += before - after
}

// Recovery tells what opening the log had to do.
func (l *Log) Recovery() Recovery { return l.recovered }

// isIO tells a disk that fails from bytes that are wrong.
func isIO(err error) bool { return errors.Is(err, kerr.KafkaStorageError) }
