package control

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/config"
)

func TestProvidersComeFromTheFileAndTheOptions(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "oidc.yaml")
	const entries = "providers:\n- {slug: one, issuer: 'https://one.example.com', client_id: a, client_secret: " +
		"sixteen letters!}\n" +
		"- {slug: two, issuer: 'https://two.example.com', client_id: a, client_secret: sixteen letters!}\n"
	if err := os.WriteFile(file, []byte(entries), 0o600); err != nil {
		t.Fatal(err)
	}
	base := map[string]string{
		"SLUICE_DATABASE_URL": "postgres://127.0.0.1/sluice", "SLUICE_ADMIN_URL": "https://sluice.example.com",
		"SLUICE_OIDC_FILE":   file,
		"SLUICE_OIDC_ISSUER": "https://login.example.com", "SLUICE_OIDC_CLIENT_ID": "sluice",
		"SLUICE_OIDC_CLIENT_SECRET": "a secret of sixteen characters",
		"SLUICE_OIDC_EMAIL_DOMAINS": "example.com,example.org", "SLUICE_OIDC_CREATE_ACCOUNTS": "true",
	}
	open := func(environment map[string]string) (slugs []string, err error) {
		var environ []string
		for name, value := range environment {
			environ = append(environ, name+"="+value)
		}
		cfg, err := config.Parse("admin", []string{"serve"}, environ)
		if err != nil {
			t.Fatal(err)
		}
		providers, err := openProviders(cfg, func() string { return cfg.AdminURL }, slog.New(slog.DiscardHandler))
		for _, p := range providers.List() {
			slugs = append(slugs, p.Slug)
			if p.Slug == "sso" && (p.Name != "Single sign-on" || !p.CreatesAccounts ||
				strings.Join(p.EmailDomains, " ") != "example.com example.org") {
				t.Errorf("the provider of the options is %+v", p)
			}
		}
		return slugs, err
	}
	if slugs, err := open(base); err != nil || strings.Join(slugs, " ") != "one two sso" {
		t.Errorf("the providers are %v, %v", slugs, err)
	}
	base["SLUICE_OIDC_EMAIL_DOMAINS"] = ""
	if slugs, err := open(base); err == nil || !strings.Contains(err.Error(), "create_accounts needs email_domains") {
		t.Errorf("with accounts for everybody they are %v, %v", slugs, err)
	}
}
