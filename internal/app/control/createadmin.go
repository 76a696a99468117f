package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/rules"
)

func createAdmin(ctx context.Context, store auth.Store, by rules.Actor, email string, in io.Reader, out io.Writer,
	log *slog.Logger,
) error {
	password, err := readPassword(ctx, in)
	if err != nil {
		return fmt.Errorf("read the password: %w", err)
	}
	admin, err := operatorGate(store, log).CreateAdmin(ctx, by, email, password)
	if err != nil {
		return fmt.Errorf("create admin: %w", err)
	}
	_, err = fmt.Fprintln(out, admin.Email)
	return err
}

func setPassword(ctx context.Context, store auth.Store, by rules.Actor, email string, in io.Reader, out io.Writer,
	log *slog.Logger,
) error {
	password, err := readPassword(ctx, in)
	if err != nil {
		return fmt.Errorf("read the password: %w", err)
	}
	account, err := operatorGate(store, log).SetPassword(ctx, by, email, password)
	if errors.Is(err, rules.ErrNotFound) {
		return fmt.Errorf("there is no account %q", email)
	}
	if err != nil {
		return fmt.Errorf("set password: %w", err)
	}
	_, err = fmt.Fprintln(out, account.Email)
	return err
}

func removeSecondFactor(ctx context.Context, store auth.Store, by rules.Actor, email string, out io.Writer,
	log *slog.Logger,
) error {
	account, err := operatorGate(store, log).RemoveSecondFactor(ctx, by, email)
	if errors.Is(err, rules.ErrNotFound) {
		return fmt.Errorf("there is no account %q, or it has no second factor", email)
	}
	if err != nil {
		return fmt.Errorf("remove the second factor: %w", err)
	}
	_, err = fmt.Fprintln(out, account.Email)
	return err
}

func operatorGate(store auth.Store, log *slog.Logger) *auth.Gate {
	return auth.NewGate(store, auth.Options{
		Mail:       true,
		Unfinished: func(ctx context.Context, err error) { warnUnfinished(ctx, log, err) },
	})
}

func warnUnfinished(ctx context.Context, log *slog.Logger, err error) {
	log.WarnContext(ctx, "the change was made, and something after it failed", "error", err)
}

func signInLink(ctx context.Context, store auth.Store, cfg config.Config, out io.Writer) error {
	token, err := auth.NewGate(store, auth.Options{}).SignInLink(ctx, cfg.Arguments.Email)
	if errors.Is(err, rules.ErrNotFound) {
		return fmt.Errorf("there is no account %q that is enabled", cfg.Arguments.Email)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, cfg.AdminURL+"/sign-in-link#"+token)
	return err
}

// readPassword returns when ctx ends, although the read goes on.
func readPassword(ctx context.Context, in io.Reader) (string, error) {
	read := readSecret
	if file, ok := in.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		state, err := term.GetState(int(file.Fd()))
		if err != nil {
			return "", err
		}
		defer func() { _ = term.Restore(int(file.Fd()), state) }() // restores the echo, even after an interruption
		read = askTwice
	}
	type answer struct {
		password string
		err      error
	}
	answers := make(chan answer, 1)
	panics.Go(nil, "reading the password", func() {
		var password string
		err := panics.Do(nil, "reading the password", func() (err error) {
			password, err = read(in)
			return err
		})
		answers <- answer{password, err}
	})
	select {
	case a := <-answers:
		return a.password, a.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

const longestSecret = 4096

func readSecret(in io.Reader) (string, error) {
	secret, err := io.ReadAll(io.LimitReader(in, longestSecret))
	line := strings.TrimSuffix(strings.TrimSuffix(string(secret), "\n"), "\r")
	if err == nil && strings.ContainsAny(line, "\r\n") {
		err = errors.New("standard input has more than one line")
	}
	return line, err
}

// askTwice prompts on standard error, because standard output is for the result.
func askTwice(in io.Reader) (string, error) {
	var typed [2]string
	for i, prompt := range []string{"Password: ", "Again: "} {
		fmt.Fprint(os.Stderr, prompt)
		line, err := term.ReadPassword(int(in.(*os.File).Fd()))
		fmt.Fprintln(os.Stderr)
		if err != nil {
			return "", err
		}
		typed[i] = string(line)
	}
	if typed[0] != typed[1] {
		return "", errors.New("the two are not the same")
	}
	return typed[0], nil
}
