package config

import (
	"fmt"
	"strings"
)

// binaryHelp is the help of a binary with several commands.
func binaryHelp(binary string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s <command> [flags]\n\nCommands\n", binary)
	for _, name := range commandsOf(binary) {
		fmt.Fprintf(&b, "  %-15s%s\n", name, Command(binary+" "+name).summary())
	}
	fmt.Fprintf(&b, "\nRun \"%s <command> --help\" for the flags of a command, \"%s --version\" for its version.\n",
		binary, binary)
	return b.String()
}

// commandHelp is the help of one command.
func commandHelp(command Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s [flags]\n\n%s\n\n", command, command.summary())
	b.WriteString("What is named beside a flag may be set in the environment instead; the flag wins.\n")
	group := ""
	for i := range options {
		o := &options[i]
		if !o.takenBy(command) {
			continue
		}
		if o.group != group {
			group = o.group
			fmt.Fprintf(&b, "\n%s\n", group)
		}
		fmt.Fprintf(&b, "  %s%s\n", o.usage(), o.particulars(command))
		for line := range strings.Lines(wrap(o.help, 80)) {
			b.WriteString("        " + line)
		}
		b.WriteByte('\n')
	}
	b.WriteString("\n  --help, --version\n        Print this, or which version it is.\n")
	return b.String()
}

// usage is how the flag is typed.
func (o *option) usage() string {
	usage := o.flag()
	if o.short != "" {
		usage = "-" + o.short + ", " + usage
	}
	if p := o.value(&Config{}).placeholder(); p != "" {
		usage += " " + p
	}
	return usage
}

// particulars are what a reader looks for first: the variable, and what holds if nothing is given.
func (o *option) particulars(command Command) string {
	var words []string
	if name := o.env(); name != "" {
		words = append(words, name)
	}
	switch text := o.defaultFor(command); {
	case o.requiredFor(command):
		words = append(words, "required")
	case text != "" && text != "false":
		words = append(words, "default "+text)
	}
	if len(words) == 0 {
		return ""
	}
	return "   [" + strings.Join(words, ", ") + "]"
}

// wrap breaks a text between words into lines of at most so many bytes, where words allow.
func wrap(text string, width int) string {
	var b strings.Builder
	length := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case length+1+len(word) > width:
			b.WriteByte('\n')
			length = 0
		default:
			b.WriteByte(' ')
			length++
		}
		b.WriteString(word)
		length += len(word)
	}
	return b.String()
}
