package auth

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Permission is a permission of an API key.
type Permission string

// Permissions at the check endpoint.
const (
	PermissionCheck   Permission = "check"
	PermissionExplain Permission = "explain"
	PermissionRefund  Permission = "refund"
	PermissionReport  Permission = "report"
	PermissionLease   Permission = "lease"
)

// Permissions in the admin API. Each but read allows to change and read an area; read allows to read all areas.
const (
	PermissionRead     Permission = "read"
	PermissionRules    Permission = "rules" // and plans, overrides, gateways, imports
	PermissionUsers    Permission = "users" // plans and buckets of users
	PermissionSettings Permission = "settings"
	PermissionMembers  Permission = "members" // and invitations
	PermissionKeys     Permission = "keys"
	PermissionAlerts   Permission = "alerts"
	PermissionManage   Permission = "manage"
)

// Permissions of service keys only.
const (
	PermissionTenants  Permission = "tenants"
	PermissionAccounts Permission = "accounts"
)

var checkPermissions = []Permission{
	PermissionCheck, PermissionExplain, PermissionRefund, PermissionReport,
	PermissionLease,
}

var (
	managed = []Permission{PermissionRead, PermissionRules, PermissionUsers}
	areas   = slices.Concat(managed,
		[]Permission{PermissionSettings, PermissionMembers, PermissionKeys, PermissionAlerts})
)

// TenantPermissions are the permissions of tenants' keys, ServicePermissions those of service keys, which act in
// every tenant.
var (
	TenantPermissions  = slices.Concat(checkPermissions, areas, []Permission{PermissionManage})
	ServicePermissions = slices.Concat(areas, []Permission{PermissionManage, PermissionTenants, PermissionAccounts})
	Permissions        = slices.Concat(TenantPermissions, []Permission{PermissionTenants, PermissionAccounts})
)

// Has reports whether the key has a permission, directly or by PermissionManage.
func (k *Key) Has(permission Permission) bool {
	return slices.Contains(k.Permissions, permission) ||
		slices.Contains(k.Permissions, PermissionManage) && slices.Contains(managed, permission)
}

// MayRead reports whether the key may read an area.
func (k *Key) MayRead(area Permission) bool { return k.Has(area) || k.Has(PermissionRead) }

// MayGive returns what to change in another key so that this one may create it, or "". Permissions of the check
// endpoint are exempt, because a key that creates keys for services sends no checks.
func (k *Key) MayGive(other *Key) (unless string) {
	for _, permission := range other.Permissions {
		if slices.Contains(checkPermissions, permission) {
			continue
		}
		needed := []Permission{permission}
		if permission == PermissionManage {
			needed = managed
		}
		for _, one := range needed {
			if !k.Has(one) {
				return "leave out the permission " + string(one)
			}
		}
	}
	inside := func(network netip.Prefix) bool {
		return slices.ContainsFunc(k.Networks, func(own netip.Prefix) bool {
			return own.Bits() <= network.Bits() && own.Contains(network.Addr())
		})
	}
	if len(k.Networks) > 0 && (len(other.Networks) == 0 ||
		slices.ContainsFunc(other.Networks, func(n netip.Prefix) bool { return !inside(n) })) {
		return "give it networks inside of this key's"
	}
	if end := k.ExpiresAt; !end.IsZero() && (other.ExpiresAt.IsZero() || other.ExpiresAt.After(end)) {
		return "give it expires_at of " + end.UTC().Format(time.RFC3339Nano) + " or earlier"
	}
	return ""
}

// ParseNetworks reads addresses and networks in CIDR notation.
func ParseNetworks(texts []string) (networks []netip.Prefix, wrong rules.FieldErrors) {
	for i, text := range texts {
		if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" {
			ip = rules.PlainIP(ip)
			networks = append(networks, netip.PrefixFrom(ip, ip.BitLen()))
			continue
		}
		network, err := netip.ParsePrefix(text)
		if err != nil || network.Addr().Is4In6() {
			wrong.Add(fmt.Sprintf("networks[%d]", i), "must be an address or a network such as 203.0.113.0/24")
			continue
		}
		networks = append(networks, network.Masked())
	}
	return networks, wrong
}

var roleParts = map[Role][]Permission{
	Viewer: {PermissionRead}, Editor: managed, Owner: areas,
}

// Role returns the highest role whose permissions the key has, or "".
func (k *Key) Role() Role {
	for _, role := range slices.Backward(roles) {
		if !slices.ContainsFunc(roleParts[role], func(part Permission) bool { return !k.Has(part) }) {
			return role
		}
	}
	return ""
}
