package config

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (p *parser) run(binary string, answer io.Writer) (*cobra.Command, error) {
	root := p.newCommand(Command(binary), binary)
	for _, c := range everyCommand {
		if name, ok := strings.CutPrefix(string(c), binary+" "); ok {
			root.AddCommand(p.newCommand(c, name))
		}
	}
	if root.HasSubCommands() {
		root.TraverseChildren = true // a flag before the command is unknown
		root.SuggestionsMinimumDistance = 2
		root.RunE = func(cmd *cobra.Command, args []string) error {
			if printVersion(cmd) {
				return nil
			}
			if len(args) == 0 {
				return fmt.Errorf("%s needs a command: %s", binary, names(root))
			}
			suggested := ""
			if near := root.SuggestionsFor(args[0]); len(near) > 0 {
				suggested = "; did you mean " + strings.Join(near, " or ") + "?"
			}
			return fmt.Errorf("%s has no command %q%s; it has %s", binary, args[0], suggested, names(root))
		}
	}
	root.SetFlagErrorFunc(p.unknownFlag)
	root.SetOut(answer)
	root.SetErr(io.Discard) // messages of shell completion for its developers
	root.SetArgs(p.args)
	cmd, err := root.ExecuteC()
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) { // before the command; pflag's message would contain the value
		err = fmt.Errorf("%s: %s has no such option", typed(unknown), binary)
	}
	return cmd, err
}

func names(root *cobra.Command) string {
	var names []string
	for _, cmd := range root.Commands() {
		names = append(names, cmd.Name())
	}
	return strings.Join(names, ", ")
}

// newCommand defines the flags of all commands, so that a flag of another command is told apart from a misspelt
// one.
func (p *parser) newCommand(c Command, use string) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: summaries[c], Args: cobra.ArbitraryArgs, SilenceUsage: true, SilenceErrors: true,
		RunE:              func(cmd *cobra.Command, _ []string) error { printVersion(cmd); return nil },
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().Bool("version", false, "")
	if cmd.Short == "" {
		return cmd
	}
	cmd.SetUsageFunc(p.usage)
	for _, o := range p.options {
		normal, must := o.defaultFor(c)
		help := o.help
		if must {
			help += " (required)"
		}
		if o.env() != "" {
			help += " [" + o.env() + "]"
		}
		flag := cmd.Flags().VarPF(flagValue{p, o, normal}, o.name, o.letter, help)
		flag.Hidden = !o.takenBy(c)
		if o.value.kind == toggleKind {
			flag.NoOptDefVal = "true"
		}
		if choices := strings.Split(o.value.kind, "|"); len(choices) > 1 {
			complete := cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp)
			if err := cmd.RegisterFlagCompletionFunc(o.name, complete); err != nil {
				panic(err) // two options with one name
			}
		}
	}
	return cmd
}

// printVersion reports whether --version was given. Cobra's own flag needs a template: text/template calls methods by
// name, so that the linker keeps every exported method, and api grows by half.
func printVersion(cmd *cobra.Command) bool {
	asked, err := cmd.Flags().GetBool("version")
	if err != nil || !asked {
		return false
	}
	cmd.Print(versionLine(cmd.Root().Name()))
	return true
}

type flagValue struct {
	parser *parser
	option option
	normal string
}

func (v flagValue) String() string { return v.normal }
func (v flagValue) Type() string   { return v.option.value.kind }
func (v flagValue) Set(text string) error {
	v.parser.flags = append(v.parser.flags, setting{v.option, text, "--" + v.option.name})
	return nil
}

// unknownFlag reports each unknown flag, unless help is asked for.
func (p *parser) unknownFlag(cmd *cobra.Command, err error) error {
	p.command = Command(cmd.CommandPath())
	_, args, _ := cmd.Root().Traverse(p.args)
	switch {
	case slices.Contains(args, "--help") || slices.Contains(args, "-h"):
		return pflag.ErrHelp
	case slices.Contains(args, "--version"):
		cmd.Print(versionLine(cmd.Root().Name()))
		return nil
	}
	var unknown *pflag.NotExistError
	for errors.As(err, &unknown) {
		flag := typed(unknown)
		p.complain("%s: %s has no such option%s", flag, p.command, p.suggest(flag, option.flag))
		if unknown.GetSpecifiedShortnames() != "" { // the position of the next flag is unknown
			return nil
		}
		p.flags = nil
		cmd.Flags().VarPF(flagValue{parser: &parser{}}, unknown.GetSpecifiedName(), "", "").NoOptDefVal = "ignored"
		err = cmd.Flags().Parse(args)
	}
	if err != nil {
		p.complain("%w", err)
	}
	return nil
}

// typed returns an unknown flag without its value, which may be a secret.
func typed(unknown *pflag.NotExistError) string {
	if letters, _, _ := strings.Cut(unknown.GetSpecifiedShortnames(), "="); letters != "" {
		return "-" + letters
	}
	return "--" + unknown.GetSpecifiedName()
}

func (p *parser) usage(cmd *cobra.Command) error {
	cmd.Printf("Usage: %s\n\nA variable in brackets can be set instead of its flag; the flag wins.\n", cmd.UseLine())
	for i, o := range p.options {
		if i > 0 && o.group == p.options[i-1].group {
			continue
		}
		flags := pflag.NewFlagSet(o.group, pflag.ContinueOnError)
		flags.SortFlags = false
		for _, other := range p.options {
			if other.group == o.group {
				flags.AddFlag(cmd.Flags().Lookup(other.name))
			}
		}
		if flags.HasAvailableFlags() {
			cmd.Printf("\n%s:\n%s", o.group, flags.FlagUsagesWrapped(helpWidth))
		}
	}
	cmd.Println("\n  -h, --help, --version\n        Print this, or which version it is.")
	return nil
}

const helpWidth = 100
