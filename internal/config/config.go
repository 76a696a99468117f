package config

import (
	"io"
	"log/slog"
	"net/netip"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/certs"
)

// Config is the configuration of a process. The table of options documents the fields; options of other commands
// are zero.
type Config struct {
	Command Command
	Answer  string // of --help, --version or shell completion; if not empty, other fields are undefined

	DatabaseURL ConnURL // "" only for "sluice dev", which starts a private database
	Buckets     string  // a constant Buckets…; "" for the default of BucketStore
	RedisURL    ConnURL // "sluice dev" starts a private Redis if it can
	RedisTLS    TLS
	RedisPrefix string
	DataDir     string

	// Addresses are host:port. An empty host is every interface, port 0 a free one.
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

	StoreBudget         time.Duration
	CheckMaxConnections int
	LocalBuckets        int
	CheckpointAbove     time.Duration
	Leases              string // LeasesAuto or LeasesOff
	PollInterval        time.Duration
	RereadInterval      time.Duration

	Recording            bool
	FlushInterval        time.Duration
	RecorderMemory       int // MiB
	TrafficMemory        int
	TrafficTenantBudget  int
	TrafficBudget        int
	DetailsPerSecond     int
	ViolationRetention   time.Duration
	CountRetention       time.Duration
	AuditRetention       time.Duration // 0 for ever
	TenantGrace          time.Duration // life of a removed tenant
	SecurityLogRetention time.Duration // at least 30 days
	WebhookAllow         []netip.Prefix
	AdminURL             string // base URL of the web UI, without a slash at its end; "" if unknown
	SMTP                 SMTP
	SecretKeys           Secret // of an auth.Vault; "" for none
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

// SMTP is the mail server; without an Addr no mail is sent.
type SMTP struct {
	Addr     string // host:port
	TLS      string // starttls, tls or none
	User     string
	Password Secret
	From     string
}

// OIDC are the OpenID Connect providers: those of a File, and one more.
type OIDC struct {
	File           string // "" for none
	Issuer         string // "" for none
	ClientID       string
	ClientSecret   Secret
	Name           string
	EmailDomains   []string
	CreateAccounts bool
}

// The stores of buckets.
const (
	BucketsInRedis    = "redis"
	BucketsInMemory   = "memory"
	BucketsInPostgres = "postgres"
)

// The modes of leases.
const (
	LeasesAuto = "auto"
	LeasesOff  = "off"
)

// BucketStore returns Buckets, by default Redis if there is a URL, else memory.
func (c Config) BucketStore() string {
	switch {
	case c.Buckets != "":
		return c.Buckets
	case c.RedisURL != "":
		return BucketsInRedis
	}
	return BucketsInMemory
}

// TLS names the PEM files of a listener or of the Redis client.
type TLS struct {
	Cert, Key  string
	CA         string // of a listener's clients, or of Redis
	ServerName string // of Redis; "" is the host of the address
}

// CheckCerts returns the files of CheckTLS with the names of their options.
func (c Config) CheckCerts() certs.Files { return c.CheckTLS.files("check", "client-ca") }

// GRPCCerts is CheckCerts for GRPCTLS.
func (c Config) GRPCCerts() certs.Files { return c.GRPCTLS.files("grpc", "client-ca") }

// AdminCerts is CheckCerts for AdminTLS.
func (c Config) AdminCerts() certs.Files { return c.AdminTLS.files("admin", "client-ca") }

// MetricsCerts is CheckCerts for MetricsTLS.
func (c Config) MetricsCerts() certs.Files { return c.MetricsTLS.files("metrics", "client-ca") }

// RedisCerts is CheckCerts for RedisTLS.
func (c Config) RedisCerts() certs.Files { return c.RedisTLS.files("redis", "ca") }

func (t TLS) files(of, ca string) certs.Files {
	file := func(path, part string) certs.File {
		return certs.File{Path: path, Option: envName(of + "-tls-" + part)}
	}
	return certs.Files{Cert: file(t.Cert, "cert"), Key: file(t.Key, "key"), CA: file(t.CA, ca)}
}

// Arguments are the arguments of one-shot commands.
type Arguments struct {
	Email              string
	Slug               string
	Name               string
	DefaultPlan        string
	Tenant             string // a slug
	Enforcement        string // on or shadow
	Confirm            string // the slug again
	Permissions        []auth.Permission
	ServicePermissions []auth.Permission
	ExpiresIn          time.Duration
	Files              []string // one, except for an import; "-" is standard input
	GrantTo            string   // a database role; "" for none
	DryRun             bool
	Prune              bool
	SkipUnsupported    bool
	OwnLimits          bool
	Record             []string // keys of descriptors
	Merge, Replace     bool     // what an import does with the descriptors that its file lacks; Merge goes first
	From, To           string   // times, or durations ago
	FailIf             string   // a condition; "" for none
}

// Logger returns the configured logger.
func (c Config) Logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.LogLevel, ReplaceAttr: timeInUTC}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

func timeInUTC(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		a.Value = slog.TimeValue(a.Value.Time().UTC())
	}
	return a
}

// LogValue contains the command's options without secrets.
func (c Config) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("command", string(c.Command))}
	for _, o := range c.options() {
		if o.takenBy(c.Command) && o.valueOf == "" {
			attrs = append(attrs, slog.String(o.name, o.value.show()))
		}
	}
	return slog.GroupValue(attrs...)
}
