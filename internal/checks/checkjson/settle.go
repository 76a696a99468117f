package checkjson

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

// DecodeSettlement reads a settlement; the error is a *httpapi.Problem.
func DecodeSettlement(body []byte) (id enforce.ReservationID, with enforce.Settlement, err error) {
	var from struct {
		Reservation string            `json:"reservation"`
		Cost        amount            `json:"cost"`
		Costs       map[string]amount `json:"costs"`
		Cancel      bool              `json:"cancel"`
		Extend      bool              `json:"extend"`
	}
	if err := httpapi.Decode(body, &from); err != nil {
		return id, with, err
	}
	var wrong mistakes
	id, ok := enforce.ParseReservationID(from.Reservation)
	switch {
	case from.Reservation == "":
		wrong.add("/reservation", "is missing; send the reservation of a check's answer")
	case !ok:
		wrong.add("/reservation", "must be the reservation of a check's answer")
	}
	with = enforce.Settlement{
		Cost: from.Cost.Tokens, HasCost: from.Cost.given, Extend: from.Extend,
		Cancel: from.Cancel,
	}
	if from.Cost.given && len(from.Costs) > 0 {
		wrong.add("/costs", "must be left out beside cost, which is the cost of requests")
	}
	if !wrong.tooMany("/costs", len(from.Costs), rules.MaxMeters) {
		setCosts(&with, from.Costs, &wrong)
	}
	hasCost := with.HasCost || len(with.Costs) > 0
	if from.Cancel && hasCost {
		wrong.add("/cancel", "must be false or left out with a cost: a reservation is settled or canceled")
	}
	if from.Extend && from.Cancel {
		wrong.add("/extend", "must be false or left out with cancel: a reservation is canceled or extended")
	}
	return id, with, httpapi.BodyProblem(wrong)
}

func setCosts(with *enforce.Settlement, costs map[string]amount, wrong *mistakes) {
	for _, word := range slices.Sorted(maps.Keys(costs)) {
		switch meter, err := rules.ParseMeter(word); {
		case err != nil:
			wrong.add("/costs/"+word, "is not a meter: it "+err.Error())
		case meter == "":
			with.Cost, with.HasCost = costs[word].Tokens, true
		default:
			with.Costs = append(with.Costs, enforce.MeterCost{Meter: meter, Cost: costs[word].Tokens})
		}
	}
}

// AppendSettled appends the answer to a settlement as a JSON object.
func AppendSettled(b []byte, settled enforce.Settled, with enforce.Settlement) []byte {
	switch {
	case settled.Denied:
		return append(b, `{"settled":false,"extended":false,"denied":true}`...)
	case with.Extend && settled.Found:
		return append(b, `{"settled":false,"extended":true}`...)
	case with.Extend:
		return append(b, `{"settled":false,"extended":false}`...)
	case !settled.Found:
		return append(b, `{"settled":false}`...)
	}
	b = append(b, `{"settled":true,"charged":`...)
	b = appendTokens(b, settled.Charged)
	for i, cost := range settled.Costs {
		if i == 0 {
			b = append(b, `,"charged_costs":{`...)
		} else {
			b = append(b, ',')
		}
		b = append(httpapi.AppendString(b, string(cost.Meter)), ':')
		b = appendTokens(b, cost.Cost)
	}
	if len(settled.Costs) > 0 {
		b = append(b, '}')
	}
	return append(b, '}')
}

func decodeReserveFor(r *httpapi.Reader) time.Duration {
	const most = int64(enforce.MaxReserveFor / time.Second)
	number := r.Number()
	millionths, err := rules.ParseCost(number)
	seconds := millionths / int64(enforce.Token)
	if err != nil || millionths%int64(enforce.Token) != 0 || seconds < 1 || seconds > most {
		r.Refuse(fmt.Sprintf("must be whole seconds from 1 to %d", most))
		return enforce.DefaultReserveFor
	}
	return time.Duration(seconds) * time.Second
}
