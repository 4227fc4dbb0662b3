//go:build plantedbug

package partition

import "os"

var planted = os.Getenv("PLANTED_BUG")
