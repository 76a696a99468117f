package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestSluiceDevDoesWhatItPrints(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	d := startDev(t, dir, nil)
	var denied answer
	for asked := 0; denied.status != http.StatusTooManyRequests; asked++ {
		if asked == 10 {
			t.Fatalf("the printed curl passed %d times", asked)
		}
		denied = d.paste(t)
	}
	wantDocumentedDenial(t, &denied)

	seconds, err := strconv.Atoi(denied.header.Get("Retry-After"))
	if err != nil || seconds < 1 || seconds > 10 {
		t.Fatalf("Retry-After is %q, want 1 to 10 seconds for one token at 6 per minute",
			denied.header.Get("Retry-After"))
	}
	<-time.After(time.Duration(seconds) * time.Second) // the promise is that this very wait is enough
	if again := d.paste(t); again.status != http.StatusOK {
		t.Errorf("after the wait of Retry-After: %d %s, want 200", again.status, again.text)
	}
	d.stop(t)
}

func wantDocumentedDenial(t *testing.T, got *answer) {
	t.Helper()
	const pattern = "user:{user_id}:endpoint:/api/reports"
	if got.Allowed || got.Degraded || *got.Plan != "free" || *got.ViolatedTier != "user" ||
		*got.ViolatedRule != pattern ||
		*got.Reason != "limit_exceeded" || *got.Limit != 3 || *got.Remaining != 0 {
		t.Errorf("the denial says %s", got.text)
	}
	if wait, reset := *got.RetryAfterMS, *got.ResetAfterMS; wait < 1 || wait > 10_000 || reset < 20_000 ||
		reset > 30_000 {
		t.Errorf("wait %d ms and reset %d ms, want at most 10 s and 20 s to 30 s", wait, reset)
	}
	deciding := 0
	for i := range got.Tiers {
		one := &got.Tiers[i]
		if one.RuleID != *got.ViolatedRuleID {
			continue
		}
		deciding++
		if one.KeyPattern != pattern || one.Scope != "user" || one.Mode != "enforce" || one.Allowed ||
			*one.Limit != 3 || *one.Remaining >= 1 {
			t.Errorf("the deciding tier is %+v", one)
		}
	}
	// Free users also have a limit, a daily one and a shadow; then come the address and everything.
	if deciding != 1 || len(got.Tiers) != 6 {
		t.Errorf("%d tiers, %d of them deciding, want 6 and 1: %s", len(got.Tiers), deciding, got.text)
	}

	item := fmt.Sprintf(`"user-%d"`, *got.ViolatedRuleID)
	wait := got.header.Get("Retry-After")
	for name, want := range map[string]string{
		"RateLimit-Policy":      `(^|, )` + item + `;q=3;w=30(,|$)`,
		"RateLimit":             `(^|, )` + item + `;r=0;t=` + wait + `(,|$)`,
		"X-RateLimit-Limit":     `^3$`,
		"X-RateLimit-Remaining": `^0$`,
		"X-Sluice-Reason":       `^limit_exceeded$`,
		"Content-Type":          `^application/json$`,
	} {
		if value := got.header.Get(name); !regexp.MustCompile(want).MatchString(value) {
			t.Errorf("header %s is %q, want %s", name, value, want)
		}
	}
	if items := strings.Count(got.header.Get("RateLimit-Policy"), ";q="); items != 5 {
		t.Errorf("RateLimit-Policy has %d items, want one for each of 5 enforced tiers", items)
	}
	reset, err := strconv.ParseInt(got.header.Get("X-RateLimit-Reset"), 10, 64)
	if in := time.Until(time.Unix(reset, 0)); err != nil || in < 15*time.Second || in > 31*time.Second {
		t.Errorf("X-RateLimit-Reset is in %s (%v), want when the bucket is full, in 20 s to 30 s", in, err)
	}
}

func TestSluiceDevKeepsItsDataBetweenRuns(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	d := startDev(t, dir, nil)
	exported := admin(t, d.database, "export", "--tenant", "demo")
	edited := strings.Replace(exported, "burst_capacity: 100000", "burst_capacity: 99999", 1)
	if edited == exported {
		t.Fatalf("the demo has no global rule to edit:\n%s", exported)
	}
	demo := tenant{database: d.database, slug: "demo"}
	demo.apply(t, edited)
	d.stop(t)

	d = startDev(t, dir, nil)
	if now := admin(t, d.database, "export", "--tenant", "demo"); now != edited {
		t.Errorf("after another start the rules are\n%s\nwant\n%s", now, edited)
	}
	if got := d.paste(t); got.status != http.StatusOK {
		t.Errorf("the printed curl: %d %s, want 200", got.status, got.text)
	}
	d.stop(t)
}

