package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"
)

const (
	backlogTopic = "bench-backlog"
	backlogRate  = 1000 // records a second that the tail's producer sends
)

// backlogSteps measure what a consumer far behind does to one at the tail of the
// same partition: the latency at the tail alone, and then beside a consumer that
// reads from offset 0, which is not in the page cache, as fast as it can.
var backlogSteps = []step{
	{once: true, run: func(ctx context.Context, o options, t *target, _ figures) error {
		if err := createTopic(t, backlogTopic, 1, nil); err != nil {
			return err
		}
		_, err := produce(ctx, t, load{topic: backlogTopic, requests: int(o.backlog * 1e9 / (perBatch * recordSize)), records: perBatch, acks: 1})
		return err
	}},
	{warm: 1, run: func(ctx context.Context, o options, t *target, f figures) (err error) {
		unix.Sync() // what is still being written would be felt as well
		end, err := endOffset(t.addrs[0], backlogTopic, 0)
		if err != nil {
			return err
		}
		if _, f[tailAlone], err = tail(ctx, t, backlogTopic, end, backlogRate, 1, o.latency); err != nil {
			return err
		}
		if end, err = endOffset(t.addrs[0], backlogTopic, 0); err != nil {
			return err
		}
		unix.Sync()
		if err := t.dropCache(true); err != nil {
			return err
		}
		before, err := t.readFromDisk()
		if err != nil {
			return err
		}
		stolenBefore, err := stolen()
		if err != nil {
			return err
		}
		began := time.Now()
		behind, err := startBehind(ctx, t, end, o.backlogMBs)
		if err != nil {
			return err
		}
		f["tail beside one far behind, p50"], f[tailBeside], err = tail(ctx, t, backlogTopic, end, backlogRate, 1, o.latency)
		took := time.Since(began)
		got, berr := behind()
		after, derr := t.readFromDisk()
		stolenAfter, serr := stolen()
		f["the one far behind reads"] = float64(got) / 1e6 / took.Seconds()
		f["of that from disk"] = 100 * float64(after-before) / float64(got)
		f["CPU that the host withheld meanwhile"] = 100 * (stolenAfter - stolenBefore).Seconds() / took.Seconds()
		return errors.Join(err, berr, derr, serr)
	}},
}

// behindFlag makes this binary the consumer that is far behind: its value is the
// broker's address, the folder of its logs, the backlog's end and the MB/s that it may read, 0
// for as many as it can.
const behindFlag = "-be-behind"

// startBehind starts the consumer that is far behind, as a process of its own: within
// this one its steady reading kept the goroutines of the tail from running for up to 20 ms.
// The function ends it and returns the record bytes that it has read.
func startBehind(ctx context.Context, t *target, end int64, rate float64) (stop func() (int64, error), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, behindFlag, fmt.Sprintf("%s,%s,%d,%g", t.addrs[0], t.dir, end, rate))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() (int64, error) {
		_ = in.Close() // its sign to end
		if err := cmd.Wait(); err != nil {
			return 0, fmt.Errorf("the consumer far behind: %w", err)
		}
		return strconv.ParseInt(strings.TrimSpace(out.String()), 10, 64)
	}, nil
}

// beBehind is that process: it reads until its input ends and prints how many record
// bytes it has got. Near the backlog's end it begins again, so that it never becomes a
// consumer at the tail; what it has read is then taken out of the page cache again.
func beBehind(what string) error {
	f := strings.Split(what, ",")
	if len(f) != 4 {
		return fmt.Errorf("%s: want address, folder, end, rate", behindFlag)
	}
	end, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil {
		return err
	}
	rate, err := strconv.ParseFloat(f[3], 64)
	if err != nil {
		return err
	}
	t := &target{addrs: f[:1], dir: f[1]}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end, however it comes
		cancel()
	}()
	var sum int64
	for ctx.Err() == nil {
		n, err := readBehind(ctx, t, end, rate)
		sum += n
		if err == nil {
			err = t.dropCache(false)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	fmt.Println(sum)
	return nil
}

// readBehind reads the backlog once, from the disk, at most rate MB/s.
func readBehind(ctx context.Context, t *target, end int64, rate float64) (sum int64, err error) {
	c, err := dial(t.addrs[0])
	if err != nil {
		return 0, err
	}
	defer c.Close()
	stopped := context.AfterFunc(ctx, func() { c.Close() })
	defer stopped()
	req := fetchRequest(backlogTopic, 1, 0)
	resp := kmsg.NewPtrFetchResponse()
	resp.SetVersion(req.Version)
	var body, buf []byte
	began := time.Now()
	for req.Topics[0].Partitions[0].FetchOffset < end-perBatch {
		if err := c.send(encode(req)); err != nil {
			return sum, err
		}
		if body, buf, err = c.receive(buf, false); err != nil {
			return sum, err
		}
		if err := resp.ReadFrom(body); err != nil {
			return sum, err
		}
		n, err := advance(req, resp)
		if err != nil {
			return sum, err
		}
		sum += n
		if rate > 0 {
			due := began.Add(time.Duration(float64(sum) / 1e6 / rate * float64(time.Second)))
			if pause(ctx, time.Until(due)) != nil {
				return sum, nil // it was told to end
			}
		}
	}
	return sum, nil
}

// stolen is the time for which the host has not run this machine's CPUs though they had work:
// many hosts stop a machine for the rest of a tenth of a second when it and the serving of its
// disks have used what they may of one, and no broker can answer meanwhile.
func stolen() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	const (
		stealField = 8
		userHz     = 100 // of every Linux that Go runs on
	)
	line, _, _ := strings.Cut(string(b), "\n")
	fields := strings.Fields(line)
	if len(fields) <= stealField || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	ticks, err := strconv.ParseInt(fields[stealField], 10, 64)
	return time.Duration(ticks) * time.Second / userHz, err
}

// dropCache takes the segments out of the page cache; with last those too that are
// being written, as far as their pages have reached the disk, which the tail would feel.
// /proc/sys/vm/drop_caches would need root and empty everybody's.
func (t *target) dropCache(last bool) error {
	logs, err := filepath.Glob(filepath.Join(t.dir, "*", "data", backlogTopic+"-0", "*.log"))
	if err != nil {
		return err
	}
	for i, name := range logs { // in the order of their offsets, a folder's together
		if newest := i+1 == len(logs) || filepath.Dir(logs[i+1]) != filepath.Dir(name); newest && !last {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		f.Close()
		if err != nil {
			return fmt.Errorf("fadvise %s: %w", name, err)
		}
	}
	return nil
}

// readFromDisk is how many bytes the brokers have made the disk read.
func (t *target) readFromDisk() (sum int64, err error) {
	for _, pid := range t.pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
		if err != nil {
			return 0, err
		}
		_, rest, _ := strings.Cut(string(b), "read_bytes: ")
		var n int64
		if _, err := fmt.Sscan(rest, &n); err != nil {
			return 0, fmt.Errorf("/proc/%d/io: %w", pid, err)
		}
		sum += n
	}
	return sum, nil
}
