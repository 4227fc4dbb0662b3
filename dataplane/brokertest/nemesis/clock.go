package nemesis

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"penstock/dataplane/brokertest"
)

// A process cannot have a wall clock of its own: Linux has namespaces for the
// other clocks only, and a Go program asks no library that could be put in between.
// So the broker is built with one line more in time.Now, by the compiler's overlay:
// no source is touched. The clock is read from a file beside the broker's properties.

const nowLine = "	sec, nsec, mono := runtimeNow()\n"

const skewSource = `package time

// Skew is added to the wall clock, in seconds.
var Skew int64
`

const skewMain = `package main

import (
	"os"
	"strconv"
	"time"
)

func init() {
	for i, arg := range os.Args[:len(os.Args)-1] {
		if arg == "--config" {
			go follow(os.Args[i+1] + ".clock")
		}
	}
}

func follow(file string) {
	for ; ; time.Sleep(20 * time.Millisecond) {
		b, _ := os.ReadFile(file)
		if skew, err := strconv.ParseInt(string(b), 10, 64); err == nil {
			time.Skew = skew
		}
	}
}
`

// BuildWithClock builds a broker whose wall clock SetClock can move.
func BuildWithClock(dir string) (binary string, err error) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	main, err := exec.Command("go", "list", "-f", "{{.Dir}}", "penstock/dataplane/cmd/penstock-broker").Output()
	if err != nil {
		return "", err
	}
	std := filepath.Join(strings.TrimSpace(string(goroot)), "src", "time")
	source, err := os.ReadFile(filepath.Join(std, "time.go"))
	if err != nil {
		return "", err
	}
	body := strings.Index(string(source), "func Now() Time {\n"+nowLine)
	if body < 0 {
		return "", errors.New("this Go's time.Now is not the one that is known here")
	}
	at := body + len("func Now() Time {\n"+nowLine)
	replace := map[string]string{}
	for path, text := range map[string]string{
		filepath.Join(std, "time.go"):                             string(source[:at]) + "	sec += Skew\n" + string(source[at:]),
		filepath.Join(std, "skew.go"):                             skewSource,
		filepath.Join(strings.TrimSpace(string(main)), "skew.go"): skewMain,
	} {
		file := filepath.Join(dir, fmt.Sprintf("overlay-%d.go", len(replace)))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[path] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return "", err
	}
	binary = filepath.Join(dir, "penstock-broker-with-clock")
	return binary, brokertest.Build(binary, "-overlay", file)
}

// SetClock moves a broker's wall clock, if it was built for that.
func SetClock(n *brokertest.Node, by time.Duration) error {
	file := n.Properties + ".clock"
	if err := os.WriteFile(file+".new", fmt.Appendf(nil, "%d", int64(by/time.Second)), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
