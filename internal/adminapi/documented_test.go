package adminapi

import (
	"fmt"
	"os"
	"regexp"
	"testing"
)

func TestTheRateLimitsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	wantRow := func(first string, numbers ...int64) {
		t.Helper()
		row := "(?m)^\\| `" + first + "` \\| [^|]+"
		for _, n := range numbers {
			text := fmt.Sprint(n)
			if n >= 1000 {
				text = fmt.Sprintf("%d,%03d", n/1000, n%1000)
			}
			row += " \\| " + text
		}
		if !regexp.MustCompile(row + " \\|$").Match(page) {
			t.Errorf("docs/operations.md has no row like %s", row)
		}
	}
	for payer, limit := range payerLimits {
		wantRow(string(payer), limit.perSecond, limit.burst)
	}
	for class, cost := range costs {
		slots := newSemaphores(usualConnections).classes[class].Limits()
		wantRow(string(class), cost, int64(slots.Slots), int64(slots.PerTenant), int64(slots.PerAccount))
	}
}
