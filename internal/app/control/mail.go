package control

import (
	"fmt"
	"log/slog"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/notify/mailer"
)

func openPostOffice(cfg config.Config, store auth.Store, log *slog.Logger) (*auth.PostOffice, error) {
	if cfg.SMTP.Addr == "" {
		return nil, nil //nolint:nilnil // no mail server
	}
	sender, err := mailer.New(mailer.Options{
		Addr: cfg.SMTP.Addr, TLS: cfg.SMTP.TLS, User: cfg.SMTP.User, Password: string(cfg.SMTP.Password),
		From: cfg.SMTP.From, URL: cfg.AdminURL,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare mail: %w", err)
	}
	return auth.NewPostOffice(store, sender, log), nil
}
