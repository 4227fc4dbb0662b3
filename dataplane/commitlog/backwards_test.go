package commitlog

import (
	"errors"
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// A file whose offsets go back would have a reader turn in circles, or go on record
// by record through offsets that nobody wrote.
func TestOffsetsThatGoBackwardsAreCorruptToReaders(t *testing.T) {
	for name, bases := range map[string][]int64{"in the middle": {0, 1000, 1, 2, 3, 4, 5, 6, 2000}, "at the end": {0, 1000, 1}} {
		for _, maxBytes := range []int{1, 2 * len(plain(0)), 3 * len(plain(0)), 1 << 20} {
			fsys := vfs.NewMem()
			must(t, fsys.MkdirAll(dir))
			var file []byte
			for i, base := range bases {
				b := recordbatch.Batch(plain(int64(i)))
				b.SetBaseOffset(base)
				file = append(file, b...)
			}
			must(t, vfs.WriteFileAtomic(fsys, segmentPath(dir, 0, logSuffix), file))
			last := len(bases) - 1 // the indexes are whole, so a clean start believes the file
			e, te := offsetEntry(uint32(bases[last]), int64(last*len(plain(0)))), timeEntry(int64(last), uint32(bases[last]))
			must(t, vfs.WriteFileAtomic(fsys, segmentPath(dir, 0, indexSuffix), e[:]))
			must(t, vfs.WriteFileAtomic(fsys, segmentPath(dir, 0, timeSuffix), te[:]))
			l, err := Open(fsys, dir, Config{}, OpenOptions{CleanShutdown: true})
			must(t, err)
			reads := 0
			for from := int64(0); err == nil && from < l.EndOffset() && reads < 100; reads++ {
				var s Slice
				if s, err = l.Read(from, maxBytes, math.MaxInt64, true); s.Len == 0 {
					break
				}
				from = s.LastOffset + 1
				s.Close()
			}
			if reads > len(bases) || err != nil && !errors.Is(err, kerr.CorruptMessage) {
				t.Errorf("%s, %d bytes a read: %d reads, then %v", name, maxBytes, reads, err)
			}
			must(t, l.Close())
		}
	}
}

func TestMetaEndsItsLinesAsJavaDoes(t *testing.T) {
	for _, eol := range []string{"\n", "\r", "\r\n"} {
		m, err := parseMeta([]byte("#comment" + eol + "version=0" + eol + "broker.id=7" + eol + "cluster.id=c" + eol))
		if err != nil || m.BrokerID != 7 || m.ClusterID != "c" {
			t.Errorf("%q: %+v, %v", eol, m, err)
		}
	}
}
