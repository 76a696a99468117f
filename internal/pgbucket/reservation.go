package pgbucket

import (
	"context"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

var _ enforce.Reserver = (*Store)(nil)

// SettleReservation implements enforce.Reserver. This store keeps no reservations, so none is open: estimates stay charged,
// and places are freed when their time ends.
func (s *Store) SettleReservation(
	context.Context, rules.TenantID, enforce.ReservationID, enforce.Settlement,
) (enforce.Settled, error) {
	return enforce.Settled{}, nil
}
