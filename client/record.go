package sluice

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

var recordPauses = [...]time.Duration{100 * time.Millisecond, 400 * time.Millisecond}

// Recorded is the result of a record.
type Recorded struct {
	Recorded bool              // false: the id was recorded before
	Charged  map[int64]float64 // tokens, by the id of each rule that was charged
}

// Record charges cost requests, and Check.Costs of other meters, and is never denied. Check.Cost and Check.Look are
// ignored, and the failure mode does not apply. The client's key needs the permissions check and report.
//
// An id of 16 to 255 visible ASCII characters is charged once within two minutes. Record sends it up to three times,
// while the server does not answer or cannot decide. Without an id ("") Record sends once, and may fail after the
// charge.
func (c *Client) Record(ctx context.Context, check Check, cost float64, id string) (Recorded, error) {
	body, err := check.record(cost, id)
	if err != nil {
		return Recorded{}, err
	}
	for attempt := 0; ; attempt++ {
		recorded, err := c.record(ctx, body)
		if err == nil || id == "" || attempt == len(recordPauses) || !mayRepeat(err) {
			return recorded, err
		}
		timer := time.NewTimer(recordPauses[attempt])
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return Recorded{}, err
		}
	}
}

func mayRepeat(err error) bool {
	var failed *Error
	return errors.As(err, &failed) && (failed.Kind == KindTimeout || failed.Kind == KindConnection ||
		failed.Status >= http.StatusInternalServerError)
}

func (c *Client) record(ctx context.Context, body []byte) (Recorded, error) {
	var answer struct {
		Recorded *bool `json:"recorded"`
		Tiers    []struct {
			RuleID  int64   `json:"rule_id"`
			Charged float64 `json:"charged"`
		} `json:"tiers"`
	}
	if err := c.request(ctx, http.MethodPost, "/v1/check", body, &answer); err != nil {
		return Recorded{}, err
	}
	if answer.Recorded == nil { // a server that does not know records has decided a check
		return Recorded{}, problem(http.StatusOK, nil)
	}
	recorded := Recorded{Recorded: *answer.Recorded, Charged: map[int64]float64{}}
	for _, tier := range answer.Tiers {
		if tier.Charged > 0 {
			recorded.Charged[tier.RuleID] = tier.Charged
		}
	}
	return recorded, nil
}

func (c *Check) record(cost float64, id string) ([]byte, error) {
	number, err := tokens(cost)
	if err != nil {
		return nil, refused("/cost", err.Error())
	}
	one := *c
	one.Cost, one.Costs, one.Look = 0, nil, false
	q, err := one.ask(-1)
	if err != nil {
		return nil, err
	}
	one.Costs = c.Costs
	body := []byte(q.identity)
	if len(c.Costs) > 0 {
		if body, err = one.appendMeters(body, number); err != nil {
			return nil, err
		}
	} else {
		body = append(appendName(body, "cost"), number...)
	}
	body = append(appendName(body, "record"), "true"...)
	if id != "" {
		text, err := json.Marshal(id)
		if err != nil {
			return nil, refused("/record_id", err.Error())
		}
		body = append(appendName(body, "record_id"), text...)
	}
	return append(body, '}'), nil
}
