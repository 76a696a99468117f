package sluice

import (
	"fmt"
	"runtime/debug"
	"time"
)

// restartPause is between a panic in a loop and its next turn.
const restartPause = time.Second

// recovered reports whether work panicked, which would end the caller's process.
func (c *Client) recovered(what string, work func()) (panicked bool) {
	defer func() {
		if cause := recover(); cause != nil {
			panicked = true
			c.config.Logger.Error("panic in the client of Sluice", "in", what, "panic", fmt.Sprint(cause),
				"stack", string(debug.Stack()))
		}
	}()
	work()
	return false
}

// background runs work in a goroutine that Close waits for.
func (c *Client) background(what string, work func()) {
	c.work.Go(func() { c.recovered(what, work) })
}

// loop runs a loop that ends with the client, and restarts it after a panic. Close waits for it.
func (c *Client) loop(what string, loop func()) {
	c.work.Go(func() {
		for c.recovered(what, loop) {
			select {
			case <-c.life.Done():
				return
			case <-time.After(restartPause):
			}
		}
	})
}
