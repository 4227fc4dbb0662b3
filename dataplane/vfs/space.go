package vfs

import "golang.org/x/sys/unix"

// Space tells how large the file system is that holds a path, and how much of it an
// ordinary user can still fill, in bytes; -1 where fsys cannot say.
func Space(fsys FS, path string) (total, usable int64, err error) {
	if s, ok := fsys.(interface {
		space(path string) (total, usable int64, err error)
	}); ok {
		return s.space(path)
	}
	return -1, -1, nil
}

func (osFS) space(path string) (total, usable int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return -1, -1, err
	}
	return int64(st.Blocks) * st.Bsize, int64(st.Bavail) * st.Bsize, nil
}
