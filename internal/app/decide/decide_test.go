package decide

import (
	"os/exec"
	"strings"
	"testing"
)

func TestOnlyProgramsThatAnswerChecksLinkTheCheckServer(t *testing.T) {
	t.Parallel()
	for program, want := range map[string]bool{"admin": false, "api": true, "sluice": true} {
		deps, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "github.com/sluicegate/sluice/cmd/"+program).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{
			"/internal/checkapi\n", "github.com/valyala/fasthttp\n", "/internal/rlsapi\n", "google.golang.org/grpc\n", "go.opentelemetry.io/otel/sdk/trace\n",
		} {
			if got := strings.Contains(string(deps), part); got != want {
				t.Errorf("%s links %s: %t, want %t", program, strings.TrimSpace(part), got, want)
			}
		}
	}
}
