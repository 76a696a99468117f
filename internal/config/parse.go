package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// Parse reads the configuration of a process: binary is "api", "admin" or "sluice", args excludes the program's name,
// and environ has the form of os.Environ. The error has one line for each problem.
func Parse(binary string, args, environ []string) (Config, error) {
	var c Config
	p := parser{options: c.options(), args: args}
	var answer bytes.Buffer
	cmd, err := p.run(binary, &answer)
	c.Command = Command(cmd.CommandPath())
	if err == nil && answer.Len() > 0 {
		return Config{Command: c.Command, Answer: answer.String()}, nil
	}
	if err != nil {
		p.problems = []error{err}
	} else {
		p.command = c.Command
		p.assign(environ)
		if cmd.Flags().NArg() > 0 && len(p.problems) == 0 { // otherwise it may be the value of an invalid flag
			p.complain("unexpected argument %q", cmd.Flags().Arg(0))
		}
		if len(p.problems) == 0 {
			p.contradictions(&c)
			p.putPasswords(&c)
		}
	}
	if len(p.problems) > 0 {
		p.complain("run \"%s --help\" to see every option", c.Command)
		return Config{}, errors.Join(p.problems...)
	}
	return c, nil
}

type parser struct {
	options  []option
	args     []string
	command  Command
	flags    []setting          // in their order
	given    map[string]setting // flags and variables, by option
	problems []error
}

type setting struct {
	option option
	text   string
	from   string // its flag or variable
}

func (p *parser) complain(format string, args ...any) {
	p.problems = append(p.problems, fmt.Errorf(format, args...))
}

func (p *parser) readEnvironment(environ []string) {
	for _, variable := range slices.Sorted(slices.Values(environ)) {
		name, text, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, envPrefix) || fromKubernetes(name, text) {
			continue
		}
		i := slices.IndexFunc(p.options, func(o option) bool { return o.env() == name })
		if i < 0 {
			p.complain("%s: there is no such option%s", name, p.suggest(name, option.env))
		} else if o := p.options[i]; text != "" && o.takenBy(p.command) {
			p.given[o.name] = setting{o, text, name}
		}
	}
}

// kubernetesName matches the variables that Kubernetes sets in every container for a Service whose name begins
// with sluice.
var kubernetesName = regexp.MustCompile(
	`^SLUICE_(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// fromKubernetes tells a …_PORT from a misspelt option by the value: tcp://10.0.0.1:80.
func fromKubernetes(name, text string) bool {
	return kubernetesName.MatchString(name) &&
		(!strings.HasSuffix(name, "_PORT") || strings.HasSuffix(name, "_SERVICE_PORT") || strings.Contains(text, "://"))
}

func (p *parser) readFlags() {
	seen := map[string]bool{}
	for _, s := range p.flags {
		switch o := s.option; {
		case !o.takenBy(p.command):
			p.complain("%s is not an option of %s, but of %s", s.from, p.command, join(o.takers, " and "))
		case strings.HasPrefix(s.text, "--"):
			p.complain("%s needs a value: %s %s", s.from, s.from, o.value.kind)
		case seen[o.name] && slices.Contains(o.repeaters, p.command):
			s.text = p.given[o.name].text + "\x00" + s.text
			p.given[o.name] = s
		case seen[o.name]:
			p.complain("%s is given twice", s.from)
		default:
			p.given[o.name] = s
		}
		seen[s.option.name] = true
	}
}

func (p *parser) assign(environ []string) {
	unknownFlags := p.problems
	p.problems, p.given = nil, map[string]setting{}
	p.readEnvironment(environ)
	p.problems = append(p.problems, unknownFlags...)
	p.readFlags()
	for _, o := range p.options {
		if !o.takenBy(p.command) || o.valueOf != "" {
			continue
		}
		if o.value.secret && !p.readSecret(o) {
			continue
		}
		given := p.given[o.name]
		normal, must := o.defaultFor(p.command)
		text := cmp.Or(given.text, normal)
		switch {
		case text == "" && must && o.env() == "":
			p.complain("--%s is required by %s", o.name, p.command)
		case text == "" && must:
			p.complain("--%s is required by %s; it can also be given as %s, or in a file by %s", o.name, p.command,
				o.env(), o.env()+"_FILE")
		case text == "":
		default:
			err := o.value.set(text)
			if err != nil && o.value.secret {
				p.complain("%s is not %w", given.from, err)
			} else if err != nil {
				p.complain("%s: %q is not %w", given.from, text, err)
			}
		}
	}
}

func (p *parser) readSecret(o option) bool {
	file := p.given[o.name+fileSuffix]
	if file.text == "" {
		return true
	}
	if value := p.given[o.name]; value.text != "" {
		p.complain("%s and %s are two values of one option; leave one out", value.from, file.from)
		return false
	}
	secret, err := os.ReadFile(file.text)
	text := strings.TrimSuffix(strings.TrimSuffix(string(secret), "\n"), "\r")
	switch {
	case err != nil:
		p.complain("%s: %w", file.from, err)
	case text == "":
		p.complain("%s: %s is empty", file.from, file.text)
	case strings.ContainsAny(text, "\n\x00"):
		p.complain("%s: %s has more than one line", file.from, file.text)
	default:
		p.given[o.name] = setting{o, text, file.from}
		return true
	}
	return false
}

func (p *parser) suggest(wrong string, nameOf func(option) string) string {
	best, nearest := max(2, len(wrong)/3)+1, ""
	for _, o := range p.options {
		name := nameOf(o)
		if d := levenshtein.ComputeDistance(wrong, name); o.takenBy(p.command) && d < best {
			best, nearest = d, name
		}
	}
	if nearest == "" {
		return ""
	}
	return "; did you mean " + nearest + "?"
}
