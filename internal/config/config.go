package config

import (
	"io"
	"log/slog"
	"net/netip"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/certs"
)

// Config is how one process was asked to run. The table of options says what each field means; options that
// the command does not take hold their zero value.
type Config struct {
	Command Command
	// Answer is the text that --help, --version or shell completion asked for. If it is not empty, the process
	// prints it and ends; no other field means anything then.
	Answer string

	// DatabaseURL and RedisURL have the passwords that were given by options of their own.
	DatabaseURL ConnURL // "" only for "sluice dev", which then starts a private database
	Buckets     string  // one of the constants Buckets…; "" is for BucketStore to say
	RedisURL    ConnURL // "sluice dev" starts a private Redis if it can
	RedisTLS    TLS
	RedisPrefix string
	DataDir     string

	// CheckAddr, GRPCAddr, AdminAddr and MetricsAddr are host:port; an empty host is every interface, port 0 a free one.
	CheckAddr      string
	GRPCAddr       string // "" for no gRPC
	AdminAddr      string
	MetricsAddr    string
	CheckTLS       TLS
	GRPCTLS        TLS
	AdminTLS       TLS
	MetricsTLS     TLS
	CheckURL       string // without /v1/check; "" if unknown
	TrustedProxies []netip.Prefix
	AdminWork      Work

	StoreBudget         time.Duration
	CheckMaxConnections int
	LocalBuckets        int
	Leases              string // LeasesAuto or LeasesOff
	PollInterval        time.Duration
	RereadInterval      time.Duration

	Recording      bool
	FlushInterval  time.Duration
	RecorderMemory int // MiB
	// In MiB: memory for recorded checks that wait, and what the database keeps of a tenant and of all.
	TrafficMemory       int
	TrafficTenantBudget int
	TrafficBudget       int
	DetailsPerSecond    int
	ViolationRetention  time.Duration
	CountRetention      time.Duration
	AuditRetention      time.Duration // 0 for ever
	TenantGrace         time.Duration // in which a removed tenant can be restored
	// SecurityLogRetention is at least 30 days.
	SecurityLogRetention time.Duration
	WebhookAllow         []netip.Prefix
	AdminURL             string // of the web UI, without a slash at its end; "" if unknown
	SMTP                 SMTP
	SecretKeys           Secret // of an auth.Vault; "" has none
	RequireFactor        auth.RequireFactor
	OIDC                 OIDC
	PasswordSignIn       bool
	JWKSAllow            []netip.Prefix

	DrainDelay      time.Duration
	ShutdownTimeout time.Duration
	Pprof           bool   // at MetricsAddr
	TraceEndpoint   string // without /v1/traces; "" traces nothing
	LogLevel        slog.Level
	LogFormat       string // "text" or "json"

	Arguments Arguments

	databasePassword, redisPassword, sentinelPassword Secret
}

// Work limits what the admin API does for its callers, in milliseconds a second; 0 is no limit.
type Work struct {
	Tenant, Account, Platform, Network int
}

// SMTP is the mail server; without an Addr no mail is sent.
type SMTP struct {
	Addr     string // host:port
	TLS      string // starttls, tls or none
	User     string
	Password Secret
	From     string
}

// OIDC is where the providers of OpenID Connect are described: in a File, and one of them here.
type OIDC struct {
	File           string // "" for none
	Issuer         string // "" for none
	ClientID       string
	ClientSecret   Secret
	Name           string
	EmailDomains   []string
	CreateAccounts bool
}

// Where buckets are.
const (
	BucketsInRedis    = "redis"
	BucketsInMemory   = "memory"
	BucketsInPostgres = "postgres"
)

// Whether tokens of busy buckets are leased.
const (
	LeasesAuto = "auto"
	LeasesOff  = "off"
)

// BucketStore returns where buckets are: where Buckets says, else in Redis if there is a URL, else in memory.
func (c Config) BucketStore() string {
	switch {
	case c.Buckets != "":
		return c.Buckets
	case c.RedisURL != "":
		return BucketsInRedis
	}
	return BucketsInMemory
}

// TLS names the PEM files of a listener, or of the client of Redis. A listener without a certificate does not use TLS.
type TLS struct {
	Cert, Key  string
	CA         string // of a listener's clients, or of Redis
	ServerName string // of Redis; "" is the host that is connected to
}

// CheckCerts are the files of CheckTLS, with the options that name them.
func (c Config) CheckCerts() certs.Files { return c.CheckTLS.files("check", "client-ca") }

// GRPCCerts are those of GRPCTLS.
func (c Config) GRPCCerts() certs.Files { return c.GRPCTLS.files("grpc", "client-ca") }

// AdminCerts are those of AdminTLS.
func (c Config) AdminCerts() certs.Files { return c.AdminTLS.files("admin", "client-ca") }

// MetricsCerts are those of MetricsTLS.
func (c Config) MetricsCerts() certs.Files { return c.MetricsTLS.files("metrics", "client-ca") }

// RedisCerts are those of RedisTLS.
func (c Config) RedisCerts() certs.Files { return c.RedisTLS.files("redis", "ca") }

func (t TLS) files(of, ca string) certs.Files {
	file := func(path, part string) certs.File {
		return certs.File{Path: path, Option: envName(of + "-tls-" + part)}
	}
	return certs.Files{Cert: file(t.Cert, "cert"), Key: file(t.Key, "key"), CA: file(t.CA, ca)}
}

// Arguments are what a one-shot command works on.
type Arguments struct {
	Email       string
	Slug        string
	Name        string
	DefaultPlan string
	Spread      bool
	Tenant      string // a slug
	Enforcement string // on or shadow
	Confirm     string // the slug again
	Permissions []auth.Permission
	// ServicePermissions and ExpiresIn are of a service key.
	ServicePermissions []auth.Permission
	ExpiresIn          time.Duration
	File               string // "-" is standard input
	GrantTo            string // a database role; "" for none
	DryRun             bool
	Prune              bool
	From, To           string // times, or durations ago
	FailIf             string // a condition; "" for none
}

// Logger returns the logger that the configuration describes.
func (c Config) Logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.LogLevel, ReplaceAttr: timeInUTC}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// timeInUTC makes the times of all processes' lines comparable, wherever they run.
func timeInUTC(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		a.Value = slog.TimeValue(a.Value.Time().UTC())
	}
	return a
}

// LogValue shows every option that the command takes, with secrets left out.
func (c Config) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("command", string(c.Command))}
	for _, o := range c.options() {
		if o.takenBy(c.Command) && o.valueOf == "" {
			attrs = append(attrs, slog.String(o.name, o.value.show()))
		}
	}
	return slog.GroupValue(attrs...)
}
