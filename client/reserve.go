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

// Settlement is what became of a reservation.
type Settlement struct {
	Settled  bool    // false: it was settled before, was extended, has expired, or there was none
	Charged  float64 // tokens that were charged in the end; 0 if it was not settled
	Extended bool    // Extend found it open
}

// Settle replaces the estimate of a reservation by what it really cost. Less gives the rest back; more takes the rest,
// even below zero, so that later checks wait. It settles once: sending it again after an error is safe. An empty
// reservation, which is what a decision of the failure mode has, is not sent.
func (c *Client) Settle(ctx context.Context, reservation string, cost float64) (Settlement, error) {
	number, err := tokens(cost)
	if err != nil {
		return Settlement{}, refused("/cost", err.Error())
	}
	return c.settle(ctx, reservation, `,"cost":`+number)
}

// Cancel gives back all that a reservation took.
func (c *Client) Cancel(ctx context.Context, reservation string) (Settlement, error) {
	return c.settle(ctx, reservation, `,"cost":0`)
}

// Release frees the places that a reservation holds, and leaves its estimate charged.
func (c *Client) Release(ctx context.Context, reservation string) (Settlement, error) {
	return c.settle(ctx, reservation, "")
}

// Extend keeps a reservation alive for as long again, at most 24 hours after its check. It settles nothing: see Extended.
func (c *Client) Extend(ctx context.Context, reservation string) (Settlement, error) {
	return c.settle(ctx, reservation, `,"extend":true`)
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
		Settled  *bool   `json:"settled"`
		Charged  float64 `json:"charged"`
		Extended bool    `json:"extended"`
	}
	body := []byte(`{"reservation":` + string(id) + members + `}`)
	if err := c.patient(ctx, http.MethodPost, "/v1/settle", body, &answer); err != nil {
		return Settlement{}, err
	}
	if answer.Settled == nil {
		return Settlement{}, problem(http.StatusOK, nil)
	}
	return Settlement{Settled: *answer.Settled, Charged: answer.Charged, Extended: answer.Extended}, nil
}

// Usage returns all limits of one user as they stand, in the server's JSON, to show the user: GET /v1/usage. plan is whose
// limits to show; "" is the user's own, else the tenant's default.
func (c *Client) Usage(ctx context.Context, userID, plan string) (json.RawMessage, error) {
	path := "/v1/usage?user_id=" + escaped(userID)
	if plan != "" {
		path += "&plan=" + escaped(plan)
	}
	var answer json.RawMessage
	err := c.patient(ctx, http.MethodGet, path, nil, &answer)
	return answer, err
}

// escaped is a value of a query.
func escaped(value string) string { return strings.ReplaceAll(url.QueryEscape(value), "+", "%20") }

// patient sends a request that no failure mode answers.
func (c *Client) patient(ctx context.Context, method, path string, body []byte, answer any) error {
	within, cancel := context.WithTimeout(ctx, patientTimeouts*c.config.Timeout)
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

// ReleaseLater is Release, in the background, once: middleware calls it when a request is handled. Close waits for it.
func (c *Client) ReleaseLater(ctx context.Context, reservation string) {
	if reservation == "" {
		return
	}
	ctx = context.WithoutCancel(ctx)
	c.queue.mu.Lock()
	defer c.queue.mu.Unlock()
	if c.life.Err() != nil { // closed: the place is freed after its max_hold
		return
	}
	c.work.Go(func() {
		if _, err := c.Release(ctx, reservation); err != nil {
			c.config.Logger.WarnContext(ctx, "Sluice did not release a place; it is freed after its max_hold", "error", err)
		}
	})
}

// Pause waits for the delay of a decision, or until ctx ends.
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
