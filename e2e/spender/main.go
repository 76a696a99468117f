// Command spender spends tokens on a handle of the Go client until it is killed. For each check that passed it writes
// when
// it was asked and decided, in microseconds since 1970, and the decider.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	sluice "github.com/sluicegate/sluice/client"
)

func main() {
	if err := spend(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "spender:", err)
		os.Exit(1)
	}
}

func spend(url, key, user, pause string) error {
	every, err := time.ParseDuration(pause)
	if err != nil {
		return fmt.Errorf("read the pause: %w", err)
	}
	client, err := sluice.New(sluice.Config{URL: url, Key: key, FailureMode: sluice.Closed, Timeout: 10 * time.Second})
	if err != nil {
		return err
	}
	defer client.Close()
	handle, err := client.Handle(sluice.Check{UserID: user})
	if err != nil {
		return err
	}
	for range time.Tick(every) {
		asked := time.Now()
		d, err := handle.Check(context.Background())
		if err != nil {
			return err
		}
		if d.Allowed { // each line is one write, so that a kill loses at most the last
			if _, err := fmt.Fprintf(os.Stdout, "%d %d %s\n", asked.UnixMicro(), time.Now().UnixMicro(),
				d.Source); err != nil {
				return fmt.Errorf("write a line: %w", err)
			}
		}
	}
	return nil
}
