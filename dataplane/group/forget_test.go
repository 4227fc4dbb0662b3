package group

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestAMemberThatIsGoneIsForgotten: its metadata may be a megabyte, and its group stays for days.
func TestAMemberThatIsGoneIsForgotten(t *testing.T) {
	run(t, Config{}, func(e *env) {
		ids, _ := e.stable(3)
		g, err := e.c.find("g", false)
		if err != nil || g == nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			m := kmsg.NewLeaveGroupRequestMember()
			m.MemberID = id
			e.leave(m)
		}
		g.do(func(*effects) {
			if len(g.order) != 0 {
				t.Fatalf("%d members are left", len(g.order))
			}
			for i, m := range g.order[:cap(g.order)] {
				if m != nil {
					t.Errorf("place %d still holds %s", i, m.id)
				}
			}
		})
	})
}
