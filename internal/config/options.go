package config

import (
	"slices"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// option is one row of the table of options.
type option struct {
	group string
	name  string // as a flag, without the dashes
	short string // one letter, or ""
	help  string
	// normal is the default, as a person would write it; normalFor where a command has another.
	normal    string
	normalFor map[Command]string
	// takers are the commands that know the option; requiredBy those that do not start without.
	takers     []Command
	requiredBy []Command
	// argument says that the option has no environment variable.
	argument bool
	// value returns the option's place in a Config.
	value func(*Config) value
}

// The groups, in the order in which help lists them.
const (
	groupArguments = "Arguments"
	groupStores    = "Stores"
	groupListeners = "Listeners"
	groupDecisions = "Decisions and rules"
	groupRecords   = "Violations"
	groupProcess   = "Process"
)

var (
	everyCommand = func() (all []Command) {
		for _, c := range commands {
			all = append(all, c.name)
		}
		return all
	}()
	everyAdminCommand = slices.DeleteFunc(slices.Clone(everyCommand), func(c Command) bool {
		return !strings.HasPrefix(string(c), "admin ")
	})
	deciders = []Command{API, SluiceDev}
	keepers  = []Command{AdminServe, SluiceDev} // of the database: they drop what is too old
	servers  = slices.DeleteFunc(slices.Clone(everyCommand), func(c Command) bool { return !c.Serves() })
)

// options is the table. The rows of a group stand together.
var options = []option{
	{
		group: groupArguments, name: "email", argument: true,
		takers: []Command{AdminCreateAdmin, AdminSetPassword}, requiredBy: []Command{AdminCreateAdmin, AdminSetPassword},
		help:  "The address to sign in with.",
		value: func(c *Config) value { return text{&c.Arguments.Email, "ADDRESS"} },
	},
	{
		group: groupArguments, name: "slug", argument: true,
		takers: []Command{AdminCreateTenant}, requiredBy: []Command{AdminCreateTenant},
		help:  "The tenant's name in URLs and commands.",
		value: func(c *Config) value { return text{&c.Arguments.Slug, "SLUG"} },
	},
	{
		group: groupArguments, name: "tenant", argument: true,
		takers:     []Command{AdminCreateKey, AdminEnforcement, AdminApply, AdminExport},
		requiredBy: []Command{AdminCreateKey, AdminEnforcement, AdminApply, AdminExport},
		help:       "The slug of the tenant.",
		value:      func(c *Config) value { return text{&c.Arguments.Tenant, "SLUG"} },
	},
	{
		group: groupArguments, name: "enforcement", argument: true,
		takers: []Command{AdminEnforcement}, requiredBy: []Command{AdminEnforcement},
		help: "shadow makes every rule of the tenant a shadow rule, so that nothing is denied; on ends that.",
		value: func(c *Config) value {
			return word{&c.Arguments.Enforcement, []string{string(rules.EnforcementOn), string(rules.EnforcementShadow)}}
		},
	},
	{
		group: groupArguments, name: "name", argument: true,
		takers:     []Command{AdminCreateTenant, AdminCreateKey},
		requiredBy: []Command{AdminCreateTenant, AdminCreateKey},
		help:       "What people call it.",
		value:      func(c *Config) value { return text{&c.Arguments.Name, "NAME"} },
	},
	{
		group: groupArguments, name: "default-plan", argument: true,
		takers: []Command{AdminCreateTenant},
		help:   "The plan of users who were assigned none. It is created with the tenant.",
		value:  func(c *Config) value { return text{&c.Arguments.DefaultPlan, "PLAN"} },
	},
	{
		group: groupArguments, name: "permissions", argument: true, normal: "check",
		takers: []Command{AdminCreateKey},
		help:   "What the key may do, separated by commas.",
		value: func(c *Config) value {
			return permissions{&c.Arguments.Permissions, []rules.Permission{
				rules.PermissionCheck, rules.PermissionExplain, rules.PermissionManage,
			}}
		},
	},
	{
		group: groupArguments, name: "grant-to", argument: true,
		takers: []Command{AdminMigrate},
		help:   "The database role that the other programs run as; it may then read and write rows, and only add to the audit log.",
		value:  func(c *Config) value { return text{&c.Arguments.GrantTo, "ROLE"} },
	},
	{
		group: groupArguments, name: "file", short: "f", argument: true,
		takers: []Command{AdminApply}, requiredBy: []Command{AdminApply},
		help:  "The file to read; - is standard input.",
		value: func(c *Config) value { return text{&c.Arguments.File, "FILE"} },
	},
	{
		group: groupArguments, name: "dry-run", argument: true, normal: "false",
		takers: []Command{AdminApply},
		help:   "Print what would change, and change nothing.",
		value:  func(c *Config) value { return toggle{&c.Arguments.DryRun} },
	},
	{
		group: groupArguments, name: "prune", argument: true, normal: "false",
		takers: []Command{AdminApply},
		help:   "Remove the plans, rules and overrides that the file does not name.",
		value:  func(c *Config) value { return toggle{&c.Arguments.Prune} },
	},

	{
		group: groupStores, name: "database-url",
		takers: everyCommand, requiredBy: append([]Command{API}, everyAdminCommand...),
		help: "PostgreSQL 15 or later, as postgres://user:password@host:5432/name. " +
			"Without it, sluice dev runs a private one.",
		value: func(c *Config) value { return connURL{&c.DatabaseURL, []string{"postgres", "postgresql"}} },
	},
	{
		group: groupStores, name: "redis-url",
		takers: servers,
		help: "Redis, as redis://host:6379 or rediss:// for TLS. Without it buckets are in the memory " +
			"of each api process, so that limits hold per process; sluice dev runs a private Redis if one is installed.",
		value: func(c *Config) value {
			return connURL{&c.RedisURL, []string{"redis", "rediss", "redis+sentinel", "rediss+sentinel"}}
		},
	},
	{
		group: groupStores, name: "redis-prefix",
		takers: servers,
		help: "What this deployment's keys in Redis begin with. Deployments that share a Redis database, each with " +
			"a PostgreSQL of its own, need different ones: their tenants have the same numbers.",
		value: func(c *Config) value { return keyPrefix{&c.RedisPrefix} },
	},
	{
		group: groupStores, name: "store-budget", normal: "50ms",
		takers: servers,
		help:   "The time Redis has to answer. After it the failure mode of each rule decides.",
		value: func(c *Config) value {
			return duration{&c.StoreBudget, time.Millisecond, 10 * time.Second}
		},
	},
	{
		group: groupStores, name: "data-dir", normal: ".sluice",
		takers: []Command{SluiceDev},
		help:   "Where the private database is kept between runs; the private Redis keeps nothing.",
		value:  func(c *Config) value { return text{&c.DataDir, "DIRECTORY"} },
	},

	{
		group: groupListeners, name: "check-addr", normal: ":8080",
		normalFor: map[Command]string{SluiceDev: "127.0.0.1:8080"},
		takers:    deciders,
		help:      "Where checks are answered.",
		value:     func(c *Config) value { return address{&c.CheckAddr} },
	},
	{
		group: groupListeners, name: "check-max-connections", normal: "16384",
		takers: deciders,
		help: "How many connections may be open where checks are answered. At the limit, new ones take the place of the " +
			"longest idle. An idle connection takes about 24 KiB of memory and a file descriptor.",
		value: func(c *Config) value { return count{&c.CheckMaxConnections, 16, 1_000_000} },
	},
	{
		group: groupListeners, name: "admin-addr", normal: ":8081",
		normalFor: map[Command]string{SluiceDev: "127.0.0.1:8081"},
		takers:    []Command{AdminServe, SluiceDev},
		help:      "Where the admin API and the web UI are. Browsers keep its cookies only over TLS, or on loopback.",
		value:     func(c *Config) value { return address{&c.AdminAddr} },
	},
	{
		group: groupListeners, name: "check-url",
		takers: []Command{AdminServe, SluiceDev},
		help: "Where services reach the check endpoint, such as https://limits.example.com. The UI puts it into the code that " +
			"it offers to copy; without it there is a placeholder. sluice dev knows its own.",
		value: func(c *Config) value { return webURL{&c.CheckURL} },
	},
	{
		group: groupListeners, name: "trusted-proxies",
		takers: []Command{AdminServe},
		help: "Networks of the proxies in front of the admin API, separated by commas. Whoever connects from " +
			"there is told apart by X-Forwarded-For, to which each proxy must append its client's address.",
		value: func(c *Config) value { return networks{&c.TrustedProxies} },
	},
	{
		group: groupListeners, name: "metrics-addr", normal: ":9090",
		normalFor: map[Command]string{AdminServe: ":9091", SluiceDev: "127.0.0.1:9090"},
		takers:    servers,
		help:      "Where Prometheus reads /metrics, without a password. /healthz and /readyz are answered there as well.",
		value:     func(c *Config) value { return address{&c.MetricsAddr} },
	},

	{
		group: groupDecisions, name: "local-buckets", normal: "1000000",
		takers: deciders,
		help: "How many buckets a process keeps in its own memory at most, for rules that fail local " +
			"and for running without Redis; those that would be full soonest make room.",
		value: func(c *Config) value { return count{&c.LocalBuckets, 1, 1_000_000_000} },
	},
	{
		group: groupDecisions, name: "poll-interval", normal: "1s",
		takers: servers,
		help:   "How often to look for changed rules.",
		value: func(c *Config) value {
			return duration{&c.PollInterval, 10 * time.Millisecond, time.Hour}
		},
	},
	{
		group: groupDecisions, name: "reread-interval", normal: "60s",
		takers: servers,
		help:   "How often to read all rules again, changed or not.",
		value: func(c *Config) value {
			return duration{&c.RereadInterval, time.Second, 24 * time.Hour}
		},
	},

	{
		group: groupRecords, name: "recording", normal: "true",
		takers: deciders,
		help:   "Count decisions and violations, and write them to the database.",
		value:  func(c *Config) value { return toggle{&c.Recording} },
	},
	{
		group: groupRecords, name: "flush-interval", normal: "1s",
		takers: deciders,
		help: "How often to write what was recorded. A process that is killed loses what it recorded since; " +
			"one that writes a lot makes longer pauses, up to 10s, and holds counts of many rules' decisions back for as long.",
		value: func(c *Config) value {
			return duration{&c.FlushInterval, 10 * time.Millisecond, time.Minute}
		},
	},
	{
		group: groupRecords, name: "recorder-memory", normal: "64",
		takers: deciders,
		help: "The memory, in MiB, for what is recorded and not written yet. What does not fit is counted without " +
			"its subject.",
		value: func(c *Config) value { return count{&c.RecorderMemory, 1, 1 << 14} },
	},
	{
		group: groupRecords, name: "details-per-second", normal: "3",
		takers: deciders,
		help:   "How many different violations of one rule and subject a second keeps in detail. All are counted.",
		value:  func(c *Config) value { return count{&c.DetailsPerSecond, 1, 1000} },
	},
	{
		group: groupRecords, name: "violation-retention", normal: "720h",
		takers: keepers,
		help:   "How long violations are kept in detail, in whole days.",
		value: func(c *Config) value {
			return duration{&c.ViolationRetention, 24 * time.Hour, 400 * 24 * time.Hour}
		},
	},
	{
		group: groupRecords, name: "count-retention", normal: "9504h",
		takers: keepers,
		help:   "How long decisions and violations are kept as counts per minute; the default is 13 months.",
		value: func(c *Config) value {
			return duration{&c.CountRetention, 24 * time.Hour, 10 * 366 * 24 * time.Hour}
		},
	},
	{
		group: groupRecords, name: "webhook-allow",
		takers: keepers,
		help: "Networks that alerts may be posted to although they are private, separated by commas. " +
			"Without it alerts go to public addresses only.",
		value: func(c *Config) value { return networks{&c.WebhookAllow} },
	},

	{
		group: groupProcess, name: "shutdown-timeout", normal: "10s",
		takers: servers,
		help:   "The time that requests in flight have to end after SIGINT or SIGTERM.",
		value: func(c *Config) value {
			return duration{&c.ShutdownTimeout, 100 * time.Millisecond, time.Hour}
		},
	},
	{
		group: groupProcess, name: "log-level", normal: "info",
		takers: everyCommand,
		help:   "The least severe events to log.",
		value:  func(c *Config) value { return level{&c.LogLevel} },
	},
	{
		group: groupProcess, name: "log-format", normal: "text",
		takers: everyCommand,
		help:   "How to write log lines, which go to standard error.",
		value:  func(c *Config) value { return word{&c.LogFormat, []string{"text", "json"}} },
	},
}

func (o *option) takenBy(c Command) bool     { return slices.Contains(o.takers, c) }
func (o *option) requiredFor(c Command) bool { return slices.Contains(o.requiredBy, c) }

func (o *option) flag() string { return "--" + o.name }

// env is the option's environment variable, or "" if it has none.
func (o *option) env() string {
	if o.argument {
		return ""
	}
	return envPrefix + strings.ToUpper(strings.ReplaceAll(o.name, "-", "_"))
}

// defaultFor is the text of the option's default for a command; "" for none.
func (o *option) defaultFor(c Command) string {
	if text, ok := o.normalFor[c]; ok {
		return text
	}
	return o.normal
}

const envPrefix = "SLUICE_"
