package main

import (
	"context"
	"fmt"
	"time"
)

// loneWarmUp is the time until buckets are leased.
const loneWarmUp = time.Second

type lone struct {
	name, addr string
	ask        func(c *connection, i int) error
}

func loneRequest(name string, server *process, requests [][]byte) lone {
	return lone{name, server.addr, func(c *connection, i int) error {
		_, err := c.ask(requests[i%len(requests)], "")
		return err
	}}
}

func lonePing(name, addr string) lone {
	return lone{name, addr, func(c *connection, _ int) error {
		_, err := c.Write([]byte("PING\r\n"))
		if err == nil {
			_, err = c.answers.ReadSlice('\n')
		}
		if err != nil {
			return fmt.Errorf("ping redis: %w", err)
		}
		return nil
	}}
}

// takeTurns has sides make one request each, in turn, and returns each side's microseconds. The differences are a few
// microseconds, so the sides must alternate faster than the machine's other load changes.
func takeTurns(ctx context.Context, length time.Duration, sides ...lone) (figures, error) {
	var addrs []string
	for _, side := range sides {
		addrs = append(addrs, side.addr)
	}
	connections, err := load{addrs: addrs}.dial(ctx, len(sides))
	defer closeAll(connections)
	if err != nil {
		return nil, err
	}
	found, start := figures{}, time.Now()
	for turn := 0; time.Since(start) < loneWarmUp+length; turn++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		counts := time.Since(start) > loneWarmUp
		for i, side := range sides {
			began := time.Now()
			if err := side.ask(connections[i], turn); err != nil {
				return nil, err
			}
			if took := time.Since(began); counts {
				found.add(side.name, micros(took))
			}
		}
	}
	return found, nil
}

// beyond returns the median of the differences of two sides' turns.
func (f figures) beyond(side, baseline string) float64 {
	var differences []float64
	for i, value := range f[side] {
		differences = append(differences, value-f[baseline][i])
	}
	return median(differences)
}
