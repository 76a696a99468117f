package oidc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/sluicegate/sluice/internal/auth"
)

// minSecret matters because keys are derived from the client secret; see flow.
const (
	maxProviders  = 50
	maxGrants     = 1000
	maxFile       = 1 << 20
	minSecret     = 16
	maxSecret     = 1024
	maxNameLength = 50
)

// Settings configure a provider, like its entry in the file.
type Settings struct {
	Slug                 string   `yaml:"slug"`   // used in URLs
	Name                 string   `yaml:"name"`   // on the button; "" for the slug
	Issuer               string   `yaml:"issuer"` // exactly as in tokens
	ClientID             string   `yaml:"client_id"`
	ClientSecret         string   `yaml:"client_secret"`
	ClientSecretFile     string   `yaml:"client_secret_file"` // relative to the file of providers
	Scopes               []string `yaml:"scopes"`             // default: openid, email and profile
	EmailDomains         []string `yaml:"email_domains"`      // of verified addresses; empty for any
	RequiredClaim        string   `yaml:"required_claim"`     // name=value; "" for none
	CreateAccounts       bool     `yaml:"create_accounts"`
	GroupsClaim          string   `yaml:"groups_claim"`
	Groups               []Group  `yaml:"groups"`
	SecondFactor         string   `yaml:"second_factor"`           // "provider": a sign-in there counts as two factors
	SecondFactorClaim    string   `yaml:"second_factor_claim"`     // name=value, required to count as two factors
	TrustWithoutAuthTime bool     `yaml:"trust_without_auth_time"` // for step-up authentication
	SignOut              bool     `yaml:"sign_out"`                // signing out also signs out there
}

// Group gives the members of a group a role in a tenant, or platform admin.
type Group struct {
	Group         string    `yaml:"group"`
	Tenant        string    `yaml:"tenant"` // a slug
	Role          auth.Role `yaml:"role"`
	PlatformAdmin bool      `yaml:"platform_admin"`
}

func (s Settings) String() string { return s.Slug + " " + s.Issuer }

// GoString omits the secret from %#v.
func (s Settings) GoString() string { return s.String() }

// ReadFile reads the file of providers, in YAML or JSON.
func ReadFile(name string) ([]Settings, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read the providers of OpenID Connect: %w", err)
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = errors.New("the file is larger than 1 MiB")
	}
	if err != nil {
		return nil, fmt.Errorf("read the providers of OpenID Connect: %w", err)
	}
	entries, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for i := range entries {
		if err := entries[i].readSecret(filepath.Dir(name)); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, entryName(i, &entries[i]), err)
		}
	}
	return entries, nil
}

func parse(text []byte) ([]Settings, error) {
	var file struct {
		Providers []Settings `yaml:"providers"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.New(goType.ReplaceAllString(err.Error(), ""))
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is a second document; put all providers into one list")
	}
	if len(file.Providers) == 0 {
		return nil, errors.New("there is no list called providers, or it is empty")
	}
	return file.Providers, nil
}

// goType matches a Go type at the end of the YAML decoder's messages, which means nothing to readers.
var goType = regexp.MustCompile(` in type [\w. {}\[\]"` + "`" + `:]+`)

func (s *Settings) readSecret(folder string) error {
	if s.ClientSecretFile == "" {
		return nil
	}
	if s.ClientSecret != "" {
		return errors.New("client_secret and client_secret_file are two values of one setting; leave one out")
	}
	name := s.ClientSecretFile
	if !filepath.IsAbs(name) {
		name = filepath.Join(folder, name)
	}
	secret, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("client_secret_file: %w", err)
	}
	s.ClientSecret = strings.TrimSuffix(strings.TrimSuffix(string(secret), "\n"), "\r")
	return nil
}

func entryName(i int, s *Settings) string {
	if s.Slug == "" {
		return fmt.Sprintf("providers[%d]", i)
	}
	return fmt.Sprintf("providers[%d] (%s)", i, s.Slug)
}

// check returns an error with a line for each mistake.
func check(entries []Settings) error {
	var wrong []error
	if len(entries) > maxProviders {
		wrong = append(wrong, fmt.Errorf("there are %d providers; at most %d are allowed", len(entries), maxProviders))
	}
	slugs, issuers := map[string]bool{}, map[string]bool{}
	for i := range entries {
		s := &entries[i]
		complain := func(format string, args ...any) {
			wrong = append(wrong, fmt.Errorf(entryName(i, s)+": "+format, args...))
		}
		s.check(complain)
		if slugs[s.Slug] {
			complain("slug %q is taken by another entry", s.Slug)
		}
		if issuers[s.Issuer] && s.Issuer != "" {
			complain("issuer %q is taken by another entry; accounts are known by issuer, so each needs its own",
				s.Issuer)
		}
		slugs[s.Slug], issuers[s.Issuer] = true, true
	}
	return errors.Join(wrong...)
}

var (
	slugForm   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)
	domainForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?\.[a-z0-9-]+$`)
	scopeForm  = regexp.MustCompile(`^[\x21\x23-\x5B\x5D-\x7E]+$`) // RFC 6749, section 3.3
)

