package config

import (
	"io"
	"log/slog"
	"net/netip"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Config is how one process was asked to run. Options that its command does not take hold their
// zero value.
type Config struct {
	// Command is what to do.
	Command Command
	// Answer is the text that --help or --version asked for. If it is not empty, the process prints
	// it and ends; nothing else in the Config means anything then.
	Answer string

	// DatabaseURL is empty only for "sluice dev", which then runs a database of its own.
	DatabaseURL ConnURL
	// RedisURL may be empty: then "sluice dev" runs a Redis of its own if it can, and the others
	// keep buckets in their memory.
	RedisURL ConnURL
	// RedisPrefix tells this deployment's keys from those of others in the same Redis.
	RedisPrefix string
	// DataDir is where "sluice dev" keeps its private database.
	DataDir string

	// CheckAddr, AdminAddr and MetricsAddr are host:port; an empty host is all interfaces, port 0 a
	// free one.
	CheckAddr   string
	AdminAddr   string
	MetricsAddr string
	// CheckURL is where services reach the check endpoint, without /v1/check; "" if nobody said so.
	CheckURL string
	// TrustedProxies are the networks of proxies whose X-Forwarded-For the admin API believes.
	TrustedProxies []netip.Prefix

	// StoreBudget is the time Redis has to answer before failure modes do.
	StoreBudget time.Duration
	// CheckMaxConnections is how many connections the check port has open at most.
	CheckMaxConnections int
	// LocalBuckets is how many buckets this process keeps in its memory at most.
	LocalBuckets int
	// PollInterval is the pause between two looks at the revisions, RereadInterval between two
	// readings of all rules.
	PollInterval   time.Duration
	RereadInterval time.Duration

	// Recording says whether decisions and violations are counted and written down.
	Recording bool
	// FlushInterval is the pause between two writes of what was recorded, RecorderMemory the memory for
	// what is not written yet, in MiB, and DetailsPerSecond how many different violations of one rule and
	// subject a second keeps in detail.
	FlushInterval    time.Duration
	RecorderMemory   int
	DetailsPerSecond int
	// ViolationRetention is how long violations are kept in detail, CountRetention for how long as counts.
	ViolationRetention time.Duration
	CountRetention     time.Duration
	// WebhookAllow are the private networks to which alerts may be posted.
	WebhookAllow []netip.Prefix

	// ShutdownTimeout is the time that requests in flight have to end.
	ShutdownTimeout time.Duration

	LogLevel  slog.Level
	LogFormat string // "text" or "json"

	// Arguments are what a one-shot command works on.
	Arguments Arguments
}

// Arguments of the one-shot commands.
type Arguments struct {
	Email       string
	Slug        string
	Name        string
	DefaultPlan string
	Tenant      string // a slug
	Enforcement string // on or shadow
	Permissions []rules.Permission
	File        string // "-" is standard input
	GrantTo     string // a database role; "" for none
	DryRun      bool
	Prune       bool
}

// Logger returns the logger that the configuration describes.
func (c Config) Logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// LogValue is the configuration as a log line shows it: every option that the command takes, with
// secrets left out.
func (c Config) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("command", string(c.Command))}
	for i := range options {
		if o := &options[i]; o.takenBy(c.Command) {
			attrs = append(attrs, slog.String(o.name, o.value(&c).String()))
		}
	}
	return slog.GroupValue(attrs...)
}
