package config

import (
	"slices"
	"strings"
	"testing"
)

func TestChoosingACommand(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		line string
		want string // the problem
	}{
		"none": {"sluice", `sluice needs a command: completion, dev, help`},
		"an unknown one": {
			"admin explode",
			`admin has no command "explode"; it has apply, completion, create-admin, create-key, create-service-key, create-tenant, export, help, import-envoy, migrate, remove-factor, remove-tenant, replay, restore-tenant, serve, set-enforcement, set-password, sign-in-link`,
		},
		"a misspelt one": {
			"admin migrat",
			`admin has no command "migrat"; did you mean migrate?; it has apply, completion, create-admin, create-key, create-service-key, create-tenant, export, help, import-envoy, migrate, remove-factor, remove-tenant, replay, restore-tenant, serve, set-enforcement, set-password, sign-in-link`,
		},
		"one with a wrong letter": {
			"admin aply",
			`admin has no command "aply"; did you mean apply?; it has apply, completion, create-admin, create-key, create-service-key, create-tenant, export, help, import-envoy, migrate, remove-factor, remove-tenant, replay, restore-tenant, serve, set-enforcement, set-password, sign-in-link`,
		},
		"a flag in front of it": {"sluice --data-dir x dev", `--data-dir: sluice has no such option`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			words := strings.Fields(test.line)
			_, err := Parse(words[0], words[1:], nil)
			assertProblems(t, err, []string{test.want})
		})
	}
}

func TestHelpAndVersionAreAnsweredWhateverElseIsWrong(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ line, want string }{
		"help of a binary with commands": {"admin --help", "  create-tenant      Create a tenant.\n"},
		"help of a command": {
			"admin apply --nonsense -h",
			"  -f, --file FILE     The file to read; - is standard input. (required)\n",
		},
		"help names variables and defaults": {
			"api --help",
			"--check-addr HOST:PORT      Where checks are answered. [SLUICE_CHECK_ADDR] (default :8080)\n",
		},
		"help has the command's defaults":   {"sluice dev --help", " 127.0.0.1:8080)\n"},
		"version of a binary":               {"api --version", "api devel"},
		"version of a binary with commands": {"admin --version", "admin devel"},
		"version behind a command":          {"sluice dev --version", "sluice devel"},
		"help behind letters":               {"api -xyz --help", "Usage: api [flags]"},
		"version behind an unknown flag":    {"api --nonsense --version", "api devel"},
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
		words := append(strings.Fields(string(command)), "--help")
		for line := range strings.Lines(mustParse(t, words[0], words[1:]).Answer) {
			if len(line) > 100 {
				t.Errorf("%s: %d columns: %s", command, len(line), line)
			}
		}
	}
}

func TestShellsCompleteCommandsFlagsAndChoices(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		binary string
		line   []string
		want   string // a line of the completion
	}{
		"a script for bash": {"admin", []string{"completion", "bash"}, "# bash completion V2 for admin"},
		"a script for zsh":  {"sluice", []string{"completion", "zsh"}, "#compdef sluice"},
		"a script for fish": {"api", []string{"completion", "fish"}, "# fish completion for api"},
		"a command": {
			"admin",
			[]string{"__complete", "exp"},
			"export\tPrint a tenant's plans, rules and overrides as such a file.",
		},
		"a flag": {
			"admin",
			[]string{"__complete", "apply", "--pr"},
			"--prune\tRemove the plans, rules and overrides that the file does not name.",
		},
		"a flag of the one command": {
			"api",
			[]string{"__complete", "--check-a"},
			"--check-addr\tWhere checks are answered. [SLUICE_CHECK_ADDR]",
		},
		"one of several words":       {"api", []string{"__complete", "--log-format", "j"}, "json"},
		"no flag of another command": {"api", []string{"__complete", "--pru"}, ":4"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := mustParse(t, test.binary, test.line).Answer
			if !slices.ContainsFunc(strings.Split(answer, "\n"),
				func(line string) bool { return strings.HasPrefix(line, test.want) }) {
				t.Errorf("%q is not in:\n%s", test.want, answer)
			}
			if test.want == ":4" && !strings.HasPrefix(answer, test.want) {
				t.Errorf("offered something:\n%s", answer)
			}
		})
	}
}
