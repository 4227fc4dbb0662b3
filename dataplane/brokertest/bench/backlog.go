package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
		began, behind := time.Now(), startBehind(ctx, t, end)
		f["tail beside one far behind, p50"], f[tailBeside], err = tail(ctx, t, backlogTopic, end, backlogRate, 1, o.latency)
		took := time.Since(began)
		got, berr := behind()
		after, derr := t.readFromDisk()
		f["the one far behind reads"] = float64(got) / 1e6 / took.Seconds()
		f["of that from disk"] = 100 * float64(after-before) / float64(got)
		return errors.Join(err, berr, derr)
	}},
}

// startBehind starts the consumer that is far behind. Near end it begins again, so
// that it never becomes one at the tail. What it has read is then taken out of the page
// cache again. The function ends it and returns the record
// bytes that it has read.
func startBehind(ctx context.Context, t *target, end int64) func() (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	type outcome struct {
		bytes int64
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		var sum int64
		for {
			n, err := readBehind(ctx, t, end)
			sum += n
			if err == nil {
				err = t.dropCache(false)
			}
			if err != nil || ctx.Err() != nil {
				if ctx.Err() != nil {
					err = nil // it was to be
				}
				done <- outcome{sum, err}
				return
			}
		}
	}()
	return func() (int64, error) {
		cancel()
		out := <-done
		return out.bytes, out.err
	}
}

// readBehind reads the backlog once, from the disk.
func readBehind(ctx context.Context, t *target, end int64) (sum int64, err error) {
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
	}
	return sum, nil
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
