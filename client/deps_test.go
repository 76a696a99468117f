package sluice_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Other people's programs import the client, so it needs only the standard library and the server's lending arithmetic.
func TestTheClientNeedsTheStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	list, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
		"{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	const want = "github.com/sluicegate/sluice/internal/enforce/lend github.com/sluicegate/sluice/client"
	if got := strings.Join(strings.Fields(string(list)), " "); got != want {
		t.Errorf("the client reaches %s, want %s", got, want)
	}
}
