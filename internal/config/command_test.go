package config

import (
	"strings"
	"testing"
)

func TestChoosingACommand(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		line string
		want string // the whole error
	}{
		"none":                  {"sluice", "sluice needs a command: dev"},
		"an unknown one":        {"admin explode", `admin has no command "explode"; it has serve, migrate, create-admin, set-password, create-tenant, create-key, set-enforcement, apply, export`},
		"a misspelt one":        {"admin migrat", `admin has no command "migrat"; did you mean migrate?; it has serve, migrate, create-admin, set-password, create-tenant, create-key, set-enforcement, apply, export`},
		"a flag in front of it": {"sluice --data-dir x dev", "the command comes before --data-dir: dev"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			words := strings.Fields(test.line)
			if _, err := Parse(words[0], words[1:], nil); err == nil || err.Error() != test.want {
				t.Errorf("error %q, want %q", err, test.want)
			}
		})
	}
}

func TestHelpAndVersionAreAnsweredWhateverElseIsWrong(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ line, want string }{
		"help of a binary with commands":    {"admin --help", "  create-tenant  Create a tenant.\n"},
		"help of a command":                 {"admin apply --nonsense -h", "  -f, --file FILE   [required]\n        The file to read; - is standard input.\n"},
		"help names variables and defaults": {"api --help", "  --check-addr HOST:PORT   [SLUICE_CHECK_ADDR, default :8080]\n"},
		"help has the command's defaults":   {"sluice dev --help", "  --check-addr HOST:PORT   [SLUICE_CHECK_ADDR, default 127.0.0.1:8080]\n"},
		"version of a binary":               {"api --version", "api devel"},
		"version of a binary with commands": {"admin --version", "admin devel"},
		"version behind a command":          {"sluice dev --version", "sluice devel"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			words := strings.Fields(test.line)
			c := mustParse(t, words[0], words[1:], "SLUICE_NONSENSE=1")
			if !strings.Contains(c.Answer, test.want) {
				t.Errorf("the answer does not contain %q:\n%s", test.want, c.Answer)
			}
		})
	}
}

func TestHelpShowsNoOptionOfOtherCommands(t *testing.T) {
	t.Parallel()
	if answer := mustParse(t, "api", []string{"--help"}).Answer; strings.Contains(answer, "--admin-addr") {
		t.Errorf("help of api:\n%s", answer)
	}
}

func TestHelpFitsATerminal(t *testing.T) {
	t.Parallel()
	for _, command := range everyCommand {
		for line := range strings.Lines(commandHelp(command)) {
			if len(line) > 100 {
				t.Errorf("%s: %d columns: %s", command, len(line), line)
			}
		}
	}
}
