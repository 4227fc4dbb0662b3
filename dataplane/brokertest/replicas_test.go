package brokertest

import (
	"os"
	"path/filepath"
	"testing"
)

// What SameLogs takes for a difference: all that a reader or a follower could ever see.
func TestSameLogsSeesEveryDifferenceThatMatters(t *testing.T) {
	records := func(n int) (b []byte) {
		for i := range n {
			x := batch(t, "v")
			x.SetBaseOffset(int64(i))
			b = append(b, x...)
		}
		return b
	}
	three := records(3)
	for what, c := range map[string]struct {
		data   []byte
		epochs string
		same   bool
	}{
		"all alike":                        {three, "0\n2\n0 0\n4 2\n", true},
		"an epoch without batches":         {three, "0\n3\n0 0\n4 2\n7 3\n", true},
		"another epoch for the last batch": {three, "0\n2\n0 0\n5 2\n", false},
		"an epoch less":                    {three, "0\n1\n0 0\n", false},
		"an epoch that begins earlier":     {three, "0\n2\n0 0\n4 1\n", false},
		"no epochs":                        {three, "0\n0\n", false},
		"a batch less":                     {records(2), "0\n2\n0 0\n4 2\n", false},
		"a byte":                           {append(three[:len(three)-1:len(three)-1], 'w'), "0\n2\n0 0\n4 2\n", false},
	} {
		c1 := &Cluster{}
		for _, r := range []struct {
			data   []byte
			epochs string
		}{{three, "0\n2\n0 0\n4 2\n"}, {c.data, c.epochs}} {
			n := &Node{LogDir: t.TempDir()}
			dir := filepath.Join(n.LogDir, "t-0")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			for name, b := range map[string][]byte{"00000000000000000000.log": r.data, "leader-epoch-checkpoint": []byte(r.epochs)} {
				if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			c1.Brokers = append(c1.Brokers, n)
		}
		if _, err := c1.SameLogs("t", 0, []int32{0, 1}); (err == nil) != c.same {
			t.Errorf("%s: %v", what, err)
		}
	}
}
