package auth

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluicegate/sluice/internal/rules"
)

// Permission is one thing an API key may do.
type Permission string

// What a tenant's API keys may do at the check endpoint: ask checks, ask for explanations, give back what others reserved,
// report how what stands behind the limits does, and hold tokens to decide checks without asking.
const (
	PermissionCheck   Permission = "check"
	PermissionExplain Permission = "explain"
	PermissionRefund  Permission = "refund"
	PermissionReport  Permission = "report"
	PermissionLease   Permission = "lease"
)

// What keys may do in the admin API. Each but read is an area to change, and to read; read is for all areas. Manage is what
// an editor may: read, rules and users.
const (
	PermissionRead     Permission = "read"
	PermissionRules    Permission = "rules" // and plans, overrides, gateways, imports
	PermissionUsers    Permission = "users" // their plans and buckets
	PermissionSettings Permission = "settings"
	PermissionMembers  Permission = "members" // and invitations
	PermissionKeys     Permission = "keys"
	PermissionAlerts   Permission = "alerts"
	PermissionManage   Permission = "manage"
)

// What only service keys may do: create, suspend and remove tenants; and manage accounts.
const (
	PermissionTenants  Permission = "tenants"
	PermissionAccounts Permission = "accounts"
)

var checkPermissions = []Permission{PermissionCheck, PermissionExplain, PermissionRefund, PermissionReport, PermissionLease}

// managed is what PermissionManage is made of, and areas is all of a tenant.
var (
	managed = []Permission{PermissionRead, PermissionRules, PermissionUsers}
	areas   = slices.Concat(managed, []Permission{PermissionSettings, PermissionMembers, PermissionKeys, PermissionAlerts})
)

// TenantPermissions are all permissions of a tenant's keys, ServicePermissions all of service keys, which act in every
// tenant, and Permissions both.
var (
	TenantPermissions  = slices.Concat(checkPermissions, areas, []Permission{PermissionManage})
	ServicePermissions = slices.Concat(areas, []Permission{PermissionManage, PermissionTenants, PermissionAccounts})
	Permissions        = slices.Concat(TenantPermissions, []Permission{PermissionTenants, PermissionAccounts})
)

// Has reports whether the key has a permission, by itself or as a part of PermissionManage.
func (k *Key) Has(permission Permission) bool {
	return slices.Contains(k.Permissions, permission) ||
		slices.Contains(k.Permissions, PermissionManage) && slices.Contains(managed, permission)
}

// MayRead reports whether the key may read an area.
func (k *Key) MayRead(area Permission) bool { return k.Has(area) || k.Has(PermissionRead) }

// MayGive returns what the key would need to give another one these permissions and networks: nobody gets more in the
// admin API by way of a key than the key has. It is "" if nothing is missing. Permissions of the check endpoint can be given
// without having them, because a key that makes keys for services sends no checks itself.
func (k *Key) MayGive(other *Key) (missing string) {
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
				return "permission " + string(one)
			}
		}
	}
	inside := func(network netip.Prefix) bool {
		return slices.ContainsFunc(k.Networks, func(own netip.Prefix) bool {
			return own.Bits() <= network.Bits() && own.Contains(network.Addr())
		})
	}
	if len(k.Networks) > 0 && (len(other.Networks) == 0 || slices.ContainsFunc(other.Networks, func(n netip.Prefix) bool { return !inside(n) })) {
		return "use from anywhere; give the new key networks inside of its own"
	}
	return ""
}

// ParseNetworks reads where a key may be used from: addresses, and networks in CIDR notation.
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

// roleParts are what each role is made of.
var roleParts = map[Role][]Permission{
	Viewer: {PermissionRead}, Editor: managed, Owner: areas,
}

// Role returns the highest role that may do nothing which the key may not, or "" for a key of single areas.
func (k *Key) Role() Role {
	for _, role := range slices.Backward(roles) {
		if !slices.ContainsFunc(roleParts[role], func(part Permission) bool { return !k.Has(part) }) {
			return role
		}
	}
	return ""
}
