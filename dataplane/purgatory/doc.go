// Package purgatory holds operations that wait: a produce for the high
// watermark, a fetch for enough bytes, a join for its members, a heartbeat for
// its member.
//
// Two parts. Wheel is a hierarchical timing wheel: 20 slots of 1 ms, and when
// a time lies beyond them 20 slots of 20 ms, of 400 ms, of 8 s and so on. It
// has one goroutine, which sleeps until the next slot that holds a timer; an
// empty wheel costs nothing. Purgatory watches operations by key: whoever
// changes the world that a key stands for calls Check, and the operations of
// that key look again whether they are done. There is no polling anywhere.
//
// Locks, outermost first: an operation's own lock (held while TryComplete
// runs, so whatever TryComplete locks comes after it), a shard of the watch
// lists, the wheel. Check and Watch must therefore be called without holding a
// lock that a TryComplete takes.
package purgatory
