//go:build race

package handler

const raceBuild = true
