package group

import "penstock/dataplane/recordbatch"

// Record is one record of the groups' log; it has no headers.
type Record = recordbatch.Record
