package dev

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// brokerAnswers asks a broker for its API versions, which any client may before
// it has logged in: the shortest sign that it serves.
func brokerAnswers(addr string) error {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	// Size, then header v1: key 18, version 0, correlation id 1, null client id.
	req := []byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff}
	if _, err := c.Write(req); err != nil {
		return err
	}
	head := make([]byte, 10) // size, correlation id, error code
	if _, err := io.ReadFull(c, head); err != nil {
		return err
	}
	if id, code := binary.BigEndian.Uint32(head[4:]), int16(binary.BigEndian.Uint16(head[8:])); id != 1 || code != 0 {
		return fmt.Errorf("broker at %s answers ApiVersions with error %d", addr, code)
	}
	return nil
}
