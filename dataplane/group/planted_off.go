//go:build !plantedbug

package group

// planted names a bug that is there on purpose, for the checker of groups to
// find. There is none in what is shipped.
const planted = ""
