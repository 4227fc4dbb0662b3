package crashtest

import "penstock/dataplane/vfs"

// Lying says that calls were made which it has skipped: a fault between right code and
// the disk. Asked about are syncs of files and folders, truncations, renames (by the
// old name) and removals.
func Lying(fsys vfs.FS, skip func(op vfs.Op, name string) bool) vfs.FS {
	return &lyingFS{FS: fsys, skip: skip}
}

type lyingFS struct {
	vfs.FS
	skip func(op vfs.Op, name string) bool
}

func (l *lyingFS) SyncDir(n string) error {
	return l.unless(vfs.OpSyncDir, n, func() error { return l.FS.SyncDir(n) })
}

func (l *lyingFS) Rename(o, n string) error {
	return l.unless(vfs.OpRename, o, func() error { return l.FS.Rename(o, n) })
}

func (l *lyingFS) Remove(n string) error {
	return l.unless(vfs.OpRemove, n, func() error { return l.FS.Remove(n) })
}

func (l *lyingFS) unless(op vfs.Op, name string, call func() error) error {
	if l.skip(op, name) {
		return nil
	}
	return call()
}

func (l *lyingFS) Open(name string, create bool) (vfs.File, error) {
	f, err := l.FS.Open(name, create)
	if err != nil {
		return nil, err
	}
	return &lyingFile{f, l}, nil
}

type lyingFile struct {
	vfs.File
	l *lyingFS
}

func (f *lyingFile) Sync() error { return f.l.unless(vfs.OpSync, f.Name(), f.File.Sync) }

func (f *lyingFile) Truncate(n int64) error {
	return f.l.unless(vfs.OpTruncate, f.Name(), func() error { return f.File.Truncate(n) })
}
