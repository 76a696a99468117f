package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	sluice "github.com/sluicegate/sluice/client"
)

// goClient compares the Go client with batching and without, and a lone check with a bare request.
func goClient(ctx context.Context, rounds int, round time.Duration) ([]line, error) {
	return withField(ctx, func(f *field) ([]line, error) {
		const callers = 64
		coalescing, err := f.newClient(false)
		if err != nil {
			return nil, err
		}
		defer coalescing.Close()
		unbatched, err := f.newClient(true)
		if err != nil {
			return nil, err
		}
		defer unbatched.Close()
		side := func(name string, call func(context.Context, int) error) *contender {
			return &contender{name: name, server: f.onRedis, checks: 1, closed: calling(call)}
		}
		alone, shared := side("unbatched", checker(unbatched)), side("coalesced", checker(coalescing))
		if err := f.race(ctx, rounds, round, callers, alone, shared); err != nil {
			return nil, err
		}
		bare, lone := side("a bare request", f.bareRequest()), side("a lone check", checker(coalescing))
		if err := f.race(ctx, rounds, round, 1, bare, lone); err != nil {
			return nil, err
		}
		return []line{
			versus("64 goroutines: unbatched, coalesced (checks/s)", alone, shared, 3),
			lineOf("64 goroutines: unbatched, coalesced (checks/CPU s)", "%.0f", alone.median("checks/CPU s"),
				shared.median("checks/CPU s"), shared.over(alone.figures, "checks/CPU s"), 0),
			note("a lone check beside a bare request (µs)", "%.0f", 1e6/bare.median("checks/s"),
				1e6/lone.median("checks/s")),
		}, nil
	})
}

// pythonClient and typescriptClient run those clients' own benchmarks, which print the same two rows.
func pythonClient(ctx context.Context, _ int, _ time.Duration) ([]line, error) {
	python, err := exec.CommandContext(ctx, "../scripts/install.sh", "python").Output()
	if err != nil {
		return nil, fmt.Errorf("find a Python with httpx; scripts/install.sh test installs one: %w", err)
	}
	return otherClient(ctx, "Python", "../clients/python", strings.TrimSpace(string(python)), "-m", "tests.bench")
}

func typescriptClient(ctx context.Context, _ int, _ time.Duration) ([]line, error) {
	return otherClient(ctx, "TypeScript", "../clients/typescript", "npm", "run", "--silent", "bench")
}

func otherClient(ctx context.Context, language, dir, program string, args ...string) ([]line, error) {
	return withField(ctx, func(f *field) ([]line, error) {
		command := exec.CommandContext(ctx, program, args...)
		command.Dir, command.Stderr = dir, os.Stderr
		command.Env = append(os.Environ(), "PYTHONPATH=src", "SLUICE_URL=http://"+f.onRedis.addr, "SLUICE_KEY="+f.token)
		output, err := command.Output()
		if err != nil {
			return nil, fmt.Errorf("run the benchmark of %s: %w", dir, err)
		}
		var unbatched, coalesced, shared, bare, client, added float64
		if _, err := fmt.Sscanf(string(output),
			"64 concurrent checks: %g/s unbatched, %g/s coalesced, ratio %g\na lone check: %g µs bare, %g µs with "+
				"the client, ratio %g",
			&unbatched, &coalesced, &shared, &bare, &client, &added); err != nil {
			return nil, fmt.Errorf("read what the benchmark of %s prints, %q: %w", dir, output, err)
		}
		return []line{
			lineOf(language+", 64 at once: unbatched, coalesced (checks/s)", "%.0f", unbatched, coalesced, shared, 0),
			lineOf("  a lone check beside a bare request (µs)", "%.0f", bare, client, added, 0),
		}, nil
	})
}

func (f *field) newClient(unbatched bool) (*sluice.Client, error) {
	return sluice.New(sluice.Config{
		URL: "http://" + f.onRedis.addr, Key: f.token, Timeout: 10 * time.Second, Unbatched: unbatched,
		Logger: slog.New(slog.DiscardHandler),
	})
}

func checker(client *sluice.Client) func(context.Context, int) error {
	checks := make([]sluice.Check, crowdUsers)
	for user := range checks {
		checks[user] = sluice.Check{
			UserID: strconv.Itoa(user), Endpoint: "/api/search", IP: ipv4(user),
		}
	}
	return func(ctx context.Context, user int) error {
		d, err := client.Check(ctx, checks[user])
		if err == nil && (!d.Allowed || d.Source != sluice.FromServer) {
			err = fmt.Errorf("allowed is %v, from %s (%w)", d.Allowed, d.Source, d.Err)
		}
		return err
	}
}

// bareRequest is a check without a client: the answer is read, but not decoded.
func (f *field) bareRequest() func(context.Context, int) error {
	client := &http.Client{}
	return func(ctx context.Context, user int) error {
		body := fmt.Appendf(nil, `{"user_id":"%d","endpoint":"/api/search","ip":%q}`, user, ipv4(user))
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+f.onRedis.addr+"/v1/check",
			bytes.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+f.token)
		request.Header.Set("Content-Type", "application/json")
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, response.Body)
		return errors.Join(err, response.Body.Close())
	}
}

func calling(call func(context.Context, int) error) func(context.Context, int, time.Duration) (outcome, error) {
	return func(ctx context.Context, callers int, length time.Duration) (done outcome, err error) {
		counts, failures := make([]int64, callers), make([]error, callers)
		began := time.Now()
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for user := i; time.Since(began) < length && failures[i] == nil; user += callers {
					failures[i] = call(ctx, user%crowdUsers)
					counts[i]++
				}
			})
		}
		all.Wait()
		for _, n := range counts {
			done.answers += n
		}
		done.perSecond = float64(done.answers) / time.Since(began).Seconds()
		return done, errors.Join(failures...)
	}
}
