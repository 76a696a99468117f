package config

import (
	"fmt"
	"net"
	"net/netip"
)

// contradictions returns what is wrong with options that are each right by themselves.
func contradictions(c *Config, given map[string]setting) []error {
	// named writes an option as it was given, and its value.
	named := func(name string) string {
		for i := range options {
			if o := &options[i]; o.name == name {
				if s, ok := given[name]; ok && s.text != "" {
					return s.from + " " + o.value(c).String()
				}
				return o.flag() + " " + o.value(c).String() + " (the default)"
			}
		}
		return name
	}
	var problems []error
	complain := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf(format, args...))
	}

	listeners := []struct{ name, addr string }{
		{"check-addr", c.CheckAddr}, {"admin-addr", c.AdminAddr}, {"metrics-addr", c.MetricsAddr},
	}
	for i, one := range listeners {
		for _, other := range listeners[i+1:] {
			if sameAddress(one.addr, other.addr) {
				complain("%s and %s are the same address; each listener needs its own",
					named(one.name), named(other.name))
			}
		}
		if c.Command == SluiceDev && !isLoopback(one.addr) {
			complain("%s is not a loopback address; everybody knows the demo credentials of %s, "+
				"so that it serves this machine only: use 127.0.0.1, [::1] or localhost",
				named(one.name), c.Command)
		}
	}
	if c.RereadInterval < c.PollInterval {
		complain("%s is shorter than %s; every reading of all rules is also a poll",
			named("reread-interval"), named("poll-interval"))
	}
	if c.ShutdownTimeout < c.StoreBudget {
		complain("%s is shorter than %s, which a check in flight may need",
			named("shutdown-timeout"), named("store-budget"))
	}
	return problems
}

// sameAddress says whether both cannot be listened on at once: the port is the same, and so are
// the hosts, or one of them is every host. Port 0 is a free port, another one each time.
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
