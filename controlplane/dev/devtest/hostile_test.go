package devtest

import "testing"

func testHostile(t *testing.T) {}
