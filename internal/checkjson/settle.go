package checkjson

import (
	"fmt"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
)

const (
	maxReservation   = 64
	settlementFields = "reservation, cost and extend"
)

// DecodeSettlement reads which reservation to settle, and how. r records what is wrong with it.
func DecodeSettlement(r *httpapi.Reader) (id enforce.ReservationID, with enforce.Settlement) {
	if !r.Object() {
		return id, with
	}
	found := false
	for r.More() {
		switch r.Name().String() {
		case "reservation":
			found = true
			var ok bool
			if id, ok = enforce.ParseReservationID(r.Text(maxReservation)); !ok {
				r.Refuse("must be the reservation of a check's answer")
			}
		case "cost":
			with.Cost, with.HasCost = decodeCost(r), true
		case "extend":
			with.Extend = r.Bool()
		default:
			r.RefuseUnknown(settlementFields)
		}
	}
	if !found {
		r.RefuseAt("/reservation", "is missing; send the reservation of a check's answer")
	}
	if with.Extend && with.HasCost {
		r.RefuseAt("/extend", "must be false or left out with a cost: a reservation is settled or extended")
	}
	return id, with
}

// AppendSettled appends the answer to a settlement as a JSON object.
func AppendSettled(b []byte, settled enforce.Settled, with enforce.Settlement) []byte {
	switch {
	case with.Extend && settled.Found:
		return append(b, `{"settled":false,"extended":true}`...)
	case with.Extend:
		return append(b, `{"settled":false,"extended":false}`...)
	case !settled.Found:
		return append(b, `{"settled":false}`...)
	}
	b = append(b, `{"settled":true,"charged":`...)
	return append(appendTokens(b, settled.Charged), '}')
}

// decodeReserveFor reads for how many seconds a reservation stays open.
func decodeReserveFor(r *httpapi.Reader) time.Duration {
	const most = int64(enforce.MaxReserveFor / time.Second)
	number := r.Number()
	cost, err := parseCost(number)
	seconds := cost.Whole()
	if err != nil || cost%enforce.Token != 0 || seconds < 1 || seconds > most {
		r.Refuse(fmt.Sprintf("must be whole seconds from 1 to %d", most))
		return enforce.DefaultReserveFor
	}
	return time.Duration(seconds) * time.Second
}
