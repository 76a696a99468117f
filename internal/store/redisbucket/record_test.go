package redisbucket

import (
	"slices"
	"testing"

	"github.com/sluicegate/sluice/internal/enforce"
)

func recordOf(tier enforce.Tier, mode byte, costs []enforce.MeterCost) string {
	const life, id = 8, 16
	argument := appendReservation(nil, &enforce.Reservation{Key: "k", Costs: costs}, []enforce.Tier{{}, tier})[life+id:]
	b := append([]byte{argument[0]}, make([]byte, 3*8)...)
	b = append(b, argument[1:]...)
	const key = "{s1}2:42"
	count := uint16(0)
	b = append(append(b, byte(len(key)), 0), key...)
	limit := appendLimit(nil, enforce.Limit{Rate: 1, Burst: 10}, &count)
	limit[limitBytes-2], limit[limitBytes-1] = 1<<2+mode, 0 // of the second tier
	return string(appendFloat(append(b, limit...), 5e6))
}

func TestAReservationIsStoredInTheOldestFormatThatHoldsIt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		tier    enforce.Tier
		mode    byte
		version byte
		costs   []enforce.MeterCost
	}{
		{enforce.Tier{}, 0, 1, nil},
		{enforce.Tier{}, 0, 2, []enforce.MeterCost{{Cost: 1}, {Meter: "usd", Cost: 7}}},
		{enforce.Tier{Meter: "tokens"}, 0, 2, nil},
		{enforce.Tier{Shadow: true}, 1, 2, nil},
		{enforce.Tier{After: true, Meter: "usd"}, 2, 2, nil},
	} {
		text := recordOf(test.tier, test.mode, test.costs)
		if text[0] != test.version {
			t.Errorf("%+v: version %d, want %d", test.tier, text[0], test.version)
		}
		r, err := parseReservation(text)
		if err != nil || r.Key != "k" || len(r.charges) != 1 || r.charges[0].Meter != test.tier.Meter ||
			r.charges[0].Shadow != test.tier.Shadow || r.charges[0].After != test.tier.After ||
			r.charges[0].Amount != 5*enforce.Token || !slices.Equal(r.Costs, test.costs) {
			t.Errorf("%+v: read as %+v, %v", test.tier, r, err)
		}
		for n := range text {
			if r, err := parseReservation(text[:n]); err == nil && len(r.charges) > 0 {
				t.Errorf("%d of %d bytes are read as %+v", n, len(text), r)
			}
		}
	}
	if _, err := parseReservation(string(rune(reservationVersion + 1))); err == nil {
		t.Error("a newer record is read")
	}
}
