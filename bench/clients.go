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

// goClient compares the Go client with batching and without, and a lone check with a bare request. Each call stands
// for one check; there are so many users that each stays far below its limits.
func goClient(ctx context.Context, rounds int, round time.Duration) ([]line, error) {
	return withField(ctx, func(f *field) ([]line, error) {
		const callers = 64
		shared, err := f.newClient(false)
		if err != nil {
			return nil, err
		}
		defer shared.Close()
		unbatched, err := f.newClient(true)
		if err != nil {
			return nil, err
		}
		defer unbatched.Close()
		bare := f.bareRequest()
		sides := []struct {
			callers int
			call    func(ctx context.Context, user int) error
			figures
		}{
			{callers, checker(unbatched), figures{}},
			{callers, checker(shared), figures{}},
			{1, bare, figures{}},
			{1, checker(shared), figures{}},
		}
		for i := range rounds + 1 {
			rates, costs := make([]float64, len(sides)), make([]float64, len(sides))
			for range lapsPerRound {
				for j, side := range sides {
					began, err := f.processors(ctx, f.onRedis)
					if err != nil {
						return nil, err
					}
					calls, rate, err := closedLoop(ctx, side.callers, round/lapsPerRound, side.call)
					if err != nil {
						return nil, err
					}
					ended, err := f.processors(ctx, f.onRedis)
					if err != nil {
						return nil, err
					}
					busy := ended.load - began.load + ended.server - began.server + ended.redis - began.redis
					rates[j] += rate / lapsPerRound
					costs[j] += busy / calls / lapsPerRound
				}
			}
			for j := range sides {
				if i > 0 { // the first warms up
					sides[j].add("rate", rates[j])
					sides[j].add("µs", 1e6/rates[j])
					sides[j].add("checks/CPU s", 1/costs[j])
				}
			}
		}
		return []line{
			lineOf("64 goroutines: unbatched, coalesced (checks/s)", "%.0f",
				sides[0].median("rate"), sides[1].median("rate"), sides[1].over(sides[0].figures, "rate"), 3),
			lineOf("64 goroutines: unbatched, coalesced (checks/CPU s)", "%.0f", sides[0].median("checks/CPU s"),
				sides[1].median("checks/CPU s"), sides[1].over(sides[0].figures, "checks/CPU s"), 0),
			note("a lone check beside a bare request (µs)", "%.0f", sides[2].median("µs"), sides[3].median("µs")),
		}, nil
	})
}

// pythonClient and typescriptClient run those clients' own benchmarks, which print the same two rows, on such a server.
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
	checks := make([]sluice.Check, 20_000)
	for user := range checks {
		checks[user] = sluice.Check{
			UserID: strconv.Itoa(user), Endpoint: "/api/search", IP: fmt.Sprintf("10.0.%d.%d", user/250, user%250),
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

// bareRequest is what asking costs without a client: a request, and an answer that is read and not decoded.
func (f *field) bareRequest() func(context.Context, int) error {
	client := &http.Client{}
	return func(ctx context.Context, user int) error {
		body := fmt.Appendf(nil, `{"user_id":"%d","endpoint":"/api/search","ip":"10.0.%d.%d"}`, user, user/250,
			user%250)
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

// closedLoop lets callers call again and again, and returns how often they did, in all and per second.
func closedLoop(
	ctx context.Context, callers int, round time.Duration, call func(context.Context, int) error,
) (calls, perSecond float64, err error) {
	counts, failures := make([]int, callers), make([]error, callers)
	began := time.Now()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for user := i; time.Since(began) < round && failures[i] == nil; user += callers {
				failures[i] = call(ctx, user%20_000)
				counts[i]++
			}
		})
	}
	all.Wait()
	took := time.Since(began).Seconds()
	for _, n := range counts {
		calls += float64(n)
	}
	return calls, calls / took, errors.Join(failures...)
}
