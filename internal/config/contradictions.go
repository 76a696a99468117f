package config

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
)

func (p *parser) contradictions(c *Config) {
	named := func(name string) string {
		o := p.options[slices.IndexFunc(p.options, func(o option) bool { return o.name == name })]
		if s := p.given[name]; s.text != "" {
			return s.from + " " + o.value.show()
		}
		return o.flag() + " " + o.value.show() + " (the default)"
	}
	listeners := []struct{ name, addr string }{
		{"check-addr", c.CheckAddr},
		{"grpc-addr", c.GRPCAddr},
		{"admin-addr", c.AdminAddr},
		{"metrics-addr", c.MetricsAddr},
	}
	for i, one := range listeners {
		for _, other := range listeners[i+1:] {
			if sameAddress(one.addr, other.addr) {
				p.complain("%s and %s are the same address; each listener needs its own",
					named(one.name), named(other.name))
			}
		}
		if c.Command == SluiceDev && !isLoopback(one.addr) {
			p.complain("%s is not a loopback address; everybody knows the demo credentials of %s, "+
				"so that it serves this machine only: use 127.0.0.1, [::1] or localhost",
				named(one.name), c.Command)
		}
	}
	p.contradictTLS(c)
	p.contradictMail(c)
	if c.RequireFactor != auth.RequireNobody && c.SecretKeys == "" && c.Command != SluiceDev {
		p.complain("%s needs a --secret-key or SLUICE_SECRET_KEY; without it nobody can set up a second factor",
			named("require-second-factor"))
	}
	p.contradictSignIn(c)
	if c.Buckets == BucketsInRedis && c.RedisURL == "" && c.Command != SluiceDev {
		p.complain("%s needs a --redis-url or SLUICE_REDIS_URL", named("buckets"))
	}
	if c.AuditRetention != 0 && c.AuditRetention < 30*24*time.Hour {
		p.complain("%s is shorter than 720h, and not 0s, which keeps the audit logs for ever", named("audit-retention"))
	}
	if c.RereadInterval < c.PollInterval {
		p.complain("%s is shorter than %s; every reading of all rules is also a poll",
			named("reread-interval"), named("poll-interval"))
	}
	if c.ShutdownTimeout < c.StoreBudget {
		p.complain("%s is shorter than %s, which a check in flight may need",
			named("shutdown-timeout"), named("store-budget"))
	}
}

func sameAddress(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	return hostA == hostB || isEveryHost(hostA) || isEveryHost(hostB)
}

func isEveryHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || (err == nil && ip.IsUnspecified())
}

func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.IsLoopback())
}

func (p *parser) contradictTLS(c *Config) {
	for _, side := range []struct {
		name string
		TLS
	}{
		{"check", c.CheckTLS},
		{"grpc", c.GRPCTLS},
		{"admin", c.AdminTLS},
		{"metrics", c.MetricsTLS},
		{"redis", c.RedisTLS},
	} {
		name, t, prefix := side.name, side.TLS, "--"+side.name+"-tls-"
		if (t.Cert == "") != (t.Key == "") {
			p.complain("%scert and %skey need each other; give both", prefix, prefix)
		}
		if name != "redis" && t.CA != "" && t.Cert == "" {
			p.complain("%sclient-ca needs %scert: without a certificate the address does not speak TLS", prefix, prefix)
		}
	}
	if c.RedisTLS != (TLS{}) && !strings.HasPrefix(string(c.RedisURL), "rediss") {
		p.complain("the options --redis-tls-… need a --redis-url that begins with rediss:// or rediss+sentinel://")
	}
}

func (p *parser) contradictMail(c *Config) {
	switch {
	case c.SMTP.Addr == "" && (c.SMTP.From != "" || c.SMTP.User != ""):
		p.complain("--mail-from and --smtp-user need --smtp-addr, the mail server")
	case c.SMTP.Addr != "" && (c.SMTP.From == "" || c.AdminURL == ""):
		p.complain("--smtp-addr needs --mail-from, who sends, and --admin-url, where links in mail lead")
	}
	if (c.SMTP.User == "") != (c.SMTP.Password == "") {
		p.complain("--smtp-user and --smtp-password need each other; give both")
	}
}

func (p *parser) contradictSignIn(c *Config) {
	one, hasProviders := c.OIDC, c.OIDC.File != "" || c.OIDC.Issuer != ""
	switch {
	case one.Issuer == "" && (one.ClientID != "" || one.ClientSecret != "" || len(one.EmailDomains) > 0 ||
		one.CreateAccounts):
		p.complain("--oidc-client-id, --oidc-client-secret, --oidc-email-domains and --oidc-create-accounts need " +
			"--oidc-issuer, the provider")
	case one.Issuer != "" && (one.ClientID == "" || one.ClientSecret == ""):
		p.complain("--oidc-issuer needs --oidc-client-id and --oidc-client-secret")
	}
	if hasProviders && c.AdminURL == "" && c.Command == AdminServe {
		p.complain("--oidc-file and --oidc-issuer need --admin-url, where providers send browsers back to")
	}
	if !c.PasswordSignIn && !hasProviders && slices.Contains(keepers, c.Command) {
		p.complain("--password-sign-in=false needs --oidc-file or --oidc-issuer; otherwise nobody could sign in")
	}
}
