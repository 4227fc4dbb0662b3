//go:build !plantedbug

package partition

// planted names a bug that is there on purpose, for the checker of whole
// clusters to find. There is none in what is shipped.
const planted = ""
