// Package listener accepts connections and turns each into one ordered
// pipeline of requests: frames in, replies out in the same order.
package listener
