package oidc_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/oidc"
)

const file = `providers:
  - slug: example
    name: Example
    issuer: https://login.example.com/realms/main
    client_id: sluice
    client_secret_file: secret
    scopes: [openid, email, groups]
    email_domains: [example.com]
    required_claim: employee=true
    create_accounts: true
    groups_claim: groups
    groups:
      - {group: ops, tenant: acme, role: editor}
      - {group: admins, platform_admin: true}
    second_factor: provider
    sign_out: true
`

func folder(t *testing.T, text string) (name string) {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{"secret": "sixteen letters!\n", "oidc.yaml": text} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(folder, "oidc.yaml")
}

func load(t *testing.T, text string) (*oidc.Providers, error) {
	t.Helper()
	settings, err := oidc.ReadFile(folder(t, text))
	if err != nil {
		return nil, err
	}
	return oidc.New(settings, oidc.Options{URL: func() string { return ours }})
}

func TestTheFileDescribesProviders(t *testing.T) {
	t.Parallel()
	settings := must(oidc.ReadFile(folder(t, file)))(t)
	if settings[0].ClientSecret != "sixteen letters!" {
		t.Errorf("the secret is %q", settings[0].ClientSecret)
	}
	if shown := fmt.Sprintf("%v %+v %#v", settings[0], settings, settings); strings.Contains(shown, "sixteen") {
		t.Errorf("the secret is shown: %s", shown)
	}
	rule := must(load(t, file))(t).List()[0]
	if rule.Name != "Example" || !rule.CreatesAccounts || !rule.CountsAsTwoFactors || !rule.SignsOut ||
		len(rule.Grants) != 2 ||
		rule.Grants[0] != (auth.Grant{Group: "ops", Tenant: "acme", Role: auth.Editor}) ||
		rule.NeedsClaim != "employee=true" {
		t.Errorf("the rule is %+v", rule)
	}
	must(load(t,
		`{"providers": [{"slug": "a", "issuer": "http://127.0.0.1:5556", "client_id": "b", "client_secret": "0123456789abcdef"}]}`))(t)
}

func TestMistakesAreNamedByTheirEntry(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ old, new, want string }{
		"a typing mistake":  {"client_id:", "clientid:", "line 5: field clientid not found"},
		"a setting twice":   {"    name: Example\n", "    name: a\n    name: b\n", "already defined"},
		"a second document": {"    sign_out: true\n", "    sign_out: true\n---\nx: 1\n", "second document"},
		"no list":           {file, "", "no list called providers"},
		"no client": {
			"client_id: sluice", "client_id: ''",
			"providers[0] (example): client_id is missing",
		},
		"two secrets": {
			"client_secret_file: secret", "client_secret_file: secret\n    client_secret: x",
			"providers[0] (example): client_secret and client_secret_file",
		},
		"a missing file": {
			"client_secret_file: secret", "client_secret_file: gone",
			"providers[0] (example): client_secret_file: open",
		},
		"a short secret": {"client_secret_file: secret", "client_secret: hunter2", "16 to 1024 characters"},
		"an issuer without TLS": {
			"https://login", "http://login",
			"issuer \"http://login.example.com/realms/main\" must begin with https://",
		},
		"an issuer with a query":  {"/main", "/main?a=b", "neither credentials nor a query"},
		"an address as a domain":  {"[example.com]", "['@example.com']", "email_domains: \"@example.com\""},
		"a claim without a value": {"employee=true", "employee", "required_claim must be name=value"},
		"groups without a claim": {
			"groups_claim: groups", "groups_claim: ''",
			"groups_claim and groups need each other",
		},
		"a role of no kind": {
			"role: editor", "role: boss",
			"groups[0] (ops): role must be viewer, editor or owner",
		},
		"a group that is both": {
			"platform_admin: true", "platform_admin: true, tenant: acme",
			"groups[1] (admins): give tenant and role, or platform_admin",
		},
		"another factor": {
			"second_factor: provider", "second_factor: always",
			"second_factor must be provider",
		},
		"half a factor's claim": {
			"second_factor: provider", "second_factor: provider\n    second_factor_claim: amr",
			"second_factor_claim must be name=value",
		},
		"a claim of no factor": {
			"second_factor: provider", "second_factor_claim: amr=mfa",
			"second_factor_claim needs second_factor: provider",
		},
		"a slug with a slash":  {"slug: example", "slug: a/b", "slug must be"},
		"a scope with a space": {"[openid, email, groups]", "['a b']", "scopes: \"a b\""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, strings.Replace(file, test.old, test.new, 1))
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") ||
				strings.Contains(err.Error(), "oidc.Settings") {
				t.Errorf("error is %v, want %q in it", err, test.want)
			}
		})
	}
	everybody := strings.NewReplacer("    email_domains: [example.com]\n", "", "    required_claim: employee=true\n",
		"").Replace(file)
	if _, err := load(t, everybody); err == nil ||
		!strings.Contains(err.Error(), "everybody with an account there could sign in") {
		t.Errorf("error is %v", err)
	}
	_, entry, _ := strings.Cut(file, "\n")
	if _, err := load(t, file+entry); err == nil || !strings.Contains(err.Error(), "providers[1] (example): slug") ||
		!strings.Contains(err.Error(), "providers[1] (example): issuer") {
		t.Errorf("error is %v", err)
	}
}
