package crashtest

import (
	"strings"
	"testing"
)

func TestFailedSeedsAreFoundAndNamed(t *testing.T) {
	failed := search(100, 10, func(t *T) {
		switch t.Seed {
		case 7:
			t.Fatalf("a fault")
		case 40:
			panic("a bug")
		}
	})
	if len(failed) != 2 || failed[0].Error() != "seed 7: a fault" || failed[1].seed != 40 || !strings.Contains(failed[1].text, "panic: a bug") {
		t.Fatalf("%v", failed)
	}
	Finds(t, 100, func(t *T) {
		if t.Rand.Intn(10) == 0 {
			t.Errorf("chance")
		}
	})
}

func TestOneSeedGivesOneSequence(t *testing.T) {
	var draws []int
	for range 2 {
		one(3, func(t *T) { draws = append(draws, t.Rand.Int()) })
	}
	if draws[0] != draws[1] {
		t.Fatal(draws)
	}
}
