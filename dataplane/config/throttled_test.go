package config

import "testing"

func TestThrottledReplicasAreReadAsKafkaWritesThem(t *testing.T) {
	for _, c := range []struct {
		list             string
		here, there, any bool // partition 0 of broker 1, partition 3 of broker 2, partition 9 of broker 9
	}{
		{"", false, false, false},
		{"none", false, false, false},
		{"*", true, true, true},
		{"0:1", true, false, false},
		{" 0:1 , 3:2", true, true, false},
		{"0:2,3:1", false, false, false},
	} {
		got, err := ParseThrottled(c.list)
		if err != nil {
			t.Errorf("%q: %v", c.list, err)
		}
		if got.Has(0, 1) != c.here || got.Has(3, 2) != c.there || got.Has(9, 9) != c.any {
			t.Errorf("%q: %v %v %v", c.list, got.Has(0, 1), got.Has(3, 2), got.Has(9, 9))
		}
	}
}

// What somebody may have written into ZooKeeper costs none but itself.
func TestABadThrottledReplicaIsAnErrorAndLeftOut(t *testing.T) {
	for _, list := range []string{"x", ":", "7", "1:2:3", "0:1,*", "none,0:1", "0:1,99999999999:1"} {
		got, err := ParseThrottled(list)
		if err == nil || got.Has(7, 7) || got.Has(9, 9) {
			t.Errorf("%q: %+v, %v", list, got, err)
		}
	}
	if got, _ := ParseThrottled("x,0:1"); !got.Has(0, 1) {
		t.Error("what is right beside it is left out, too")
	}
}
