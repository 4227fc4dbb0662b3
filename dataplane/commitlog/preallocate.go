package commitlog

// Disk space for a whole segment is reserved behind the end of its file, whose length
// stays that of its batches: a file of zeros, as Kafka makes it, would have to be told
// from a torn one after a crash. What is left of the space goes back when the segment
// is finished, and with a crash when the log is opened. Index files are small, grow as
// they are needed and are not preallocated.

// reserve takes disk space for size bytes of batches.
func (s *segment) reserve(size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return storageErr("allocate", s.path(logSuffix), s.file.Allocate(size))
}

// giveBack releases what a segment did not need. REQUIRES: mu held, or the log not yet shared.
func (l *Log) giveBack(s *segment) error {
	if !l.cfg.Preallocate {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return storageErr("truncate", s.path(logSuffix), s.file.Truncate(s.size))
}
