package devtest

import "testing"

// TestService runs in this order, so that one service serves all; each part
// also runs alone.
func TestService(t *testing.T) {
	t.Run("once", testOnce)
	t.Run("contract", testContract)
	t.Run("alone", testAlone)
	t.Run("revocation", testRevocation)
	t.Run("kills", testKills)
	t.Run("hostile", testHostile)
	t.Run("killed", testKilled)
}
