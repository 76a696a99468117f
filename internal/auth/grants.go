package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluicegate/sluice/internal/rules"
)

func (p *IdentityProvider) grants(groups []string) (roles map[string]Role, isAdmin bool) {
	roles = map[string]Role{}
	for _, grant := range p.Grants {
		switch {
		case !slices.Contains(groups, grant.Group):
		case grant.PlatformAdmin:
			isAdmin = true
		case !roles[grant.Tenant].May(grant.Role):
			roles[grant.Tenant] = grant.Role
		}
	}
	return roles, isAdmin
}

// grant sets an account's roles to those of its groups, except for roles given by people and the last owner's and
// admin's.
func (g *Gate) grant(ctx context.Context, by rules.Actor, account Account, identity *Identity) (Account, error) {
	by.Act = "follow the groups of " + identity.Provider.Name
	roles, isAdmin := identity.Provider.grants(identity.Groups)
	var slugs []string
	for slug := range roles {
		slugs = append(slugs, slug)
	}
	issuer := identity.Provider.Issuer
	present, err := g.store.GrantedRoles(ctx, account.ID, issuer, slugs)
	if err != nil {
		return Account{}, err
	}
	for _, is := range present {
		wanted := roles[is.Slug]
		if is.Role == wanted || is.Role != "" && is.Issuer != issuer {
			continue
		}
		err := g.store.GrantRole(ctx, by, account.ID,
			GrantedRole{Tenant: is.Tenant, Slug: is.Slug, Role: wanted, Issuer: issuer})
		switch {
		case errors.Is(err, ErrLastOwner), errors.Is(err, ErrUnproven), errors.Is(err, rules.ErrNotFound),
			errors.As(err, new(rules.CapacityError)): // the role stays unchanged
		case err != nil:
			return Account{}, fmt.Errorf("set the role in %s: %w", is.Slug, err)
		}
	}
	if err := g.grantAdmin(ctx, by, &account, issuer, isAdmin); err != nil {
		return Account{}, err
	}
	return account, nil
}

func (g *Gate) grantAdmin(ctx context.Context, by rules.Actor, account *Account, issuer string, isAdmin bool) error {
	byIssuer := account.PlatformAdmin && account.AdminBy == issuer
	if isAdmin == account.PlatformAdmin || !isAdmin && !byIssuer || isAdmin && !account.Proven() {
		return nil
	}
	err := g.store.GrantAdmin(ctx, by, account.ID, issuer, isAdmin)
	if errors.Is(err, ErrLastAdmin) {
		return nil
	}
	if err == nil {
		account.PlatformAdmin, account.AdminBy = isAdmin, ""
		if isAdmin {
			account.AdminBy = issuer
		}
	}
	return err
}