func (s *Settings) check(complain func(format string, args ...any)) {
	if !slugForm.MatchString(s.Slug) {
		complain("slug must be 1 to 32 lower-case letters, digits and dashes, got %q", s.Slug)
	}
	if utf8.RuneCountInString(s.Name) > maxNameLength || !utf8.ValidString(s.Name) ||
		strings.ContainsAny(s.Name, "\r\n\x00") {
		complain("name must be one line of at most %d characters", maxNameLength)
	}
	if err := checkIssuer(s.Issuer); err != nil {
		complain("issuer %q %w", s.Issuer, err)
	}
	if s.ClientID == "" {
		complain("client_id is missing")
	}
	if len(s.ClientSecret) < minSecret || len(s.ClientSecret) > maxSecret ||
		strings.ContainsAny(s.ClientSecret, "\r\n\x00") {
		complain("client_secret, or the content of client_secret_file, must be one line of %d to %d characters",
			minSecret, maxSecret)
	}
	for _, scope := range s.Scopes {
		if !scopeForm.MatchString(scope) {
			complain("scopes: %q is no scope", scope)
		}
	}
	for _, domain := range s.EmailDomains {
		if !domainForm.MatchString(domain) {
			complain("email_domains: %q must be a domain in lower case, such as example.com", domain)
		}
	}
	if name, value, ok := strings.Cut(s.RequiredClaim, "="); s.RequiredClaim != "" &&
		(!ok || name == "" || value == "") {
		complain("required_claim must be name=value, got %q", s.RequiredClaim)
	}
	if s.CreateAccounts && len(s.EmailDomains) == 0 && s.RequiredClaim == "" {
		complain("create_accounts needs email_domains or required_claim; otherwise everybody with an account there " +
			"could sign in here")
	}
	if s.SecondFactor != "" && s.SecondFactor != "provider" {
		complain("second_factor must be provider or left out, got %q", s.SecondFactor)
	}
	if name, value, ok := strings.Cut(s.SecondFactorClaim, "="); s.SecondFactorClaim != "" &&
		(!ok || name == "" || value == "") {
		complain("second_factor_claim must be name=value, such as amr=mfa, got %q", s.SecondFactorClaim)
	}
	if s.SecondFactorClaim != "" && s.SecondFactor == "" {
		complain("second_factor_claim needs second_factor: provider")
	}
	s.checkGroups(complain)
}

func (s *Settings) checkGroups(complain func(format string, args ...any)) {
	if (s.GroupsClaim == "") != (len(s.Groups) == 0) {
		complain("groups_claim and groups need each other; give both")
	}
	if len(s.Groups) > maxGrants {
		complain("groups has %d entries; at most %d are allowed", len(s.Groups), maxGrants)
	}
	for i, g := range s.Groups {
		switch {
		case g.Group == "":
			complain("groups[%d]: group is missing", i)
		case g.PlatformAdmin && (g.Tenant != "" || g.Role != ""), !g.PlatformAdmin && g.Tenant == "":
			complain("groups[%d] (%s): give tenant and role, or platform_admin: true", i, g.Group)
		case !g.PlatformAdmin && len(g.Role.Validate()) > 0:
			complain("groups[%d] (%s): role must be viewer, editor or owner, got %q", i, g.Group, string(g.Role))
		}
	}
}

// checkIssuer returns an error that completes "issuer …".
func checkIssuer(issuer string) error {
	u, err := url.Parse(issuer)
	switch {
	case err != nil, u.Host == "", u.Scheme != "https" && u.Scheme != "http":
		return errors.New("must be a URL such as https://login.example.com")
	case u.User != nil, u.RawQuery != "", u.Fragment != "", strings.HasSuffix(issuer, "?"),
		strings.HasSuffix(issuer, "#"):
		return errors.New("must have neither credentials nor a query or fragment")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return errors.New("must begin with https://; only a provider on this machine may do without")
	}
	return nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func (s *Settings) rule() *auth.IdentityProvider {
	rule := &auth.IdentityProvider{
		Slug: s.Slug, Name: s.Name, Issuer: s.Issuer, EmailDomains: slices.Clone(s.EmailDomains),
		CreatesAccounts: s.CreateAccounts, CountsAsTwoFactors: s.SecondFactor == "provider", SignsOut: s.SignOut,
		NeedsClaim: s.RequiredClaim, FactorClaim: s.SecondFactorClaim,
	}
	if rule.Name == "" {
		rule.Name = s.Slug
	}
	for _, g := range s.Groups {
		rule.Grants = append(rule.Grants, auth.Grant(g))
	}
	return rule
}

func (s *Settings) scopes() []string {
	if len(s.Scopes) == 0 {
		return []string{"openid", "email", "profile"}
	}
	if slices.Contains(s.Scopes, "openid") {
		return s.Scopes
	}
	return append([]string{"openid"}, s.Scopes...)
}
