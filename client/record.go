package sluice

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// recordPauses are the waits before a record is sent again.
var recordPauses = [...]time.Duration{100 * time.Millisecond, 400 * time.Millisecond}

// Recorded is the result of a record.
type Recorded struct {
	Recorded bool              // false: the id was recorded before
	Charged  map[int64]float64 // tokens, by the id of each rule that was charged
}

// Record charges what has happened, whatever is left: no rule denies a record. cost is the cost in requests, and
// Check.Costs has the costs of other meters. Record ignores Check.Cost and Check.Look. The client's key needs two
// permissions, check and report.
//
// The server charges an id, of 16 to 255 visible ASCII characters, once within two minutes, and Record sends a record
// with an id up to three times if there is no answer or the server cannot decide. Without an id ("") Record sends once,
// and the record may be charged although Record fails. The failure mode does not apply.
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

// mayRepeat reports whether the server gave no answer, or could not decide.
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
