package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Parse reads the configuration of a process: binary is "api", "admin" or "sluice", args are what
// follows the program's name, and environ is in the form of os.Environ. The error lists every
// problem, one a line.
func Parse(binary string, args, environ []string) (Config, error) {
	command, args, answer, err := chooseCommand(binary, args)
	if err != nil || answer != "" {
		return Config{Answer: answer}, err
	}
	for _, arg := range args {
		switch {
		case isHelp(arg):
			return Config{Command: command, Answer: commandHelp(command)}, nil
		case arg == "--version":
			return Config{Command: command, Answer: versionLine(binary)}, nil
		}
	}

	p := parser{command: command, given: map[string]setting{}}
	p.readEnvironment(environ)
	p.readFlags(args)
	config := p.settle()
	if len(p.problems) == 0 {
		p.problems = contradictions(&config, p.given)
	}
	if len(p.problems) > 0 {
		p.complain("run \"%s --help\" to see every option", command)
		return Config{}, errors.Join(p.problems...)
	}
	return config, nil
}

// setting is the text that was given for an option.
type setting struct {
	text string
	from string // the flag or variable that gave it, as typed
}

// parser collects settings and problems.
type parser struct {
	command  Command
	given    map[string]setting // by the option's name
	problems []error
}

func (p *parser) complain(format string, args ...any) {
	p.problems = append(p.problems, fmt.Errorf(format, args...))
}

// readEnvironment takes over the variables that the command knows.
func (p *parser) readEnvironment(environ []string) {
	environ = slices.Clone(environ)
	slices.Sort(environ) // so that problems come in the same order always
	for _, variable := range environ {
		name, text, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, envPrefix) || fromKubernetes(name, text) {
			continue
		}
		i := slices.IndexFunc(options, func(o option) bool { return o.env() == name })
		if i < 0 {
			p.complain("%s: there is no such option%s", name, suggestion(name, environmentNames(p.command)))
			continue
		}
		if text != "" && options[i].takenBy(p.command) {
			p.given[options[i].name] = setting{text, name}
		}
	}
}

// kubernetesName matches the variables that Kubernetes puts into every container for a Service
// whose name begins with sluice.
var kubernetesName = regexp.MustCompile(
	`^SLUICE_(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// fromKubernetes says whether nobody typed a variable. Of the plain …_PORT only the value tells it
// from a misspelt option: tcp://10.0.0.1:80.
func fromKubernetes(name, text string) bool {
	return kubernetesName.MatchString(name) &&
		(!strings.HasSuffix(name, "_PORT") || strings.HasSuffix(name, "_SERVICE_PORT") || strings.Contains(text, "://"))
}

// readFlags takes over the arguments, over what the environment gave.
func (p *parser) readFlags(args []string) {
	seen := map[string]bool{}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if !strings.HasPrefix(arg, "-") || arg == "-" {
			p.complain("unexpected argument %q", arg)
			continue
		}
		typed, text, hasText := strings.Cut(arg, "=")
		o := p.optionOf(typed)
		if o == nil {
			// What follows is its value, if it looks like one; complaining about it too would only
			// hide the one problem.
			if !hasText && len(args) > 0 && !strings.HasPrefix(args[0], "-") {
				args = args[1:]
			}
			continue
		}
		_, isToggle := o.value(&Config{}).(toggle)
		switch {
		case hasText:
		case isToggle:
			text = "true"
		case len(args) == 0 || strings.HasPrefix(args[0], "--"):
			p.complain("%s needs a value: %s %s", typed, typed, o.value(&Config{}).placeholder())
			continue
		default:
			text, args = args[0], args[1:]
		}
		if seen[o.name] {
			p.complain("%s is given twice", o.flag())
		}
		seen[o.name] = true
		p.given[o.name] = setting{text, typed}
	}
}

// optionOf finds the option of a flag as typed, or complains that the command has none.
func (p *parser) optionOf(typed string) *option {
	var flags []string // of this command
	for i := range options {
		o := &options[i]
		isIt := typed == o.flag() || (o.short != "" && typed == "-"+o.short)
		switch {
		case o.takenBy(p.command) && isIt:
			return o
		case o.takenBy(p.command):
			flags = append(flags, o.flag())
		case isIt:
			p.complain("%s is not an option of %s, but of %s", typed, p.command, list(o.takers))
			return nil
		}
	}
	p.complain("%s: %s has no such option%s", typed, p.command, suggestion(typed, flags))
	return nil
}

// settle turns the settings into a Config.
func (p *parser) settle() Config {
	config := Config{Command: p.command}
	for i := range options {
		o := &options[i]
		if !o.takenBy(p.command) {
			continue
		}
		given, v := p.given[o.name], o.value(&config)
		switch {
		case given.text != "":
			if err := v.set(given.text); err != nil {
				if _, secret := v.(connURL); secret {
					p.complain("%s is not %w", given.from, err)
				} else {
					p.complain("%s: %q is not %w", given.from, given.text, err)
				}
			}
		case o.defaultFor(p.command) != "":
			if err := v.set(o.defaultFor(p.command)); err != nil {
				p.complain("%s: the default is not %w", o.flag(), err)
			}
		case o.requiredFor(p.command):
			p.complain("%s is required by %s%s", o.flag(), p.command, orVariable(o))
		}
	}
	return config
}

func orVariable(o *option) string {
	if o.argument {
		return ""
	}
	return "; it can also be given as " + o.env()
}

func environmentNames(c Command) []string {
	var names []string
	for i := range options {
		if name := options[i].env(); name != "" && options[i].takenBy(c) {
			names = append(names, name)
		}
	}
	return names
}

// list writes commands as people do: a, b and c.
func list(commands []Command) string {
	words := make([]string, len(commands))
	for i, c := range commands {
		words[i] = string(c)
	}
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
