//go:build compat

package brokertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"penstock/dataplane/recordbatch"
)

// leaveSwap leaves a killed broker's folder as one that died while it swapped in
// what its cleaner had made of the first two segments: the new file is complete
// and has its name for the swap, the old ones are still there; and beside them a
// file that a cleaner had not finished, and one that was to be deleted.
func (f *folder) leaveSwap() {
	f.t.Helper()
	logs := f.glob("kept-0/*.log")
	slices.Sort(logs)
	if len(logs) < 3 {
		f.t.Fatalf("kept has %d segments only", len(logs))
	}
	var merged []byte
	for _, l := range logs[:2] {
		b, err := os.ReadFile(l)
		if err != nil {
			f.t.Fatal(err)
		}
		merged = append(merged, b...)
	}
	for path, b := range map[string][]byte{
		logs[0] + ".swap": merged, logs[1] + ".cleaned": merged[:len(merged)/3],
		strings.TrimSuffix(logs[0], ".log") + ".index.deleted": nil,
	} {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			f.t.Fatal(err)
		}
	}
	f.swapped = logs[1]
}

// swapDone demands that the swap that was left has been brought to its end.
func (f *folder) swapDone() {
	f.t.Helper()
	if f.swapped == "" {
		return
	}
	if _, err := os.Stat(f.swapped); err == nil {
		f.t.Errorf("%s: %s is still there, though what replaces it was complete", f.who, filepath.Base(f.swapped))
	}
	for _, suffix := range []string{"swap", "cleaned"} {
		if got := f.glob("kept-0/*." + suffix); len(got) > 0 {
			f.t.Errorf("%s leaves %v", f.who, got)
		}
	}
	f.swapped = ""
}

// leaveTorn adds half a batch to a log, as a power cut may: the write was under
// way.
func (f *folder) leaveTorn() {
	f.t.Helper()
	logs := f.glob("plain-0/*.log")
	slices.Sort(logs)
	whole, err := os.ReadFile(logs[0])
	if err != nil {
		f.t.Fatal(err)
	}
	file, err := os.OpenFile(logs[len(logs)-1], os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(whole[:recordbatch.HeaderSize+20]); err != nil {
		f.t.Fatal(err)
	}
}

// excludes demands that ours does not touch a folder that Kafka has.
func (f *folder) excludes() {
	f.t.Helper()
	cmd := exec.Command(Binary(f.t), "--config", f.ours.Properties)
	out := make(chan []byte)
	go func() {
		b, err := cmd.CombinedOutput()
		if err == nil {
			b = append(b, "it ended in order"...)
		}
		out <- b
	}()
	select {
	case b := <-out:
		if !strings.Contains(string(b), "another process uses") {
			f.t.Errorf("ours, on a folder that Kafka has: %s", b)
		}
	case <-time.After(20 * time.Second):
		f.t.Error("ours runs on a folder that Kafka has")
		_ = cmd.Process.Kill()
		<-out
	}
}
