package commitlog

import (
	"testing"

	"penstock/dataplane/vfs"
)

// changes counts what a log asks of the disk that changes it or waits for it.
type changes struct {
	vfs.Faulty
	syncs, others int
}

func countChanges(fsys vfs.FS) *changes {
	c := &changes{}
	c.Faulty = vfs.Faulty{FS: fsys, Hook: func(op vfs.Op, _ string) error {
		switch op {
		case vfs.OpSync, vfs.OpSyncDir:
			c.syncs++
		case vfs.OpWrite, vfs.OpTruncate, vfs.OpRename, vfs.OpRemove, vfs.OpMkdir:
			c.others++
		}
		return nil
	}}
	return c
}

func TestALogThatOnlyLedChangesNothingOnDisk(t *testing.T) {
	c := countChanges(vfs.NewMem())
	l := openTest(t, c, small, OpenOptions{CleanShutdown: true})
	for i := range 50 {
		appendTo(t, l, plain(int64(i)), 3)
	}
	l.wg.Wait()
	end := l.EndOffset()
	must(t, l.Close())
	for range 3 {
		c.syncs, c.others = 0, 0
		l = openTest(t, c, small, OpenOptions{CleanShutdown: true, RecoveryPoint: end})
		must(t, l.AssignEpochStart(4, end))
		if e, _ := l.LatestEpoch(); e != 4 {
			t.Fatalf("latest epoch is %d", e)
		}
		readAll(t, l, 0, end, 5000)
		must(t, l.Flush())
		must(t, l.Close())
		if c.syncs+c.others > 0 {
			t.Fatalf("a life without an append made %d syncs and %d changes", c.syncs, c.others)
		}
	}
	l = openTest(t, c, small, OpenOptions{CleanShutdown: true, RecoveryPoint: end})
	wantBytes(t, readAll(t, l, 0, end, 5000), readAll(t, l, 0, end, 700))
	if e, _ := l.LatestEpoch(); e != 3 {
		t.Errorf("the latest epoch with batches is 3, not %d", e)
	}
	must(t, l.Close())
}

func TestAnEpochIsOnDiskBeforeItsFirstBatch(t *testing.T) {
	for _, how := range []string{"leader", "follower"} {
		t.Run(how, func(t *testing.T) {
			m := vfs.NewMem()
			epochs := func() string {
				b, _ := vfs.ReadFile(m, dir+"/"+epochsFile, 1<<20)
				return string(b)
			}
			var atWrite string
			f := &vfs.Faulty{FS: m, Hook: func(op vfs.Op, name string) error {
				if op == vfs.OpWrite && name == segmentPath(dir, 0, logSuffix) {
					atWrite = epochs()
				}
				return nil
			}}
			l := openTest(t, f, Config{}, OpenOptions{CleanShutdown: true})
			must(t, l.AssignEpochStart(1, 0)) // led, and wrote nothing
			must(t, l.AssignEpochStart(2, 0))
			if s := epochs(); s != "" {
				t.Fatalf("file has %q before there is a batch", s)
			}
			var err error
			if how == "leader" {
				_, err = l.AppendLeader(plain(1), 2)
			} else {
				b := plain(1)
				b.SetLeaderEpoch(2)
				_, err = l.AppendFollower(b)
			}
			must(t, err)
			if want := "0\n1\n2 0\n"; atWrite != want || epochs() != want {
				t.Errorf("file had %q when the batch was written, has %q", atWrite, epochs())
			}
			must(t, l.AssignEpochStart(5, 1))
			must(t, l.abandon())
			l = openTest(t, m, Config{}, OpenOptions{})
			if e, _ := l.LatestEpoch(); e != 2 {
				t.Errorf("latest epoch after a crash is %d", e)
			}
			must(t, l.AssignEpochStart(5, 1))
			must(t, l.Close())
			if want := "0\n2\n2 0\n5 1\n"; epochs() != want {
				t.Errorf("after a close in order the file has %q", epochs())
			}
		})
	}
}
