package app_test

import (
	"os/exec"
	"strings"
	"testing"
)

// An image stays small, and a weakness of a library concerns one program.
func TestAProgramLinksOnlyItsPlane(t *testing.T) {
	t.Parallel()
	decides := []string{
		"/internal/checks/checkapi", "/internal/checks/envoy", "github.com/valyala/fasthttp", "google.golang.org/grpc",
		"go.opentelemetry.io/otel/sdk/trace",
	}
	controls := []string{
		"/internal/adminapi", "/internal/oidc", "/internal/notify/mailer", "sluice/web",
		"github.com/getkin/kin-openapi/openapi3",
		"github.com/santhosh-tekuri/jsonschema/v6", "github.com/pressly/goose/v3", "github.com/wneessen/go-mail",
	}
	for program, links := range map[string]struct{ decides, controls bool }{
		"api": {true, false}, "admin": {false, true}, "sluice": {true, true},
	} {
		list, err := exec.CommandContext(t.Context(), "go", "list", "-deps",
			"github.com/sluicegate/sluice/cmd/"+program).Output()
		if err != nil {
			t.Fatal(err)
		}
		check := func(parts []string, want bool) {
			for _, part := range parts {
				if got := strings.Contains(string(list), part+"\n"); got != want {
					t.Errorf("%s links %s: %t, want %t", program, part, got, want)
				}
			}
		}
		check(decides, links.decides)
		check(controls, links.controls)
	}
}
