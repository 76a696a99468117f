package door

import (
	"net/netip"
	"slices"
	"testing"
)

func TestTheLargestGroupLosesItsIdleConnectionsFirst(t *testing.T) {
	t.Parallel()
	near, far := netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("198.51.100.0/24")
	var order []string
	for _, c := range Rank([]Connection[string]{
		{Conn: "tenant 1, old", Tenant: 1, Since: 1},
		{Conn: "tenant 1, busy", Tenant: 1, Since: 2, IsBusy: true},
		{Conn: "tenant 1, new", Tenant: 1, Since: 9},
		{Conn: "tenant 1, kept", Tenant: 1, Since: 0, IsKept: true},
		{Conn: "tenant 2", Tenant: 2, Since: 0},
		{Conn: "near, old", Network: near, Since: 5},
		{Conn: "near, new", Network: near, Since: 6},
		{Conn: "far", Network: far, Since: 0},
	}) {
		order = append(order, c.Conn)
	}
	want := []string{"tenant 1, old", "near, old", "tenant 1, new", "far", "tenant 1, busy", "tenant 2", "near, new"}
	if !slices.Equal(order, want) {
		t.Errorf("the order is %q, want %q", order, want)
	}
}
