package config

import (
	"flag"
	"fmt"
	"os"
	"slices"
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

func markdown() string {
	var b strings.Builder
	group := ""
	for _, o := range new(Config).options() {
		if o.group == arguments || o.valueOf != "" {
			continue // arguments belong to one command and are in its help; files stand in the row of their option
		}
		if o.group != group {
			group = o.group
			fmt.Fprintf(&b, "\n## %s\n\n| option | meaning |\n| --- | --- |\n", group)
		}
		names := fmt.Sprintf("`%s`<br>`%s`", o.flag(), o.env())
		if o.value.secret {
			names += fmt.Sprintf("<br>`%s`", envName(o.name+fileSuffix))
		}
		fmt.Fprintf(&b, "| %s | %s%s%s |\n", names, takers(o), o.help, defaults(o))
	}
	return b.String() + "\n"
}

func defaults(o option) string {
	if o.normal == required {
		return " Required."
	}
	if o.normal == "" {
		return ""
	}
	text := " Default: `" + o.normal + "`"
	for _, c := range everyCommand {
		if special, ok := o.normalFor[c]; ok {
			text += fmt.Sprintf("; `%s`: `%s`", c, special)
		}
	}
	return text + "."
}

func takers(o option) string {
	if len(o.takers) == len(everyCommand) {
		return ""
	}
	var names []string
	for _, c := range o.takers {
		if c != SluiceDev || len(o.takers) == 1 {
			names = append(names, "`"+string(c)+"`")
		}
	}
	if slices.Equal(names, []string{"`api`", "`admin serve`"}) {
		return ""
	}
	return strings.Join(names, ", ") + ": "
}
