//go:build !plantedbug

package planted

// Bug is empty: what is shipped has none, and the compiler leaves out all that asks
// for one.
const Bug = ""
