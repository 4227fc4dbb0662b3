package purgatory

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble hides the test's deadline from rapid, which may not be asked for
// inside a synctest bubble.
type bubble struct{ *testing.T }
