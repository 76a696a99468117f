package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	jsonType      = "application/json"
	importedUsers = 50_000 // of each import
	importedPlans = 10
	importedRules = 500
	matrixRules   = 200 // of each save
	// greedyLoops is how many loops of a tenant repeat each request.
	greedyLoops = 4
	// tailFor is how long a live tail stays open.
	tailFor = 2 * time.Second
)

// adminRequest is one request to the admin process.
type adminRequest struct {
	method, path, mediaType, body string
	from                          string        // the client's address, as a proxy would tell it; "" for none
	slow                          bool          // the answer is read at 200 kB/s
	length                        time.Duration // the caller leaves after it; 0 for the answer's end
}

func post(path, body string) adminRequest {
	q := adminRequest{method: "POST", path: path, body: body}
	if body != "" {
		q.mediaType = jsonType
	}
	return q
}

// path is a path of the tenant.
func (t *neighbour) path(below string) string { return "/api/v1/tenants/" + t.Slug + below }

// reply is an answer. Of files only the length is of interest.
type reply struct {
	status int
	body   []byte // of JSON
}

func loopClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true}}
}

// ask sends a request and reads its answer to the end.
func (n *neighbourhood) ask(ctx context.Context, t *neighbour, q adminRequest) (got reply, err error) {
	if q.length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.length)
		defer cancel()
	}
	request, err := http.NewRequestWithContext(ctx, q.method, n.base+q.path, strings.NewReader(q.body))
	if err != nil {
		return got, fmt.Errorf("ask: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+t.Key)
	if q.from != "" {
		request.Header.Set("X-Forwarded-For", q.from)
	}
	if q.mediaType != "" {
		request.Header.Set("Content-Type", q.mediaType)
	}
	answer, err := n.client.Do(request)
	if err != nil {
		return got, fmt.Errorf("ask: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	got.status = answer.StatusCode
	switch {
	case q.slow:
		for err == nil {
			_, err = io.CopyN(io.Discard, answer.Body, 4<<10)
			awaitMoment(time.Now().Add(20 * time.Millisecond))
		}
	case strings.Contains(answer.Header.Get("Content-Type"), "json"):
		got.body, err = io.ReadAll(answer.Body)
		return got, err
	default:
		_, _ = io.Copy(io.Discard, answer.Body)
	}
	return got, nil
}

// statusError is an answer with another status than the expected one.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

// call asks for JSON and fails unless the status is the expected one.
func (n *neighbourhood) call(ctx context.Context, t *neighbour, q adminRequest, want int, to any) error {
	got, err := n.ask(ctx, t, q)
	if err != nil {
		return err
	}
	if got.status != want {
		return &statusError{got.status, fmt.Sprintf("%s %s: status %d: %.300s", q.method, q.path, got.status, got.body)}
	}
	if to == nil {
		return nil
	}
	if err := json.Unmarshal(got.body, to); err != nil {
		return fmt.Errorf("%s %s: %w", q.method, q.path, err)
	}
	return nil
}

// furnish makes a tenant's rules and alerts. Those of a setting before stay.
func (n *neighbourhood) furnish(ctx context.Context, t *neighbour, hooks *hooks) error {
	if t.Rule == 0 {
		for i := range importedPlans {
			plan := fmt.Sprintf(`{"name":%q}`, importedPlan(i))
			if err := n.call(ctx, t, post(t.path("/plans"), plan), http.StatusCreated, nil); err != nil {
				return err
			}
		}
		var made struct {
			RuleID int64 `json:"rule_id"`
		}
		rule := post(t.path("/rules"), `{"key_pattern":"user:{user_id}","name":"credited","rate_per_second":1,"rate_unit":"second","burst_capacity":50}`)
		if err := n.call(ctx, t, rule, http.StatusCreated, &made); err != nil {
			return err
		}
		t.Rule = made.RuleID
		cells := make([]string, matrixRules)
		for i := range cells {
			cells[i] = fmt.Sprintf(`{"key_pattern":"endpoint:/matrix/%d","rate_per_second":1,"rate_unit":"second","burst_capacity":5}`, i)
		}
		if err := n.call(ctx, t, post(t.path("/matrix"), `{"cells":[`+strings.Join(cells, ",")+`]}`), http.StatusOK, nil); err != nil {
			return err
		}
	}
	t.Alerts = nil
	for i := range quietAlerts {
		target := hooks.blackHole.URL
		if t == n.tenants[0] {
			target = hooks.quiet.URL
		}
		var made struct {
			Alert struct {
				ID int64 `json:"alert_id"`
			} `json:"alert"`
		}
		alert := post(t.path("/alerts"), fmt.Sprintf(`{"name":"alert %d","rule_id":%d,"per":"rule","threshold":1000000,"window_minutes":5,"url":%q}`, i, t.Rule, target))
		if err := n.call(ctx, t, alert, http.StatusCreated, &made); err != nil {
			return err
		}
		t.Alerts = append(t.Alerts, made.Alert.ID)
		hooks.arrived[made.Alert.ID] = make(chan int64, 16)
	}
	return nil
}

// readWebhook returns the alert and the delivery of a webhook.
func readWebhook(body io.Reader) (alert, delivery int64, err error) {
	var message struct {
		Delivery int64 `json:"delivery_id,string"`
		Alert    struct {
			ID int64 `json:"id,string"`
		} `json:"alert"`
	}
	if err := json.NewDecoder(body).Decode(&message); err != nil {
		return 0, 0, fmt.Errorf("read a webhook: %w", err)
	}
	return message.Alert.ID, message.Delivery, nil
}

// greedyRequests are the most expensive that each route allows, over and over.
var greedyRequests = sync.OnceValue(func() []adminRequest {
	var users, config strings.Builder
	users.WriteString("user_id,plan\n")
	for i := range importedUsers {
		fmt.Fprintf(&users, "user-%d,PLAN\n", i)
	}
	config.WriteString("rules:\n")
	for i := range importedRules {
		fmt.Fprintf(&config, "  - {key_pattern: \"endpoint:/imported/%d\", rate: RATE/second, burst_capacity: 9}\n", i)
	}
	return []adminRequest{
		{method: "POST", path: "/users/import", mediaType: "text/csv", body: users.String()},
		{method: "POST", path: "/import", mediaType: "application/yaml", body: config.String()},
		{method: "GET", path: "/export"},
		{method: "GET", path: "/violations?plan=none&limit=500"},
		{method: "GET", path: "/violations/export?plan=none"},
		{method: "GET", path: "/violations/export", slow: true},
		{method: "GET", path: "/violations/tail", length: tailFor},
		{method: "GET", path: "/stats/top?by=endpoint&mode=shadow"},
		{method: "GET", path: "/stats/series?step_seconds=3600"},
		{method: "GET", path: "/stats/summary"},
		{method: "GET", path: "/audit/export"},
		{method: "GET", path: "/users/export", slow: true},
		post("/explain", `{"user_id":"1","endpoint":"/matrix/1","ip":"203.0.113.9"}`),
		post("/simulate", `{"rules":[{"key_pattern":"user:{user_id}","rate_per_second":1,"rate_unit":"second","burst_capacity":5}],`+
			`"pattern":{"rate_per_second":1000,"duration_seconds":90}}`),
	}
})

// greed is what a process that plays the greedy tenants is told.
type greed struct {
	Base    string
	Tenants []*neighbour
}

// startGreed starts the greedy tenants in a process of their own, with the least priority: their clients would run on
// other machines, and here they would delay the victims' requests and the link. stop ends it.
func (n *neighbourhood) startGreed(ctx context.Context) (stop func() error, err error) {
	told, err := json.Marshal(greed{n.base, n.tenants[1:]})
	if err != nil {
		return nil, fmt.Errorf("describe the greedy tenants: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, "nice", "-n", "19", self, greedyCommand)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = in.Write(append(told, '\n'))
	}
	if err != nil {
		return nil, fmt.Errorf("start the greedy tenants: %w", err)
	}
	return func() error {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			return fmt.Errorf("stop the greedy tenants: %w", err)
		}
		return nil
	}, nil
}

// greedyCommand is the argument that starts runGreedy.
const greedyCommand = "greedy"

// runGreedy plays the greedy tenants that its input describes until the input ends.
func runGreedy(ctx context.Context, in io.Reader) error {
	lines := bufio.NewReader(in)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the greedy tenants: %w", err)
	}
	var told greed
	if err := json.Unmarshal(line, &told); err != nil {
		return fmt.Errorf("read the greedy tenants: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n := &neighbourhood{base: told.Base, client: loopClient()}
	var loops sync.WaitGroup
	for _, t := range told.Tenants {
		n.beGreedy(ctx, t, &loops)
	}
	_, _ = lines.ReadByte() // waits for the end
	cancel()
	loops.Wait()
	return nil
}

// beGreedy repeats what a tenant may ask for until ctx ends. Loops wait for nothing, whatever refusals tell them.
func (n *neighbourhood) beGreedy(ctx context.Context, t *neighbour, loops *sync.WaitGroup) {
	repeat := func(next func(loop, i int) (adminRequest, error)) {
		// The loops of a request share its number: a tenant's writes happen one at a time, and a write that repeats the one
		// before it changes nothing.
		var number atomic.Int64
		for loop := range greedyLoops {
			loops.Go(func() {
				for ctx.Err() == nil {
					q, err := next(loop, int(number.Add(1)))
					if err == nil {
						_, err = n.ask(ctx, t, q)
					}
					if err != nil {
						_ = waitUntil(ctx, time.Now().Add(10*time.Millisecond)) // a process that is away is not asked all the time
					}
				}
			})
		}
	}
	for _, q := range greedyRequests() {
		q.path = t.path(q.path)
		repeat(func(_, i int) (adminRequest, error) {
			q := q
			q.body = strings.NewReplacer("RATE", strconv.Itoa(i), "PLAN", importedPlan(i)).Replace(q.body)
			return q, nil
		})
	}
	repeat(func(_, i int) (adminRequest, error) { return n.matrixSave(ctx, t, i) })
	repeat(func(int, int) (adminRequest, error) {
		return post(t.path("/users/1/buckets/credit"), fmt.Sprintf(`{"bucket_key":"%d:1","tokens":1}`, t.Rule)), nil
	})
	repeat(func(loop, _ int) (adminRequest, error) {
		return post(t.path(fmt.Sprintf("/alerts/%d/test", t.Alerts[loop])), ""), nil
	})
}

// importedPlan is the plan that the i-th import of users assigns.
func importedPlan(i int) string { return "imported-" + strconv.Itoa(i%importedPlans) }

// matrixSave reads rules and returns a request that changes them all.
func (n *neighbourhood) matrixSave(ctx context.Context, t *neighbour, i int) (adminRequest, error) {
	var page struct {
		Items []struct {
			ID      int64 `json:"rule_id"`
			Version int64 `json:"version"`
		} `json:"items"`
	}
	list := adminRequest{method: "GET", path: t.path("/rules?q=/matrix/&limit=" + strconv.Itoa(matrixRules))}
	if err := n.call(ctx, t, list, http.StatusOK, &page); err != nil {
		return adminRequest{}, err
	}
	cells := make([]string, len(page.Items))
	for j, rule := range page.Items {
		cells[j] = fmt.Sprintf(`{"rule_id":%d,"version":%d,"burst_capacity":%d}`, rule.ID, rule.Version, 5+i%1000)
	}
	return post(t.path("/matrix"), `{"cells":[`+strings.Join(cells, ",")+`]}`), nil
}
