package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

// Gateways returns a tenant's mappings by kind.
func (s *Store) Gateways(ctx context.Context, tenant rules.TenantID) ([]rules.Gateway, error) {
	rows, err := s.queriesFor(classRead, only(tenant)).Gateways(ctx, tenant)
	return each(rows, gatewayFromRow), wrap(err, "read gateways")
}

// Gateway returns one mapping.
func (s *Store) Gateway(ctx context.Context, tenant rules.TenantID, kind rules.GatewayKind) (rules.Gateway, error) {
	row, err := s.queriesFor(classRead, only(tenant)).Gateway(ctx, tenant, kind)
	return gatewayFromRow(row), wrap(err, "read gateway %s", kind)
}

// PutGateway creates the mapping of its kind (rules.NoneStored) or replaces it.
func (s Writer) PutGateway(ctx context.Context, gateway rules.Gateway, expected rules.Expected) (put rules.Gateway,
	err error,
) {
	err = s.inTenant(ctx, classWrite, gateway.TenantID, func(ctx context.Context, w write) error {
		stored, err := w.gatewayAt(ctx, gateway.Kind, expected)
		if err != nil {
			return err
		}
		if sameDocument(stored.Document, gateway.Document) {
			put = stored
			return errUnchanged
		}
		put, err = w.putGateway(ctx, gateway)
		return err
	})
	return put, wrap(err, "put gateway %s", gateway.Kind)
}

// RemoveGateway removes a mapping, so that the default one holds.
func (s Writer) RemoveGateway(ctx context.Context, tenant rules.TenantID, kind rules.GatewayKind,
	expected rules.Expected,
) error {
	err := s.inTenant(ctx, classWrite, tenant, func(ctx context.Context, w write) error {
		stored, err := w.gatewayAt(ctx, kind, expected)
		if err != nil {
			return err
		}
		if stored.Revision == 0 {
			return errUnchanged
		}
		return w.removeGateway(ctx, kind)
	})
	return wrap(err, "remove gateway %s", kind)
}

func (w write) gatewayAt(ctx context.Context, kind rules.GatewayKind, expected rules.Expected) (rules.Gateway, error) {
	row, err := w.Gateway(ctx, w.tenant, kind)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return rules.Gateway{}, err
	}
	return gatewayFromRow(row), expect(expected, row.Revision)
}

func (w write) putGateway(ctx context.Context, gateway rules.Gateway) (rules.Gateway, error) {
	row, err := w.PutGateway(ctx, dbsqlc.PutGatewayParams{
		TenantID: w.tenant, Kind: gateway.Kind, Document: []byte(gateway.Document), Revision: w.revision,
	})
	return gatewayFromRow(row), err
}

func (w write) removeGateway(ctx context.Context, kind rules.GatewayKind) error {
	return foundOne(w.RemoveGateway(ctx, w.revision, w.tenant, kind))
}

func (w write) applyGateways(ctx context.Context, changes []ruleset.Change[rules.Gateway]) error {
	for i, c := range changes {
		if c.After == nil {
			if err := w.removeGateway(ctx, c.Before.Kind); err != nil {
				return fmt.Errorf("remove gateway %s: %w", c.Before.Kind, err)
			}
			continue
		}
		stored, err := w.putGateway(ctx, *c.After)
		if err != nil {
			return fmt.Errorf("gateway %s: %w", c.After.Kind, err)
		}
		changes[i].After = &stored
	}
	return nil
}

// sameDocument compares JSON, since the database formats texts anew.
func sameDocument(a, b string) bool {
	var one, other any
	return json.Unmarshal([]byte(a), &one) == nil && json.Unmarshal([]byte(b), &other) == nil &&
		reflect.DeepEqual(one, other)
}

func gatewayFromRow(row dbsqlc.Gateway) rules.Gateway {
	return rules.Gateway{
		TenantID: row.TenantID, Kind: row.Kind, Document: string(row.Document), Revision: row.Revision,
		Removed: row.RemovedAt != nil,
	}
}

type gatewayImage struct {
	Kind     rules.GatewayKind `json:"kind"`
	Document json.RawMessage   `json:"document"`
}

func (w write) revertGateway(ctx context.Context, before, after *gatewayImage) error {
	if after == nil {
		if _, err := w.gatewayAt(ctx, before.Kind, rules.NoneStored); err != nil {
			return err
		}
		_, err := w.putGateway(ctx, rules.Gateway{Kind: before.Kind, Document: string(before.Document)})
		return err
	}
	stored, err := w.gatewayAt(ctx, after.Kind, rules.AnyStored)
	if err := unlessChanged(sameDocument(stored.Document, string(after.Document)), err); err != nil {
		return err
	}
	if before == nil {
		return w.removeGateway(ctx, after.Kind)
	}
	_, err = w.putGateway(ctx, rules.Gateway{Kind: before.Kind, Document: string(before.Document)})
	return err
}
