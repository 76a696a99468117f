package control

import (
	"fmt"
	"log/slog"

	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/oidc"
)

func openProviders(cfg config.Config, url func() string, log *slog.Logger) (*oidc.Providers, error) {
	var settings []oidc.Settings
	if cfg.OIDC.File != "" {
		var err error
		if settings, err = oidc.ReadFile(cfg.OIDC.File); err != nil {
			return nil, err
		}
	}
	if one := cfg.OIDC; one.Issuer != "" {
		settings = append(settings, oidc.Settings{
			Slug: "sso", Name: one.Name, Issuer: one.Issuer, ClientID: one.ClientID,
			ClientSecret: string(one.ClientSecret),
			EmailDomains: one.EmailDomains, CreateAccounts: one.CreateAccounts,
		})
	}
	providers, err := oidc.New(settings, oidc.Options{URL: url, Log: log})
	if err != nil {
		return nil, fmt.Errorf("providers of OpenID Connect: %w", err)
	}
	return providers, nil
}
