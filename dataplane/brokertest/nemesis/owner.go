package nemesis

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// ownerOf finds the process at the other end of a loopback connection, as the
// kernel tells it in /proc: the socket's inode by the two addresses, and which of
// the processes has it open. ok is false if none of them does.
func ownerOf(remote, local *net.TCPAddr, pids map[Party]int) (Party, bool) {
	inode := inodeOf(remote, local)
	if inode == "" {
		return 0, false
	}
	want := "socket:[" + inode + "]"
	for party, pid := range pids {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil && to == want {
				return party, true
			}
		}
	}
	return 0, false
}

// inodeOf looks a socket up by its own and its peer's address.
func inodeOf(own, peer *net.TCPAddr) string {
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		return ""
	}
	defer f.Close()
	a, b := hexAddr(own), hexAddr(peer)
	for s := bufio.NewScanner(f); s.Scan(); {
		if cols := strings.Fields(s.Text()); len(cols) > 9 && cols[1] == a && cols[2] == b {
			return cols[9]
		}
	}
	return ""
}

// hexAddr is an address as /proc/net/tcp has it: the IP in the machine's order.
func hexAddr(a *net.TCPAddr) string {
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(a.IP.To4()), a.Port)
}
