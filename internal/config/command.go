package config

import (
	"fmt"
	"slices"
	"strings"
)

// Command is what a process was started to do: the name of its binary and, where that has several,
// the command's.
type Command string

// The commands.
const (
	API               Command = "api"
	AdminServe        Command = "admin serve"
	AdminMigrate      Command = "admin migrate"
	AdminCreateAdmin  Command = "admin create-admin"
	AdminSetPassword  Command = "admin set-password"
	AdminCreateTenant Command = "admin create-tenant"
	AdminCreateKey    Command = "admin create-key"
	AdminEnforcement  Command = "admin set-enforcement"
	AdminApply        Command = "admin apply"
	AdminExport       Command = "admin export"
	SluiceDev         Command = "sluice dev"
)

// commands says what each does, in the order in which help lists them.
var commands = []struct {
	name    Command
	summary string
}{
	{API, "Answer checks."},
	{AdminServe, "Answer the admin API and show the web UI."},
	{AdminMigrate, "Bring the database schema up to this binary's."},
	{AdminCreateAdmin, "Make an account a platform admin, with a new password that it asks for."},
	{AdminSetPassword, "Give an account a new password that it asks for, and sign it out everywhere."},
	{AdminCreateTenant, "Create a tenant."},
	{AdminCreateKey, "Create an API key of a tenant and print it. It is shown only this once."},
	{AdminEnforcement, "Put a tenant in shadow, where its rules deny nothing, or back to on."},
	{AdminApply, "Make a tenant's plans, rules and overrides those of a file."},
	{AdminExport, "Print a tenant's plans, rules and overrides as such a file."},
	{SluiceDev, "Run everything in one process, with a private database, on loopback only."},
}

// summary says what the command does.
func (c Command) summary() string {
	for _, known := range commands {
		if known.name == c {
			return known.summary
		}
	}
	return ""
}

// Serves says whether the command runs until it is told to stop.
func (c Command) Serves() bool { return c == API || c == AdminServe || c == SluiceDev }

// commandsOf returns what may follow the name of a binary, or nothing if it does one thing only.
func commandsOf(binary string) []string {
	var names []string
	for _, known := range commands {
		if name, ok := strings.CutPrefix(string(known.name), binary+" "); ok {
			names = append(names, name)
		}
	}
	return names
}

// chooseCommand takes the command from the arguments. Its answer is the text of a help or version
// that was asked for instead of a command.
func chooseCommand(binary string, args []string) (command Command, rest []string, answer string, err error) {
	names := commandsOf(binary)
	if len(names) == 0 {
		return Command(binary), args, "", nil
	}
	if len(args) == 0 {
		return "", nil, "", fmt.Errorf("%s needs a command: %s", binary, strings.Join(names, ", "))
	}
	switch first := args[0]; {
	case isHelp(first):
		return "", nil, binaryHelp(binary), nil
	case first == "--version":
		return "", nil, versionLine(binary), nil
	case strings.HasPrefix(first, "-"):
		return "", nil, "", fmt.Errorf("the command comes before %s: %s", first, strings.Join(names, ", "))
	case slices.Contains(names, first):
		return Command(binary + " " + first), args[1:], "", nil
	default:
		return "", nil, "", fmt.Errorf("%s has no command %q%s; it has %s",
			binary, first, suggestion(first, names), strings.Join(names, ", "))
	}
}

func isHelp(arg string) bool { return arg == "--help" || arg == "-help" || arg == "-h" }
