package nemesis

import (
	"path/filepath"
	"sync"
	"testing"

	"penstock/dataplane/brokertest"
)

var buggy struct {
	sync.Mutex
	path string
}

// WithBugs builds, once a test binary, the broker with the bugs that wait behind
// a build tag; PLANTED_BUG in its environment says which of them it has.
func WithBugs(t testing.TB) string {
	t.Helper()
	buggy.Lock()
	defer buggy.Unlock()
	if buggy.path == "" {
		path := filepath.Join(filepath.Dir(brokertest.Binary(t)), "penstock-broker-with-bugs")
		if err := brokertest.Build(path, "-tags", "plantedbug"); err != nil {
			t.Fatal(err)
		}
		buggy.path = path
	}
	return buggy.path
}
