package redisbucket

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	redisPort    = "6379"
	sentinelPort = "26379"
)

// Options returns settings for a client that answers or fails within a budget (0: DefaultBudget), by a URL:
//
//	redis://[user:password@]host[:port][/database]
//	redis://host1,host2,…[?cluster=true]                  Redis Cluster: several addresses, or cluster=true
//	redis+sentinel://[user:password@]host1,host2/master[/database]
//
// rediss and rediss+sentinel use TLS; sentinels have their own ?sentinel_user= and ?sentinel_password=. Errors never
// contain a password.
func Options(rawURL string, budget time.Duration) (*redis.UniversalOptions, error) {
	if budget <= 0 {
		budget = DefaultBudget
	}
	options := &redis.UniversalOptions{
		// A script without an answer may have taken tokens.
		MaxRetries: -1,
		// Otherwise the driver ignores the context's deadline, and waits five seconds for a host that does not answer.
		ContextTimeoutEnabled: true,
		DialTimeout:           budget,
		DialerRetries:         1,
		ReadTimeout:           budget,
		WriteTimeout:          budget,
		PoolSize:              maxInFlight + 4,
		// A busy pool and a slow Redis give different errors.
		PoolTimeout: budget / 2,
		// Version 3 would look for pushed messages before each command.
		Protocol:                 2,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if err := parseURL(rawURL, options); err != nil {
		return nil, fmt.Errorf("redis URL: %w", err)
	}
	return options, nil
}

func parseURL(rawURL string, options *redis.UniversalOptions) error {
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok {
		return errors.New("the scheme is missing; write redis://, rediss://, redis+sentinel:// or " +
			"rediss+sentinel://")
	}
	scheme, sentinel := strings.CutSuffix(scheme, "+sentinel")
	if scheme != "redis" && scheme != "rediss" {
		return errors.New("the scheme is none of redis, rediss, redis+sentinel and rediss+sentinel")
	}
	// url.Parse refuses several hosts, and its errors repeat the password.
	end := len(rest)
	if at := strings.IndexAny(rest, "/?#"); at >= 0 {
		end = at
	}
	if strings.Contains(rest[end:], "@") {
		return errors.New("an @ comes after the first /, ? or #; write @ as %40, / as %2F, ? as %3F and # as %23 in " +
			"names and passwords")
	}
	authority, path := rest[:end], strings.TrimPrefix(rest[end:], "/")
	path, query, _ := strings.Cut(path, "?")
	hosts := authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		hosts = authority[at+1:]
		if err := parseUser(authority[:at], options); err != nil {
			return err
		}
	}
	port := redisPort
	if sentinel {
		port = sentinelPort
	}
	var err error
	if options.Addrs, err = parseHosts(hosts, port); err != nil {
		return err
	}
	if scheme == "rediss" {
		options.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if err := parseQuery(query, sentinel, options); err != nil {
		return err
	}
	return parsePath(path, sentinel, options)
}

func parseUser(userinfo string, options *redis.UniversalOptions) error {
	user, password, _ := strings.Cut(userinfo, ":")
	var err error
	if options.Username, err = url.PathUnescape(user); err != nil {
		return errors.New("the user has a broken percent escape")
	}
	if options.Password, err = url.PathUnescape(password); err != nil {
		return errors.New("the password has a broken percent escape")
	}
	return nil
}

func parseHosts(hosts, defaultPort string) ([]string, error) {
	var addrs []string
	for i, host := range strings.Split(hosts, ",") {
		name, port, err := net.SplitHostPort(host)
		if err != nil { // perhaps the port is missing
			name, port, err = net.SplitHostPort(host + ":" + defaultPort)
		}
		// Errors do not quote the address, which is the password if @host was forgotten.
		if err != nil || name == "" {
			return nil, fmt.Errorf("address %d is not host or host:port", i+1)
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, fmt.Errorf("address %d has no valid port", i+1)
		}
		addrs = append(addrs, net.JoinHostPort(name, port))
	}
	return addrs, nil
}

func parseQuery(query string, sentinel bool, options *redis.UniversalOptions) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("the part after ? has a broken percent escape")
	}
	for name, value := range values {
		switch {
		case len(value) != 1:
			return fmt.Errorf("%s is given twice", name)
		case name == "sentinel_user" && sentinel:
			options.SentinelUsername = value[0]
		case name == "sentinel_password" && sentinel:
			options.SentinelPassword = value[0]
		case name == "cluster" && !sentinel && slices.Contains([]string{"true", "false"}, value[0]):
			options.IsClusterMode = value[0] == "true"
		default:
			return fmt.Errorf("%s is not a setting here, or has no such value", name)
		}
	}
	return nil
}

func parsePath(path string, sentinel bool, options *redis.UniversalOptions) error {
	database := path
	if sentinel {
		options.MasterName, database, _ = strings.Cut(path, "/")
		if options.MasterName == "" {
			return errors.New("sentinels need the master's name: redis+sentinel://host/name")
		}
	}
	if database == "" {
		return nil
	}
	n, err := strconv.Atoi(database)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is not a database number", database)
	}
	if n != 0 && !sentinel && (len(options.Addrs) > 1 || options.IsClusterMode) {
		return errors.New("redis cluster has no database but 0")
	}
	options.DB = n
	return nil
}
