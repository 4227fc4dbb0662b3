package protocol

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

func TestMessageSaysWhatIsParticular(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{kerr.InvalidConfig, "Configuration is invalid."},
		{fmt.Errorf("%w: no such setting", kerr.InvalidConfig), "no such setting"},
		{fmt.Errorf("topic t: %w: no such setting", kerr.InvalidConfig), "topic t: " + kerr.InvalidConfig.Error() + ": no such setting"},
		{errors.New("the disk is full"), "the disk is full"},
	} {
		if got := Message(c.err); got == nil || *got != c.want {
			t.Errorf("%v: %v, want %q", c.err, got, c.want)
		}
	}
	if Message(nil) != nil {
		t.Error("a text for no error")
	}
}
