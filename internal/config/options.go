package config

import (
	"slices"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

type option struct {
	group     string // heading in help
	name      string // of the flag, without dashes
	letter    string // short flag, or ""
	takers    []Command
	normal    string // the default as people write it, or required
	normalFor map[Command]string
	value     value
	help      string
	repeaters []Command // for which the flag may be given several times
	valueOf   string    // for an option that names a file: the option whose value is in the file; else ""
}

const (
	arguments = "Arguments" // group of options without an environment variable
	required  = "required"  // by every command but "sluice dev", which starts what it needs
	envPrefix = "SLUICE_"
)

func (c *Config) options() []option {
	return withFiles(slices.Concat(
		group(arguments,
			row("email", only(AdminCreateAdmin, AdminSetPassword, AdminRemoveFactor, AdminSignInLink), required,
				text(&c.Arguments.Email, "ADDRESS"),
				"The address to sign in with."),
			row("slug", only(AdminCreateTenant), required, text(&c.Arguments.Slug, "SLUG"),
				"The tenant's name in URLs and commands."),
			row("tenant", only(AdminCreateKey, AdminEnforcement, AdminApply, AdminExport, AdminImportEnvoy,
				AdminRemoveTenant, AdminRestoreTenant, AdminReplay), required,
				text(&c.Arguments.Tenant, "SLUG"),
				"The slug of the tenant."),
			row("enforcement", only(AdminEnforcement), required,
				word(&c.Arguments.Enforcement, string(rules.EnforcementOn), string(rules.EnforcementShadow)),
				"shadow makes every rule of the tenant a shadow rule, so that nothing is denied; on ends that."),
			row("confirm", only(AdminRemoveTenant), required, text(&c.Arguments.Confirm, "SLUG"),
				"The slug again, so that no other tenant is removed by mistake."),
			row("name", only(AdminCreateTenant, AdminCreateKey, AdminCreateServiceKey), required,
				text(&c.Arguments.Name, "NAME"),
				"What people call it."),
			row("default-plan", only(AdminCreateTenant), "", text(&c.Arguments.DefaultPlan, "PLAN"),
				"The plan of users who were assigned none. It is created with the tenant."),
			row("permissions", only(AdminCreateKey), "check",
				permissions(&c.Arguments.Permissions, auth.TenantPermissions...),
				"What the key may do, separated by commas."),
			row("service-permissions", only(AdminCreateServiceKey), "read",
				permissions(&c.Arguments.ServicePermissions, auth.ServicePermissions...),
				"What the key may do in every tenant, separated by commas."),
			row("expires-in", only(AdminCreateServiceKey), "8760h",
				duration(&c.Arguments.ExpiresIn, time.Hour, 10*366*24*time.Hour),
				"When the key expires, from now."),
			row("grant-to", only(AdminMigrate), "", text(&c.Arguments.GrantTo, "ROLE"),
				"The database role that the other programs run as; it may then read and write rows, and only add "+
					"to the audit log."),
			row("file", only(AdminApply, AdminImportEnvoy, AdminReplay), required, several(&c.Arguments.Files, "FILE"),
				"The file to read; - is standard input.").short("f").
				repeated(AdminImportEnvoy),
			row("dry-run", only(AdminApply, AdminImportEnvoy), "false", toggle(&c.Arguments.DryRun),
				"Print what would change, and change nothing."),
			row("merge", only(AdminImportEnvoy), "false", toggle(&c.Arguments.Merge),
				"Keep the descriptors of the domain that the files lack."),
			row("replace", only(AdminImportEnvoy), "false", toggle(&c.Arguments.Replace),
				"Remove the descriptors of the domain that the files lack; their limits end."),
			row("skip-unsupported", only(AdminImportEnvoy), "false", toggle(&c.Arguments.SkipUnsupported),
				"Leave out limits that cannot be expressed, and name them."),
			row("own-limits", only(AdminImportEnvoy), "false", toggle(&c.Arguments.OwnLimits),
				"Let descriptors bring limits in place of those of the files."),
			row("record", only(AdminImportEnvoy), "", several(&c.Arguments.Record, "KEY"),
				"Hits of descriptors with this key have happened: they are charged, and denied only for the next.").
				repeated(AdminImportEnvoy),
			row("prune", only(AdminApply, AdminReplay), "false", toggle(&c.Arguments.Prune),
				"Remove the plans, rules and overrides that the file does not name."),
			row("from", only(AdminReplay), "24h", text(&c.Arguments.From, "TIME"),
				"The beginning of the recorded checks, as 2026-11-20T09:00:00Z or as a time ago: 24h."),
			row("to", only(AdminReplay), "0s", text(&c.Arguments.To, "TIME"),
				"Their end, likewise; 0s is now."),
			row("fail-if", only(AdminReplay), "", text(&c.Arguments.FailIf, "CONDITION"),
				"End with status 3 if this is true: newly_denied > 0.1%. The figures are denied_then, denied_now, "+
					"newly_denied and "+
					"no_longer_denied, in checks or percents of all; of several, separated by commas, one is enough."),
		),
		group("Stores",
			row("database-url", everyCommand, required, connURL(&c.DatabaseURL, "postgres", "postgresql"),
				"PostgreSQL 15 or later, as postgres://user:password@host:5432/name. TLS as in libpq: "+
					"?sslmode=verify-full. Without it, sluice dev runs a private one."),
			row("database-password", everyCommand, "", secretText(&c.databasePassword),
				"The password of PostgreSQL, if the URL has none."),
			row("buckets", servers, "", word(&c.Buckets, BucketsInRedis, BucketsInMemory, BucketsInPostgres),
				"Where buckets are: redis, postgres (the database), or memory (limits hold per api process). Without "+
					"it: redis if there is a redis-url, else memory."),
			row("redis-url", servers, "",
				connURL(&c.RedisURL, "redis", "rediss", "redis+sentinel", "rediss+sentinel"),
				"Redis, as redis://host:6379, or rediss:// for TLS. Without it, sluice dev runs a private one if "+
					"Redis is installed."),
			row("redis-password", servers, "", secretText(&c.redisPassword),
				"The password of Redis, if the URL has none. An ACL's user is in the URL: redis://user@host:6379."),
			row("redis-sentinel-password", servers, "", secretText(&c.sentinelPassword),
				"The password of the sentinels, if the URL has none."),
			row("redis-tls-ca", servers, "", text(&c.RedisTLS.CA, "FILE"),
				"Certificate authorities of Redis and its sentinels; default: the operating system's. Needs a "+
					"rediss:// URL."),
			row("redis-tls-cert", servers, "", text(&c.RedisTLS.Cert, "FILE"),
				"The certificate shown to Redis and its sentinels."),
			row("redis-tls-key", servers, "", text(&c.RedisTLS.Key, "FILE"),
				"The key of that certificate."),
			row("redis-tls-server-name", servers, "", text(&c.RedisTLS.ServerName, "NAME"),
				"The name in Redis's certificates, if it is not the host in the address."),
			row("redis-prefix", servers, "", keyPrefix(&c.RedisPrefix),
				"The beginning of all keys in Redis. Deployments that share a Redis database need different ones."),
			row("store-budget", servers, "50ms", duration(&c.StoreBudget, time.Millisecond, 10*time.Second),
				"The time Redis, or PostgreSQL with buckets there, has to answer. After it the failure mode of each "+
					"rule decides."),
			row("data-dir", only(SluiceDev), ".sluice", text(&c.DataDir, "DIRECTORY"),
				"Where the private database is kept between runs; the private Redis keeps nothing."),
		),
		group("Listeners",
			row("check-addr", deciders, ":8080", address(&c.CheckAddr),
				"Where checks are answered.").on(SluiceDev, "127.0.0.1:8080"),
			row("check-max-connections", deciders, "16384", count(&c.CheckMaxConnections, 16, 1_000_000),
				"The most connections of the check port; at the limit, new ones replace idle ones. One takes "+
					"about 24 KiB and a file descriptor. With gRPC a quarter is for it."),
			row("grpc-addr", deciders, "", address(&c.GRPCAddr),
				"Where Envoy's rate limit service is answered over gRPC; default: nowhere.").on(SluiceDev,
				"127.0.0.1:8082"),
			row("admin-addr", only(AdminServe, SluiceDev), ":8081", address(&c.AdminAddr),
				"Where the admin API and the web UI are. Browsers keep its cookies only over TLS, or on loopback.").
				on(SluiceDev, "127.0.0.1:8081"),
			row("check-url", only(AdminServe, SluiceDev), "", webURL(&c.CheckURL),
				"Where services reach the check endpoint, such as https://limits.example.com, for the code "+
					"that the UI shows."),
			row("trusted-proxies", only(API, AdminServe), "", networks(&c.TrustedProxies),
				"Addresses or networks of the proxies in front, separated by commas. Each must append its "+
					"client's address to X-Forwarded-For."),
			row("metrics-addr", servers, ":9090", address(&c.MetricsAddr),
				"Where /metrics, /healthz and /readyz are answered, without a password.").
				on(AdminServe, ":9091").on(SluiceDev, "127.0.0.1:9090"),
		),
		group("TLS of the listeners", slices.Concat(
			listenerTLS("check", only(API), &c.CheckTLS),
			listenerTLS("grpc", only(API), &c.GRPCTLS),
			listenerTLS("admin", only(AdminServe), &c.AdminTLS),
			listenerTLS("metrics", only(API, AdminServe), &c.MetricsTLS),
		)...),
		group("Decisions and rules",
			row("local-buckets", deciders, "1000000", count(&c.LocalBuckets, 1, 1_000_000_000),
				"The most buckets in a process's own memory, for rules that fail local and without Redis."),
			row("checkpoint-above", servers, "1h", duration(&c.CheckpointAbove, 0, rules.MaxTimeToFull),
				"Buckets that take this long to refill, or longer, are also written to the database; 0s writes none."),
			row("leases", deciders, LeasesAuto, word(&c.Leases, LeasesAuto, LeasesOff),
				"auto: Redis lends tokens of busy buckets to this process and to clients with handles, which "+
					"saves round trips. off: every check asks Redis."),
			row("jwks-allow", deciders, "", networks(&c.JWKSAllow),
				"Private networks that the keys of gateways' tokens may be read from, separated by commas."),
			row("poll-interval", servers, "1s", duration(&c.PollInterval, 10*time.Millisecond, time.Hour),
				"How often to look for changed rules."),
			row("reread-interval", servers, "60s", duration(&c.RereadInterval, time.Second, 24*time.Hour),
				"How often to compare the rules in memory with the database, to find changes without notice."),
		),
		group("Violations",
			row("recording", deciders, "true", toggle(&c.Recording),
				"Count decisions and violations, and write them to the database."),
			row("flush-interval", deciders, "1s", duration(&c.FlushInterval, 10*time.Millisecond, time.Minute),
				"How often to write counts and violations. A killed process loses those of the latest "+
					"interval, which is up to 10s under load."),
			row("recorder-memory", deciders, "64", count(&c.RecorderMemory, 1, 1<<14),
				"Memory in MiB for counts and violations that are not written yet. More is "+
					"counted without its subject."),
			row("traffic-memory", deciders, "32", count(&c.TrafficMemory, 1, 1<<14),
				"Memory in MiB for recorded checks that are not written yet. More is dropped and "+
					"counted."),
			row("traffic-tenant-budget", servers, "512", count(&c.TrafficTenantBudget, 1, 1<<22),
				"MiB of recorded checks that the database keeps of one tenant; beyond it the tenant is "+
					"sampled. The same in all processes."),
			row("traffic-budget", servers, "8192", count(&c.TrafficBudget, 1, 1<<22),
				"MiB of recorded checks that the database keeps in all; beyond it the largest tenants stop "+
					"recording. The same in all processes."),
			row("details-per-second", deciders, "3", count(&c.DetailsPerSecond, 1, 1000),
				"How many different violations of one rule and subject are kept in detail, a second. All are "+
					"counted."),
			row("violation-retention", keepers, "720h",
				duration(&c.ViolationRetention, 24*time.Hour, 400*24*time.Hour),
				"How long violations are kept in detail, in whole days."),
			row("count-retention", keepers, "9504h",
				duration(&c.CountRetention, 24*time.Hour, 10*366*24*time.Hour),
				"How long counts of decisions and violations are kept; the default is 13 months."),
			row("audit-retention", keepers, "0s", duration(&c.AuditRetention, 0, 20*366*24*time.Hour),
				"How long entries of the audit logs are kept, at least 720h; 0s keeps them for ever."),
			row("security-log-retention", keepers, "2160h",
				duration(&c.SecurityLogRetention, 30*24*time.Hour, 10*366*24*time.Hour),
				"How long entries of the security log are kept."),
			row("tenant-grace", keepers, "720h", duration(&c.TenantGrace, time.Hour, 400*24*time.Hour),
				"How long a removed tenant can be restored before it is erased."),
			row("webhook-allow", keepers, "", networks(&c.WebhookAllow),
				"Private networks that alerts and audit logs may be posted to, separated by commas."),
		),
		group("Mail", append([]option{
			row("admin-url", []Command{AdminServe, AdminSignInLink, SluiceDev}, "", webURL(&c.AdminURL),
				"Where people reach the web UI, such as https://sluice.example.com: for links in mail and OpenID "+
					"Connect."),
		}, mailOptions(c)...)...),
		group("People",
			row("secret-key", keepers, "", secretKeys(&c.SecretKeys),
				"Keys that encrypt secrets in the database: 32 random bytes in base64 (openssl rand -base64 "+
					"32). docs/operations.md says how to change it. sluice dev makes one."),
			row("require-second-factor", keepers, "",
				word((*string)(&c.RequireFactor), string(auth.RequireAdmins), string(auth.RequireEveryone)),
				"Whose account needs a second factor: admins (platform admins) or everyone. Without it each "+
					"tenant decides by its setting."),
		),
		group("Sign-in", signInOptions(c)...),
		group("Process",
			row("drain-delay", only(API, AdminServe), "0s", duration(&c.DrainDelay, 0, time.Hour),
				"How long a process goes on after SIGINT or SIGTERM while /readyz says 503. 5s to 15s are "+
					"usual behind load balancers."),
			row("shutdown-timeout", servers, "10s", duration(&c.ShutdownTimeout, 100*time.Millisecond, time.Hour),
				"The time that requests in flight have to end after SIGINT or SIGTERM."),
			row("pprof", servers, "false", toggle(&c.Pprof),
				"Answer /debug/pprof/ where the metrics are, for go tool pprof."),
			row("trace-endpoint", only(API), "", webURL(&c.TraceEndpoint),
				"An OpenTelemetry collector for OTLP over HTTP, such as http://collector:4318. Sampled checks "+
					"become spans there."),
			row("log-level", everyCommand, "info", level(&c.LogLevel),
				"The least severe events to log."),
			row("log-format", everyCommand, "text", word(&c.LogFormat, "text", "json"),
				"How to write log lines, which go to standard error."),
		),
	))
}

func signInOptions(c *Config) []option {
	return []option{
		row("password-sign-in", keepers, "true", toggle(&c.PasswordSignIn),
			"Let people sign in by password. Without it: by OpenID Connect or admin sign-in-link."),
		row("oidc-file", keepers, "", text(&c.OIDC.File, "FILE"),
			"The providers of OpenID Connect, in YAML or JSON; see docs/security.md. All options of OpenID "+
				"Connect need --admin-url."),
		row("oidc-issuer", keepers, "", text(&c.OIDC.Issuer, "URL"),
			"The issuer of one provider without a file, such as https://login.example.com. Its callback is "+
				"/api/v1/auth/sso/callback."),
		row("oidc-client-id", keepers, "", text(&c.OIDC.ClientID, "ID"),
			"The client ID at that provider."),
		row("oidc-client-secret", keepers, "", secretText(&c.OIDC.ClientSecret),
			"The client secret, at least 16 characters."),
		row("oidc-name", keepers, "Single sign-on", text(&c.OIDC.Name, "NAME"),
			"The text of the button at sign-in."),
		row("oidc-email-domains", keepers, "", list(&c.OIDC.EmailDomains, "DOMAINS"),
			"The domains whose verified addresses may sign in, separated by commas; default: any."),
		row("oidc-create-accounts", keepers, "false", toggle(&c.OIDC.CreateAccounts),
			"Make an account at the first sign-in of an unknown address. Needs --oidc-email-domains."),
	}
}

func mailOptions(c *Config) []option {
	return []option{
		row("smtp-addr", keepers, "", address(&c.SMTP.Addr),
			"The mail server, such as smtp.example.com:587. Without it inviters pass links on. Needs "+
				"--mail-from and --admin-url."),
		row("smtp-tls", keepers, "starttls", word(&c.SMTP.TLS, "starttls", "tls", "none"),
			"How the connection is encrypted: starttls (usual at port 587), tls from the first byte (port 465), or "+
				"none, for a server on this machine."),
		row("smtp-user", keepers, "", text(&c.SMTP.User, "USER"),
			"The user at the mail server; default: no authentication."),
		row("smtp-password", keepers, "", secretText(&c.SMTP.Password),
			"The password of that user."),
		row("mail-from", keepers, "", mailFrom(&c.SMTP.From),
			"The sender of mail, such as Sluice <sluice@example.com>."),
	}
}

func listenerTLS(listener string, takers []Command, t *TLS) []option {
	return []option{
		row(listener+"-tls-cert", takers, "", text(&t.Cert, "FILE"),
			"The certificate chain of --"+listener+"-addr; it then speaks TLS only."),
		row(listener+"-tls-key", takers, "", text(&t.Key, "FILE"),
			"The key of that certificate."),
		row(listener+"-tls-client-ca", takers, "", text(&t.CA, "FILE"),
			"Certificate authorities of the clients' certificates."),
	}
}

func withFiles(options []option) (all []option) {
	for _, o := range options {
		all = append(all, o)
		if !o.value.secret {
			continue
		}
		file := row(o.name+fileSuffix, o.takers, "", text(new(string), "FILE"),
			"A file with the value of "+o.flag()+", in its place. A line break at the end is not part of it.")
		file.group, file.valueOf = o.group, o.name
		all = append(all, file)
	}
	return all
}

const fileSuffix = "-file"

func row(name string, takers []Command, normal string, value value, help string) option {
	return option{name: name, takers: takers, normal: normal, value: value, help: help, normalFor: map[Command]string{}}
}

func only(commands ...Command) []Command { return commands }

func group(heading string, options ...option) []option {
	for i := range options {
		options[i].group = heading
	}
	return options
}

func (o option) short(letter string) option { o.letter = letter; return o }

// repeated lets commands take the flag several times, with its texts separated by NUL.
func (o option) repeated(by ...Command) option { o.repeaters = by; return o }

func (o option) on(c Command, normal string) option { o.normalFor[c] = normal; return o }

func (o option) takenBy(c Command) bool { return slices.Contains(o.takers, c) }

func (o option) flag() string { return "--" + o.name }

func (o option) env() string {
	if o.group == arguments {
		return ""
	}
	return envName(o.name)
}

func envName(name string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

func (o option) defaultFor(c Command) (normal string, must bool) {
	if text, ok := o.normalFor[c]; ok {
		return text, false
	}
	if o.normal == required {
		return "", c != SluiceDev
	}
	return o.normal, false
}
