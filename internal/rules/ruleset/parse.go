package ruleset

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

func (d *decoder) parse(data []byte) *yaml.Node {
	documents := d.documents(data)
	if len(d.errs) > 0 {
		return nil
	}
	switch {
	case len(documents) == 0:
		d.fail(0, "", "the file must have plans, rules or overrides; it is empty")
		return nil
	case len(documents) > 1:
		d.fail(documents[1].Line, "", "the file must be one document: here begins a second")
		return nil
	}
	root := documents[0].Content[0]
	if d.refuseAliases(root, ""); len(d.errs) > 0 {
		return nil
	}
	return root
}

func (d *decoder) documents(data []byte) (all []*yaml.Node) {
	if len(data) > maxSize {
		d.fail(0, "", fmt.Sprintf("the file must be at most %d bytes long", maxSize))
		return nil
	}
	if n := values(data); n > maxValues {
		d.fail(0, "", fmt.Sprintf("the file must have at most %d lines, commas and opening brackets together, got %d",
			maxValues, n))
		return nil
	}
	if line := badLine(data); line > 0 {
		d.fail(line, "", "the line must be valid UTF-8 without control characters")
		return nil
	}
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var document yaml.Node
		switch err := decoder.Decode(&document); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			d.failSyntax(err)
			return nil
		}
		all = append(all, &document)
	}
}

var syntaxError = regexp.MustCompile(`(?s)^yaml: (?:line (\d+): )?(.*)$`)

func (d *decoder) failSyntax(err error) {
	line, message := 0, err.Error()
	if parts := syntaxError.FindStringSubmatch(message); parts != nil {
		line, _ = strconv.Atoi(parts[1]) // 0 without a line
		message = parts[2]
	}
	d.fail(line, "", "the file must be YAML: "+message)
}

// values counts the characters after which a value can begin, because the parser allocates about 200 bytes for each.
func values(data []byte) (n int) {
	for _, b := range data {
		switch b {
		case '\n', ',', '[', '{':
			n++
		}
	}
	return n
}

// badLine finds the line that the parser would refuse without a number.
func badLine(data []byte) int {
	for i, line := range bytes.Split(data, []byte("\n")) {
		if !utf8.Valid(line) || bytes.ContainsFunc(line, isControl) {
			return i + 1
		}
	}
	return 0
}

func isControl(r rune) bool {
	return r < ' ' && r != '\t' && r != '\r' || r >= 0x7f && r < 0xa0 && r != 0x85
}

// refuseAliases: a small file could expand without bound by them.
func (d *decoder) refuseAliases(node *yaml.Node, path string) {
	if node.Kind == yaml.AliasNode || node.Anchor != "" {
		d.fail(node.Line, path, "must be written out: anchors and aliases are not read")
	}
	for i, child := range node.Content {
		if d.isFull() {
			return
		}
		switch {
		case node.Kind == yaml.SequenceNode:
			d.refuseAliases(child, at(path, i))
		case i%2 == 1:
			d.refuseAliases(child, strings.TrimPrefix(path+"."+node.Content[i-1].Value, "."))
		default:
			d.refuseAliases(child, path)
		}
	}
}
