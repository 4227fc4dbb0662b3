//go:build !race

package handler

const raceBuild = false
