package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// load is whole HTTP/1.1 requests to servers in turn, written before anything is measured: net/http's client would cost
// more than the server.
type load struct {
	addrs    []string
	requests [][]byte
	denies   string // what the body of a denial has, if its status is 200
	tolerant bool   // an answer that is no decision is counted, and otherwise an error
}

type outcome struct {
	answers   int64
	denied    int64 // of them
	failed    int64 // of them: no decision
	perSecond float64
	// latencies are in ascending order, in a closed loop from when a request was sent, in an open one from when it was
	// due.
	latencies []time.Duration
}

func (l load) closed(ctx context.Context, connections int, length time.Duration) (outcome, error) {
	start := time.Now()
	found, err := l.inTurns(ctx, connections, func(first, asked int) ([]byte, bool) {
		return l.requests[(first*7919+asked)%len(l.requests)], time.Since(start) < length
	})
	found.perSecond = float64(found.answers) / length.Seconds()
	return found, err
}

func (l load) once(ctx context.Context, connections int) error {
	_, err := l.inTurns(ctx, connections, func(first, asked int) ([]byte, bool) {
		i := first + asked*connections
		return l.requests[i%len(l.requests)], i < len(l.requests)
	})
	return err
}

// inTurns sends requests on each connection until next, which gets the connection's number and its count of requests,
// returns none.
func (l load) inTurns(ctx context.Context, connections int, next func(number, made int) ([]byte, bool)) (
	outcome, error,
) {
	var mu sync.Mutex
	var all outcome
	err := l.connect(ctx, connections, func(c *connection, number int) error {
		var own outcome
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			all.answers, all.denied, all.failed = all.answers+own.answers, all.denied+own.denied, all.failed+own.failed
			all.latencies = append(all.latencies, own.latencies...)
		}()
		for made := 0; ctx.Err() == nil; made++ {
			request, more := next(number, made)
			if !more {
				break
			}
			sent := time.Now()
			status, err := c.ask(request, l.denies)
			switch {
			case err != nil && (status == 0 || !l.tolerant):
				return err
			case err != nil:
				own.failed++
			case status == 429:
				own.denied++
			}
			own.answers++
			own.latencies = append(own.latencies, time.Since(sent))
		}
		return nil
	})
	slices.Sort(all.latencies)
	return all, errors.Join(err, ctx.Err())
}

// open sends requests at a constant rate. A request that finds every connection busy is late, and its latency counts
// from when it was due, so a stall is charged for all requests due meanwhile (coordinated omission).
func (l load) open(ctx context.Context, rate float64, connections int, length time.Duration) (outcome, error) {
	interval := time.Duration(float64(time.Second) / rate)
	due := make(chan time.Time, int(rate*length.Seconds())+1)
	var mu sync.Mutex
	var latencies []time.Duration
	go func() {
		defer close(due)
		start := time.Now()
		for at := start; at.Sub(start) < length && ctx.Err() == nil; at = at.Add(interval) {
			awaitMoment(at)
			due <- at
		}
	}()
	err := l.connect(ctx, connections, func(c *connection, first int) error {
		var own []time.Duration
		defer func() {
			mu.Lock()
			latencies = append(latencies, own...)
			mu.Unlock()
		}()
		i := first * 7919
		for at := range due {
			if _, err := c.ask(l.requests[i%len(l.requests)], l.denies); err != nil {
				return err
			}
			own = append(own, time.Since(at))
			i++
		}
		return nil
	})
	slices.Sort(latencies)
	return outcome{
		answers: int64(len(latencies)), perSecond: float64(len(latencies)) / length.Seconds(), latencies: latencies,
	}, errors.Join(err, ctx.Err())
}

// awaitMoment is exact to some 50 µs. Go's timers wake an idle process only at the next full millisecond, which is
// longer than an answer takes.
func awaitMoment(at time.Time) {
	for left := time.Until(at); left > 0; left = time.Until(at) {
		wait := syscall.NsecToTimespec(left.Nanoseconds())
		_ = syscall.Nanosleep(&wait, nil) // a signal ends it early; then there is some left
	}
}

func (o outcome) percentile(share float64) time.Duration {
	if len(o.latencies) == 0 {
		return 0
	}
	return o.latencies[int(share*float64(len(o.latencies)-1))]
}

func (l load) connect(ctx context.Context, connections int, do func(c *connection, i int) error) error {
	open, err := l.dial(ctx, connections)
	defer closeAll(open)
	if err != nil {
		return err
	}
	failures := make([]error, connections)
	var wg sync.WaitGroup
	for i, c := range open {
		wg.Go(func() { failures[i] = do(c, i) })
	}
	wg.Wait()
	return errors.Join(failures...)
}

// dial opens connections to the servers in turn. The caller closes them, also after an error.
func (l load) dial(ctx context.Context, connections int) (open []*connection, err error) {
	var dialer net.Dialer
	for i := range connections {
		conn, err := dialer.DialContext(ctx, "tcp", l.addrs[i%len(l.addrs)])
		if err != nil {
			return open, fmt.Errorf("connect to a server: %w", err)
		}
		open = append(open, &connection{conn, bufio.NewReaderSize(conn, 64<<10)})
	}
	return open, nil
}

func closeAll(open []*connection) {
	for _, c := range open {
		_ = c.Close()
	}
}

type connection struct {
	net.Conn
	answers *bufio.Reader
}

// ask returns 429 for a 200 whose body contains denies. A status other than 200 and 429 is also an error.
func (c *connection) ask(request []byte, denies string) (status int, err error) {
	if _, err := c.Write(request); err != nil {
		return 0, fmt.Errorf("send a request: %w", err)
	}
	length := -1
	for first := true; ; first = false {
		line, err := c.answers.ReadSlice('\n')
		if err != nil {
			return 0, fmt.Errorf("read an answer: %w", err)
		}
		line = bytes.TrimRight(line, "\r\n")
		if first {
			status, _ = strconv.Atoi(string(line[9:12])) // of "HTTP/1.1 200 OK"
		}
		if len(line) == 0 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length, _ = strconv.Atoi(string(value))
		}
	}
	if length < 0 {
		return 0, fmt.Errorf("an answer with status %d and no length", status)
	}
	if denies != "" {
		body, err := c.answers.Peek(length)
		if err != nil {
			return 0, fmt.Errorf("read an answer: %w", err)
		}
		if bytes.Contains(body, []byte(denies)) {
			status = 429
		}
	}
	if _, err := c.answers.Discard(length); err != nil {
		return 0, fmt.Errorf("read an answer: %w", err)
	}
	if status != 200 && status != 429 {
		return status, fmt.Errorf("an answer with status %d", status)
	}
	return status, nil
}
