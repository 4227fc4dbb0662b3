//go:build race

package commitlog

const raceEnabled = true
