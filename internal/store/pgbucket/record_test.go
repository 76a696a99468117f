package pgbucket

import (
	"reflect"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

func TestAReservationIsStoredInTheOldestFormatThatHoldsIt(t *testing.T) {
	t.Parallel()
	costs := []enforce.MeterCost{{Cost: 5}, {Meter: "usd", Cost: 7}}
	for _, test := range []struct {
		version byte
		charge  enforce.Charge
		costs   []enforce.MeterCost
	}{
		{1, enforce.Charge{Amount: 5}, nil},
		{2, enforce.Charge{Amount: 5, Meter: "tokens", Shadow: true, After: true}, nil},
		{2, enforce.Charge{Amount: 5}, costs},
	} {
		version, charge := test.version, test.charge
		charge.Key = enforce.Key{Rule: 7, Subject: "42"}
		charge.Limit = enforce.Limit{Rate: 1, Burst: 10}
		r := enforce.OpenReservation{
			Reservation: enforce.Reservation{Life: time.Minute, Key: "k", Costs: test.costs}, CheckedAt: 3, Cost: 5,
			Charges: []enforce.Charge{charge, charge},
		}
		record := appendRecord(nil, &r)
		if record[0] != version {
			t.Errorf("%+v: version %d, want %d", charge, record[0], version)
		}
		if got, err := parseRecord(record); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%+v is read as %+v, %v", r, got, err)
		}
		for n := range record {
			if got, err := parseRecord(record[:n]); err == nil && len(got.Charges) == 2 {
				t.Errorf("%d of %d bytes are read as %+v", n, len(record), got)
			}
		}
	}
}
