//go:build plantedbug

package group

import "os"

var planted = os.Getenv("PLANTED_BUG")
