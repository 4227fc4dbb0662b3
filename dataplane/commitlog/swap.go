package commitlog

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"penstock/dataplane/vfs"
)

// segmentSuffixes are the files of a segment, the log first.
var segmentSuffixes = []string{logSuffix, indexSuffix, timeSuffix, txnSuffix}

// tempFile is a segment's file with a suffix of a clean or split.
type tempFile struct {
	name, live string // live is the name without the suffix
	base       int64
	isLog      bool
}

// tempFiles are the files of a folder that have the suffix.
func tempFiles(files []vfs.Info, suffix string) (out []tempFile) {
	for _, f := range files {
		live, ok := strings.CutSuffix(f.Name, suffix)
		if !ok || f.Dir {
			continue
		}
		for _, s := range segmentSuffixes {
			if base, ok := baseOfName(live, s); ok {
				out = append(out, tempFile{name: f.Name, live: live, base: base, isLog: s == logSuffix})
			}
		}
	}
	return out
}

// finishSwaps brings a folder in which a clean or a split was cut short into order,
// with the meaning that Kafka gives the names:
//
// A .cleaned file is not whole and goes, and with the smallest of them go the .swap
// files from its offset on: they belong to a split that did not get all of its files
// done. All other .swap files are whole. The segments that begin in the range of
// offsets of the .swap logs are what they replace: they go first, then the .swap files
// get their names, logs first: an index whose log has got its name needs nothing but
// its own.
//
// A segment of the replaced ones whose records were all removed, at the range's end,
// may stay: it holds what it held before the clean, and all that came after it.
func (l *Log) finishSwaps(files []vfs.Info) (changed bool, err error) {
	swaps, cleaned := tempFiles(files, swapSuffix), tempFiles(files, cleanedSuffix)
	firstCleaned := int64(math.MaxInt64)
	for _, f := range cleaned {
		firstCleaned = min(firstCleaned, f.base)
	}
	var whole []tempFile
	for _, f := range swaps {
		if f.base < firstCleaned {
			whole = append(whole, f)
		} else if err := removeIfThere(l.fs, filepath.Join(l.dir, f.name)); err != nil {
			return false, err
		}
	}
	if len(whole) < len(swaps) {
		// They must not outlive the .cleaned files, by which they are known.
		if err := l.fs.SyncDir(l.dir); err != nil {
			return false, storageErr("sync", l.dir, err)
		}
	}
	for _, f := range cleaned {
		if err := removeIfThere(l.fs, filepath.Join(l.dir, f.name)); err != nil {
			return false, err
		}
	}
	if len(whole) == 0 {
		return len(swaps)+len(cleaned) > 0, nil
	}
	if err := l.dropReplaced(files, whole); err != nil {
		return false, err
	}
	for _, logs := range []bool{true, false} {
		for _, f := range whole {
			if f.isLog != logs {
				continue
			}
			if err := l.fs.Rename(filepath.Join(l.dir, f.name), filepath.Join(l.dir, f.live)); err != nil {
				return false, storageErr("rename", filepath.Join(l.dir, f.name), err)
			}
		}
	}
	return true, storageErr("sync", l.dir, l.fs.SyncDir(l.dir))
}

// dropReplaced removes the segments that begin in the range of the .swap logs.
func (l *Log) dropReplaced(files []vfs.Info, swaps []tempFile) error {
	lo, hi := int64(math.MaxInt64), int64(math.MinInt64)
	for _, f := range swaps {
		if !f.isLog {
			continue
		}
		next, err := l.nextOffsetOf(f)
		if err != nil {
			return err
		}
		l.logger.Info("finishing a compaction that was cut short", "dir", l.dir, "file", f.name, "next", next)
		lo, hi = min(lo, f.base), max(hi, next, f.base+1)
	}
	for _, f := range tempFiles(files, "") {
		if f.base >= lo && f.base < hi {
			if err := removeIfThere(l.fs, filepath.Join(l.dir, f.name)); err != nil {
				return err
			}
		}
	}
	if lo < hi {
		return storageErr("sync", l.dir, l.fs.SyncDir(l.dir))
	}
	return nil
}

// nextOffsetOf is the offset after the last record of a .swap log.
func (l *Log) nextOffsetOf(t tempFile) (int64, error) {
	path := filepath.Join(l.dir, t.name)
	f, err := l.fs.Open(path, false)
	if err != nil {
		return 0, storageErr("open", path, err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return 0, storageErr("size of", path, err)
	}
	sc := newScanner(f, size)
	defer sc.close()
	next := t.base
	for pos := int64(0); pos < size; {
		h, n, err := sc.header(pos)
		if err != nil {
			return 0, fmt.Errorf("%s is from a compaction that did not finish, and is damaged: %w", path, err)
		}
		if next <= h.LastOffset() {
			next = h.NextOffset()
		}
		pos += n
	}
	return next, nil
}
