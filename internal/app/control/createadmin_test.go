package control

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestMain(m *testing.M) { os.Exit(devdbtest.Main(m).Run()) }

func TestCreateAdminPrintsJustTheAddress(t *testing.T) {
	t.Parallel()
	store, err := pgstore.Open(t.Context(), devdbtest.Postgres(t), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	create := func(email, input string) (string, error) {
		var out bytes.Buffer
		err := createAdmin(t.Context(), store, rules.Actor{}, email, strings.NewReader(input), &out,
			slog.New(slog.DiscardHandler))
		return out.String(), err
	}
	for _, input := range []string{"a fine engine\n", "a fine engine", "another engine\r\n"} {
		if out, err := create("ada@example.com", input); err != nil || out != "ada@example.com\n" {
			t.Errorf("%q: it prints %q (%v)", input, out, err)
		}
		password := strings.TrimRight(input, "\r\n")
		entry, err := auth.NewGate(store, auth.Options{}).SignIn(t.Context(), "ada@example.com", password,
			auth.Browser{})
		if err != nil || !entry.Session.Account.PlatformAdmin {
			t.Errorf("%q: %+v signs in (%v)", input, entry.Session.Account, err)
		}
	}
	for name, test := range map[string]struct{ email, input string }{
		"no password":             {"bob@example.com", ""},
		"a weak one":              {"bob@example.com", "password123\n"},
		"a file by mistake":       {"bob@example.com", strings.Repeat("x", 1<<20)},
		"an address that is none": {"bob", "a fine engine"},
	} {
		out, err := create(test.email, test.input)
		var wrong rules.FieldErrors
		if out != "" || !errors.As(err, &wrong) {
			t.Errorf("%s: it prints %q (%v)", name, out, err)
		}
	}
	if out, err := create("bob@example.com", "a fine engine\nand a line\n"); out != "" || err == nil {
		t.Errorf("two lines: it prints %q (%v)", out, err)
	}
}

func TestSetPasswordPrintsJustTheAddress(t *testing.T) {
	t.Parallel()
	store, err := pgstore.Open(t.Context(), devdbtest.Postgres(t), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.CreateAccount(t.Context(), rules.Actor{}, auth.Account{Email: "ada@example.com"},
		"lost"); err != nil {
		t.Fatal(err)
	}
	set := func(email string) (string, error) {
		var out bytes.Buffer
		err := setPassword(t.Context(), store, rules.Actor{}, email, strings.NewReader("a fine engine\n"), &out,
			slog.New(slog.DiscardHandler))
		return out.String(), err
	}
	if out, err := set("ADA@example.com"); err != nil || out != "ada@example.com\n" {
		t.Errorf("it prints %q (%v)", out, err)
	}
	entry, err := auth.NewGate(store, auth.Options{}).SignIn(t.Context(), "ada@example.com", "a fine engine",
		auth.Browser{})
	if err != nil || entry.Session.Account.PlatformAdmin {
		t.Errorf("%+v signs in (%v)", entry.Session.Account, err)
	}
	if out, err := set("bob@example.com"); out != "" || err == nil ||
		!strings.Contains(err.Error(), "there is no account") {
		t.Errorf("for nobody it prints %q (%v)", out, err)
	}
}

// noMail is a store that queues no mail.
type noMail struct{ auth.Store }

func (noMail) QueueMail(context.Context, auth.Mail, auth.MailLimits) (auth.Mail, error) {
	return auth.Mail{}, errors.New("the queue is full")
}

func (s noMail) TurnSecondFactorOff(ctx context.Context, _ rules.Actor, id auth.AccountID, _ bool) (auth.Account,
	error,
) {
	return s.Account(ctx, id)
}

func TestACommandWhoseNoticeIsNotQueuedSucceedsWithAWarning(t *testing.T) {
	t.Parallel()
	store, err := pgstore.Open(t.Context(), devdbtest.Postgres(t), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.CreateAccount(t.Context(), rules.Actor{}, auth.Account{Email: "ada@example.com"},
		"lost"); err != nil {
		t.Fatal(err)
	}
	broken := noMail{store}
	for name, command := range map[string]func(ctx context.Context, out io.Writer, log *slog.Logger) error{
		"set-password": func(ctx context.Context, out io.Writer, log *slog.Logger) error {
			return setPassword(ctx, broken, rules.Actor{}, "ada@example.com", strings.NewReader("a fine engine"), out,
				log)
		},
		"create-admin": func(ctx context.Context, out io.Writer, log *slog.Logger) error {
			return createAdmin(ctx, broken, rules.Actor{}, "ada@example.com", strings.NewReader("a fine engine"), out,
				log)
		},
		"remove-factor": func(ctx context.Context, out io.Writer, log *slog.Logger) error {
			return removeSecondFactor(ctx, broken, rules.Actor{}, "ada@example.com", out, log)
		},
	} {
		var out, log bytes.Buffer
		if err := command(t.Context(), &out, slog.New(slog.NewTextHandler(&log, nil))); err != nil ||
			out.String() != "ada@example.com\n" {
			t.Errorf("%s prints %q (%v)", name, out.String(), err)
		}
		if text := log.String(); !strings.Contains(text, "level=WARN") || !strings.Contains(text, "the queue is full") {
			t.Errorf("%s logs %q", name, text)
		}
	}
	entry, err := auth.NewGate(store, auth.Options{}).SignIn(t.Context(), "ada@example.com", "a fine engine",
		auth.Browser{})
	if err != nil || !entry.Session.Account.PlatformAdmin {
		t.Errorf("%+v signs in (%v)", entry.Session.Account, err)
	}
}

func TestWhoIsAskedForAPasswordMayGiveUp(t *testing.T) {
	t.Parallel()
	nothing, writer := io.Pipe()
	defer func() { _ = writer.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := readPassword(ctx, nothing); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}
