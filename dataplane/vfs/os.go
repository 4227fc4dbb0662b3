package vfs

// OS is the real file system.
var OS FS
