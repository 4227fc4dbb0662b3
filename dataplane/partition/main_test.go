package partition

import (
	"testing"

	"go.uber.org/goleak"

	"penstock/dataplane/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newMem() vfs.FS { return vfs.NewMem() }
