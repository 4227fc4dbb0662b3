// Package listener accepts connections and turns each into one ordered
// pipeline of requests: frames in, replies out in the same order.
//
// A connection has one goroutine. It waits for a frame, lets the memory budget
// grant it, reads and decodes it, runs the handler and, once the reply is
// there, writes it. Only when a Produce or OffsetCommit is still unanswered as
// its handler returns does a second goroutine take over the writing, so that
// the first can go on reading; it ends when nothing is unanswered. Handlers
// may reply from any goroutine: that one never touches the socket, so a slow
// client cannot hold up the log.
//
// # Memory
//
// A connection costs about 12 KiB while idle. The requests of a login take at
// most MaxFrameBeforeAuth for the frame and 256 KiB for the body, whatever they
// claim to hold. All other frames and decoded bodies
// come out of the Budget: the frame and the ordinary size of its body before
// it is read, the rest before it is decoded. What a kind of request may take at
// most is in the table, budget or not.
//
// # Lock order
//
// Listener.mu before Conn.mu; no callback is called with either held.
package listener