func TestSluiceDevRunsWithoutRedis(t *testing.T) {
	t.Parallel()
	d := startDev(t, dataDir(t), []string{"PATH=" + pathWithout("redis-server")})
	if log := d.stderr.String(); !strings.Contains(log, "redis-server is not installed") ||
		!strings.Contains(log, "in memory") {
		t.Errorf("the log does not say that buckets are in memory:\n%s", log)
	}
	for range 3 {
		if got := d.paste(t); got.status != http.StatusOK || got.Degraded {
			t.Fatalf("%d %s, want 200 and not degraded", got.status, got.text)
		}
	}
	if got := d.paste(t); got.status != http.StatusTooManyRequests {
		t.Errorf("%d %s, want 429", got.status, got.text)
	}
	greeting := regexp.MustCompile(`(?m)^Admin +http://(\S+) \(sign in as (\S+) with the password (\S+)\)$`).
		FindStringSubmatch(d.stdout.String())
	if greeting == nil {
		t.Fatalf("no admin login was printed:\n%s", d.stdout.String())
	}
	a := &adminServer{addr: greeting[1], client: newClient(t)}
	a.signInAs(t, greeting[2], greeting[3])
	status, buckets, err := a.askOf("demo", http.MethodGet, "/users/42/buckets", "")
	if err != nil || status != http.StatusOK ||
		!regexp.MustCompile(`"burst_capacity":3,.*?"tokens":0[.,]`).MatchString(buckets) {
		t.Errorf("user 42's buckets: %d, %v: %s", status, err, buckets)
	}
	d.stop(t)
}

func TestSluiceDevRefusesToBeReachable(t *testing.T) {
	t.Parallel()
	for _, option := range []string{"--check-addr", "--grpc-addr", "--admin-addr", "--metrics-addr"} {
		for _, address := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0"} {
			t.Run(option+" "+address, func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "data")
				r := run(t, nil, "sluice", "dev", "--data-dir", dir, option, address)
				if r.status != 2 || !strings.Contains(r.stderr, option) || !strings.Contains(r.stderr, "loopback") {
					t.Errorf("status %d and %q, want 2 and words about %s and loopback", r.status, r.stderr, option)
				}
				if _, err := os.Stat(dir); err == nil {
					t.Error("it made a data directory all the same")
				}
			})
		}
	}
}

type dev struct {
	*process
	client        *http.Client
	url, database string
	headers       [][]string
	body          string
}

var (
	printedEnd      = regexp.MustCompile(`(?m)^Ctrl-C stops it\.$`)
	printedURL      = regexp.MustCompile(`curl -i (http://\S+)`)
	printedHeader   = regexp.MustCompile(`-H '([^:']+): ([^']+)'`)
	printedBody     = regexp.MustCompile(`-d '([^']+)'`)
	printedDatabase = regexp.MustCompile(`SLUICE_DATABASE_URL='([^']+)'`)
)

func startDev(t *testing.T, dir string, env []string) *dev {
	t.Helper()
	env = append([]string{"SLUICE_STORE_BUDGET=5s"}, env...) // a slow machine is not an outage
	p := spawn(t, env, "sluice", "dev", "--data-dir", dir, "--check-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0",
		"--metrics-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0")
	// It has servers of its own to stop, even if the test fails.
	t.Cleanup(func() { p.stop(t) })
	p.await(t, &p.stdout, printedEnd)
	printed := p.stdout.String()
	d := &dev{
		process: p, client: newClient(t),
		url:      p.await(t, &p.stdout, printedURL)[1],
		database: p.await(t, &p.stdout, printedDatabase)[1],
		headers:  printedHeader.FindAllStringSubmatch(printed, -1),
		body:     p.await(t, &p.stdout, printedBody)[1],
	}
	return d
}

func (d *dev) paste(t *testing.T) answer {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, d.url, strings.NewReader(d.body))
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range d.headers {
		request.Header.Set(header[1], header[2])
	}
	got, err := send(d.client, request)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// dataDir returns a directory that other users, such as postgres, can reach, unlike t.TempDir.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sluice-e2e-dev-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "data")
}

func pathWithout(program string) string {
	var kept []string
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		if _, err := os.Stat(filepath.Join(folder, program)); err != nil {
			kept = append(kept, folder)
		}
	}
	return strings.Join(kept, string(filepath.ListSeparator))
}
