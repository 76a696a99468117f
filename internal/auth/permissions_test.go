package auth

import (
	"net/netip"
	"testing"
	"time"
)

func keyWith(permissions ...Permission) *Key { return &Key{Permissions: permissions} }

func TestManageIsWhatAnEditorMay(t *testing.T) {
	t.Parallel()
	manage := keyWith(PermissionManage)
	for _, permission := range Permissions {
		want := permission == PermissionManage
		for _, part := range managed {
			want = want || part == permission
		}
		if manage.Has(permission) != want {
			t.Errorf("manage has %s: %v, want %v", permission, !want, want)
		}
	}
}

func TestAKeyGivesNoMoreThanItHas(t *testing.T) {
	t.Parallel()
	office, desk := netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.1.2.0/24")
	from := func(key *Key, networks ...netip.Prefix) *Key { key.Networks = networks; return key }
	noon := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	until := func(end time.Time, key *Key) *Key { key.ExpiresAt = end; return key }
	tests := map[string]struct {
		giver, given *Key
		may          bool
	}{
		"the same permission":        {keyWith(PermissionKeys, PermissionRules), keyWith(PermissionRules), true},
		"a part of manage":           {keyWith(PermissionManage), keyWith(PermissionRules, PermissionUsers), true},
		"all parts, given as manage": {keyWith(managed...), keyWith(PermissionManage), true},
		"what owners may":            {keyWith(PermissionManage), keyWith(PermissionSettings), false},
		"another permission":         {keyWith(PermissionKeys), keyWith(PermissionRules), false},
		"manage for some parts":      {keyWith(PermissionKeys, PermissionRules), keyWith(PermissionManage), false},
		"checks, which it lacks":     {keyWith(PermissionKeys), keyWith(PermissionCheck), true},
		"tenants, from manage":       {keyWith(PermissionManage), keyWith(PermissionTenants), false},
		"until its own end": {
			until(noon, keyWith(PermissionKeys)), until(noon, keyWith(PermissionCheck)),
			true,
		},
		"beyond its own end": {
			until(noon, keyWith(PermissionKeys)),
			until(noon.Add(1), keyWith(PermissionCheck)), false,
		},
		"for ever":                 {until(noon, keyWith(PermissionKeys)), keyWith(PermissionCheck), false},
		"for ever, which it lives": {keyWith(PermissionKeys), keyWith(PermissionCheck), true},
		"until an end, living on":  {keyWith(PermissionKeys), until(noon, keyWith(PermissionCheck)), true},
		"a smaller network": {
			from(keyWith(PermissionKeys), office), from(keyWith(PermissionKeys), desk),
			true,
		},
		"a larger network": {
			from(keyWith(PermissionKeys), desk), from(keyWith(PermissionKeys), office),
			false,
		},
		"one network too many": {
			from(keyWith(PermissionKeys), desk), from(keyWith(PermissionKeys), desk, office),
			false,
		},
		"anywhere, from a network": {from(keyWith(PermissionKeys), desk), keyWith(PermissionKeys), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if missing := test.giver.MayGive(test.given); (missing == "") != test.may {
				t.Errorf("missing is %q, want it to be empty: %v", missing, test.may)
			}
		})
	}
}

func TestTheRoleOfAKeyCoversNoMore(t *testing.T) {
	t.Parallel()
	for want, key := range map[Role]*Key{
		Owner:  keyWith(areas...),
		Editor: keyWith(PermissionManage, PermissionKeys),
		Viewer: keyWith(PermissionRead, PermissionKeys),
		"":     keyWith(PermissionKeys),
	} {
		if got := key.Role(); got != want {
			t.Errorf("%v has the role %q, want %q", key.Permissions, got, want)
		}
	}
}

func TestNetworksOfAKey(t *testing.T) {
	t.Parallel()
	networks, wrong := ParseNetworks([]string{"203.0.113.7", "10.1.2.3/8", "2001:db8::/32", "::ffff:192.0.2.1"})
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	key := Key{Networks: networks}
	for text, want := range map[string]bool{
		"203.0.113.7": true, "203.0.113.8": false, "10.200.0.1": true, "::ffff:10.200.0.1": true, "2001:db8::1": true,
		"2001:db9::1": false, "192.0.2.1": true, "fe80::1%eth0": false,
	} {
		if got := key.AllowsFrom(netip.MustParseAddr(text)); got != want {
			t.Errorf("from %s: %v, want %v", text, got, want)
		}
	}
	if key.AllowsFrom(netip.Addr{}) || !new(Key).AllowsFrom(netip.Addr{}) {
		t.Error("an unknown address is judged wrongly")
	}
	if _, wrong := ParseNetworks([]string{
		"10.0.0.0/8", "nowhere", "10.0.0.1%eth0",
		"::ffff:10.0.0.0/104",
	}); len(wrong) != 3 || wrong[0].Field != "networks[1]" {
		t.Errorf("wrong networks: %v", wrong)
	}
}
