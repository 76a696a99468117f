// Command rivals serves a check of four limits with a well-known Go library, behind net/http as such libraries are
// used. The answer to a body of Sluice's check endpoint is 200 or 429.
//
//	rivals redis_rate redis://…
//	rivals throttled redis://…
//	rivals x/time/rate
//
// The path of a request chooses its limits: /plenty never denies, /tight does, /edited has other limits for the buckets
// of /tight, and /slow has buckets that refill for so long that they stay in the store.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	"golang.org/x/time/rate"
)

type limit struct {
	tokens, burst int
	per           time.Duration
}

// limits are those of a user, an endpoint, everybody and an address, as in systems.go.
var limits = map[string][4]limit{
	"/plenty": {{1e6, 1e6, time.Second}, endpoint, everybody, {1e6, 1e6, time.Second}},
	"/tight":  {{10, 50, time.Second}, endpoint, everybody, {20, 100, time.Second}},
	"/edited": {{1, 50, time.Second}, endpoint, everybody, {20, 100, time.Second}},
	"/slow":   {{100, 100, time.Hour}, endpoint, everybody, {100, 100, time.Hour}},
}

var endpoint, everybody = limit{1e6, 1e6, time.Second}, limit{1e7, 1e7, time.Second}

type allow func(ctx context.Context, key string, l limit) (bool, error)

func main() {
	ask := designs[os.Args[1]](os.Args[2:])
	mux := http.NewServeMux()
	for path, four := range limits {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { check(w, r, ask, path, four) })
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(os.Stderr, "listening", listener.Addr())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	panic(server.Serve(listener))
}

// check stops at the first limit that denies, as a chain of middlewares does.
func check(w http.ResponseWriter, r *http.Request, ask allow, path string, four [4]limit) {
	var asked struct {
		UserID   string `json:"user_id"`
		Endpoint string `json:"endpoint"`
		IP       string `json:"ip"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	buckets := path
	if path == "/edited" {
		buckets = "/tight"
	}
	for i, key := range []string{"u:" + asked.UserID, "e:" + asked.Endpoint, "g", "i:" + asked.IP} {
		allowed, err := ask(r.Context(), buckets+key, four[i])
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		if !allowed {
			http.Error(w, `{"allowed":false}`, http.StatusTooManyRequests)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"allowed":true}`))
}

var designs = map[string]func(args []string) allow{
	"redis_rate": func(args []string) allow {
		limiter := redis_rate.NewLimiter(connect(args[0]))
		return func(ctx context.Context, key string, l limit) (bool, error) {
			of := redis_rate.Limit{Rate: l.tokens, Burst: l.burst, Period: l.per}
			answer, err := limiter.Allow(ctx, key, of)
			if err != nil {
				return false, fmt.Errorf("ask redis_rate: %w", err)
			}
			return answer.Allowed > 0, nil
		}
	},
	"throttled": func(args []string) allow {
		store, err := goredisstore.NewCtx(connect(args[0]), "")
		if err != nil {
			panic(err)
		}
		limiters := map[limit]*throttled.GCRARateLimiterCtx{}
		for _, four := range limits {
			for _, l := range four {
				quota := throttled.RateQuota{MaxRate: throttled.PerDuration(l.tokens, l.per), MaxBurst: l.burst - 1}
				if limiters[l], err = throttled.NewGCRARateLimiterCtx(store, quota); err != nil {
					panic(err)
				}
				limiters[l].SetMaxCASAttemptsLimit(100) // with 10, many callers of one key get an error
			}
		}
		return func(ctx context.Context, key string, l limit) (bool, error) {
			limited, _, err := limiters[l].RateLimitCtx(ctx, key, 1)
			if err != nil {
				return false, fmt.Errorf("ask throttled: %w", err)
			}
			return !limited, nil
		}
	},
	"x/time/rate": func([]string) allow {
		var limiters sync.Map
		return func(_ context.Context, key string, l limit) (bool, error) {
			perSecond := rate.Limit(float64(l.tokens) / l.per.Seconds())
			found, ok := limiters.Load(key)
			if !ok {
				found, _ = limiters.LoadOrStore(key, rate.NewLimiter(perSecond, l.burst))
			}
			limiter := found.(*rate.Limiter)
			if limiter.Limit() != perSecond {
				limiter.SetLimit(perSecond)
			}
			return limiter.Allow(), nil
		}
	},
}

func connect(url string) redis.UniversalClient {
	options, err := redis.ParseURL(url)
	if err != nil {
		panic(err)
	}
	return redis.NewClient(options)
}
