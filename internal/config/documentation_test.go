package config

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of options into docs/configuration.md")

const (
	documentation = "../../docs/configuration.md"
	tableBegin    = "<!-- options: written by make generate -->\n"
	tableEnd      = "<!-- end of options -->\n"
)

func TestDocumentationHasTheTableOfOptions(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(documentation)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(page), tableBegin)
	_, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		t.Fatalf("%s has lost the marks around its table", documentation)
	}
	want := before + tableBegin + markdown() + tableEnd + after
	if want == string(page) {
		return
	}
	if !*update {
		t.Fatalf("%s differs from the table of options; make generate writes it", documentation)
	}
	if err := os.WriteFile(documentation, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// markdown is the table of options as the documentation shows it.
func markdown() string {
	var b strings.Builder
	group := ""
	for _, o := range new(Config).options() {
		if o.group == arguments {
			continue // each belongs to one command, whose help has it
		}
		if o.group != group {
			group = o.group
			fmt.Fprintf(&b, "\n## %s\n\n| option | default | taken by | meaning |\n| --- | --- | --- | --- |\n", group)
		}
		fmt.Fprintf(&b, "| `%s`<br>`%s` | %s | %s | %s |\n", o.flag(), o.env(), defaults(o), takers(o), o.help)
	}
	return b.String() + "\n"
}

// defaults lists the option's defaults, each with the commands that have another than most.
func defaults(o option) string {
	if o.normal == required {
		return "required"
	}
	if o.normal == "" {
		return ""
	}
	text := "`" + o.normal + "`"
	for _, c := range everyCommand {
		if special, ok := o.normalFor[c]; ok {
			text += fmt.Sprintf("; `%s`: `%s`", c, special)
		}
	}
	return text
}

func takers(o option) string {
	if len(o.takers) == len(everyCommand) {
		return "all"
	}
	var names []string
	for _, c := range o.takers {
		names = append(names, "`"+string(c)+"`")
	}
	return strings.Join(names, ", ")
}
