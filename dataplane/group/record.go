package group

// Record is one record of the groups' log.
type Record struct {
	Offset, Timestamp int64
	Key, Value        []byte
}
