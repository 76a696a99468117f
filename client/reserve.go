package sluice

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Settlement is the result of ending or extending a reservation.
type Settlement struct {
	Settled  bool               // false: it was settled or extended before, has expired, or did not exist
	Charged  float64            // requests charged in the end; 0 if not settled
	Costs    map[string]float64 // charged of other meters
	Extended bool               // Extend found it open
	Denied   bool               // ExtendCosts asked for more than is left; the reservation is open, and as it was
}

// Settle replaces a reservation's estimate by the real cost: the rest returns, or more is taken, even below zero. A
// retry is safe, because Settle settles once. An empty reservation, as of the failure mode, is not sent.
func (c *Client) Settle(ctx context.Context, reservation string, cost float64) (Settlement, error) {
	number, err := tokens(cost)
	if err != nil {
		return Settlement{}, refused("/cost", err.Error())
	}
	return c.settle(ctx, reservation, `,"cost":`+number)
}

// SettleCosts is Settle for costs by meter, "requests" among them. Other meters keep their estimates.
func (c *Client) SettleCosts(ctx context.Context, reservation string, costs map[string]float64) (Settlement, error) {
	return c.settleCosts(ctx, reservation, "", costs)
}

func (c *Client) settleCosts(
	ctx context.Context, reservation, members string, costs map[string]float64,
) (Settlement, error) {
	rounded := make(map[string]json.Number, len(costs))
	for meter, cost := range costs {
		number, err := tokens(cost)
		if err != nil {
			return Settlement{}, refused("/costs/"+meter, err.Error())
		}
		rounded[meter] = json.Number(number)
	}
	text, err := json.Marshal(rounded) // sorts them
	if err != nil {
		return Settlement{}, fmt.Errorf("encode the costs: %w", err)
	}
	return c.settle(ctx, reservation, members+`,"costs":`+string(text))
}

// Cancel returns all that a reservation took.
func (c *Client) Cancel(ctx context.Context, reservation string) (Settlement, error) {
	return c.settle(ctx, reservation, `,"cancel":true`)
}

// Release frees a reservation's concurrency slots, and leaves its estimate charged.
func (c *Client) Release(ctx context.Context, reservation string) (Settlement, error) {
	return c.settle(ctx, reservation, "")
}

// Extend prolongs a reservation by its hold, at most until 24 hours after its check; see Settlement.Extended.
func (c *Client) Extend(ctx context.Context, reservation string) (Settlement, error) {
	return c.settle(ctx, reservation, extending)
}

const extending = `,"extend":true`

// ExtendCosts is Extend with new estimates by meter. Higher ones are decided like a check, see Settlement.Denied; lower
// ones change nothing.
func (c *Client) ExtendCosts(ctx context.Context, reservation string, costs map[string]float64) (Settlement, error) {
	return c.settleCosts(ctx, reservation, extending, costs)
}

func (c *Client) settle(ctx context.Context, reservation, members string) (Settlement, error) {
	if reservation == "" {
		return Settlement{}, nil
	}
	id, err := json.Marshal(reservation)
	if err != nil {
		return Settlement{}, fmt.Errorf("encode the reservation: %w", err)
	}
	var answer struct {
		Settled  *bool              `json:"settled"`
		Charged  float64            `json:"charged"`
		Costs    map[string]float64 `json:"charged_costs"`
		Extended bool               `json:"extended"`
		Denied   bool               `json:"denied"`
	}
	body := []byte(`{"reservation":` + string(id) + members + `}`)
	if err := c.request(ctx, http.MethodPost, "/v1/settle", body, &answer); err != nil {
		return Settlement{}, err
	}
	if answer.Settled == nil {
		return Settlement{}, problem(http.StatusOK, nil)
	}
	return Settlement{
		Settled: *answer.Settled, Charged: answer.Charged, Costs: answer.Costs, Extended: answer.Extended,
		Denied: answer.Denied,
	}, nil
}

// Usage returns a user's limits and levels in the JSON of GET /v1/usage. A plan of "" is the user's own, else the
// tenant's default.
func (c *Client) Usage(ctx context.Context, userID, plan string) (json.RawMessage, error) {
	path := "/v1/usage?user_id=" + escaped(userID)
	if plan != "" {
		path += "&plan=" + escaped(plan)
	}
	var answer json.RawMessage
	err := c.request(ctx, http.MethodGet, path, nil, &answer)
	return answer, err
}

func escaped(value string) string { return strings.ReplaceAll(url.QueryEscape(value), "+", "%20") }

func (c *Client) request(ctx context.Context, method, path string, body []byte, answer any) error {
	within, cancel := context.WithTimeout(ctx, longTimeouts*c.config.Timeout)
	defer cancel()
	status, header, text, failed := c.send(within, method, path, body)
	switch {
	case failed != nil && ctx.Err() != nil:
		return fmt.Errorf("sluice: %w", ctx.Err())
	case failed != nil:
		return failed
	case status != http.StatusOK || !isJSON(header) || json.Unmarshal(text, answer) != nil:
		return problem(status, text)
	}
	return nil
}

// ReleaseLater is Release in the background, without retry. Close waits for it.
func (c *Client) ReleaseLater(ctx context.Context, reservation string) {
	if reservation == "" {
		return
	}
	ctx = context.WithoutCancel(ctx)
	c.queue.mu.Lock()
	defer c.queue.mu.Unlock()
	if c.life.Err() != nil { // closed: the slot is freed after its max_hold
		return
	}
	c.background("a release", func() {
		if _, err := c.Release(ctx, reservation); err != nil {
			c.config.Logger.WarnContext(ctx, "cannot release a concurrency slot; it is freed after its max_hold",
				"error",
				err)
		}
	})
}

// Pause waits for a decision's Delay, or until ctx ends.
func (d *Decision) Pause(ctx context.Context) error {
	if d.Delay <= 0 {
		return nil
	}
	timer := time.NewTimer(d.Delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("sluice: wait for the turn: %w", ctx.Err())
	}
}
