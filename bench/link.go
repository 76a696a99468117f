package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// link is the way to a server. What clients send passes at the bandwidth, one byte after the other, and arrives after
// the delay. Answers pass at once.
type link struct {
	delay     time.Duration
	bandwidth int64 // bytes a second

	mu   sync.Mutex
	free time.Time // when the last byte is sent
}

// arrival returns when n bytes that are sent now arrive.
func (l *link) arrival(n int) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(int64(n) * int64(time.Second) / l.bandwidth))
	return l.free.Add(l.delay)
}

// behindLink listens, until ctx ends, for connections to a server that share one link.
func behindLink(ctx context.Context, server string, delay time.Duration, bandwidth int64) (addr string, err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen for the link: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	way := &link{delay: delay, bandwidth: bandwidth}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := (&net.Dialer{}).DialContext(ctx, "tcp", server)
			if err != nil {
				_ = near.Close()
				continue
			}
			go carry(way, near, far)
			go func() { _, _ = io.Copy(near, far); _ = near.Close() }()
		}
	}()
	return listener.Addr().String(), nil
}

// carry passes on what a client sends, each piece when it arrives.
func carry(way *link, near, far net.Conn) {
	defer func() { _ = far.Close() }()
	type piece struct {
		bytes []byte
		at    time.Time
	}
	pieces := make(chan piece, 1024)
	go func() {
		defer close(pieces)
		for {
			bytes := make([]byte, 16<<10)
			n, err := near.Read(bytes)
			if err != nil {
				return
			}
			pieces <- piece{bytes[:n], way.arrival(n)}
		}
	}()
	for p := range pieces {
		awaitMoment(p.at)
		if _, err := far.Write(p.bytes); err != nil {
			_ = near.Close()
		}
	}
}
