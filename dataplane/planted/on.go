//go:build plantedbug

package planted

import "os"

// Bug is the one that this broker has.
var Bug = os.Getenv("PLANTED_BUG")
