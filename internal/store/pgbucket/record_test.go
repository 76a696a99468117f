package pgbucket

import (
	"reflect"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

// During an upgrade old processes settle what new ones reserve, if they know all that the rules say.
func TestAReservationIsStoredInTheOldestFormatThatHoldsIt(t *testing.T) {
	t.Parallel()
	for version, charge := range map[byte]enforce.Charge{
		1: {Amount: 5},
		2: {Amount: 5, Meter: "tokens", Shadow: true, After: true},
	} {
		charge.Key = enforce.Key{Rule: 7, Subject: "42"}
		charge.Limit = enforce.Limit{Rate: 1, Burst: 10}
		r := enforce.OpenReservation{
			Reservation: enforce.Reservation{Life: time.Minute, Key: "k"}, Taken: 3, Cost: 5,
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
