package ruleset

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

func (e *envoy) read(file File) {
	e.file = file.Name
	if e.valuesLeft < 0 {
		return
	}
	before := len(e.errs)
	for _, document := range e.documents(file.Data) {
		if root := e.expand(document.Content[0], 1); !isNull(root) && len(e.errs) == before {
			dropNulls(root)
			e.document(root)
		}
	}
	slices.SortStableFunc(e.errs[before:], func(a, b Error) int { return a.Line - b.Line })
}

const (
	maxDepth = 100
	// valueLength is the bytes of text that cost as much as a value.
	valueLength = 32
)

func (e *envoy) charge(line, n int) bool {
	if e.valuesLeft < 0 {
		return false
	}
	if e.valuesLeft -= n; e.valuesLeft < 0 {
		e.fail(line, "", fmt.Sprintf("the files must have at most %d values together, with what aliases repeat",
			maxValues))
	}
	return e.valuesLeft >= 0
}

// expand returns a copy without aliases and merge keys; nulls stay, because they override merged values.
func (e *envoy) expand(node *yaml.Node, depth int) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	expanded := *node
	expanded.Content = nil
	if depth > maxDepth && e.valuesLeft >= 0 {
		e.fail(node.Line, "", fmt.Sprintf("values must be nested at most %d deep", maxDepth))
		e.valuesLeft = -1
	}
	if !e.charge(node.Line, 1+len(node.Value)/valueLength) {
		return &expanded
	}
	if node.Kind != yaml.MappingNode {
		for i := 0; i < len(node.Content) && e.valuesLeft >= 0; i++ {
			expanded.Content = append(expanded.Content, e.expand(node.Content[i], depth+1))
		}
		return &expanded
	}
	var merged []*yaml.Node
	has := map[string]bool{}
	for i := 0; i+1 < len(node.Content) && e.valuesLeft >= 0; i += 2 {
		key, value := node.Content[i], e.expand(node.Content[i+1], depth+1)
		switch {
		case key.ShortTag() != "!!merge":
			expanded.Content = append(expanded.Content, key, value)
			has[key.Value] = true
		case value.Kind == yaml.SequenceNode:
			merged = append(merged, value.Content...)
		default:
			merged = append(merged, value)
		}
	}
	for _, from := range merged {
		if from.Kind != yaml.MappingNode && !isNull(from) {
			e.fail(from.Line, "", "<< must merge a mapping, got "+kindOf(from))
		}
		for i := 0; from.Kind == yaml.MappingNode && i+1 < len(from.Content); i += 2 {
			if key := from.Content[i]; !has[key.Value] {
				expanded.Content = append(expanded.Content, key, from.Content[i+1])
				has[key.Value] = true
			}
		}
	}
	return &expanded
}

func isNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" }

func dropNulls(node *yaml.Node) {
	step := 1
	if node.Kind == yaml.MappingNode {
		step = 2
	}
	var kept []*yaml.Node
	for i := 0; i+step <= len(node.Content); i += step {
		if value := node.Content[i+step-1]; !isNull(value) {
			dropNulls(value)
			kept = append(kept, node.Content[i:i+step]...)
		}
	}
	node.Content = kept
}

func valueOf(node *yaml.Node, name string) *yaml.Node {
	for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i+1]
		}
	}
	return nil
}

func (e *envoy) document(root *yaml.Node) {
	kind := valueOf(root, "kind")
	switch {
	case kind == nil || valueOf(root, "apiVersion") == nil:
		e.root(root)
	case kind.Value == "ConfigMap":
		e.configMap(root)
	case kind.Value == "List":
		if items := valueOf(root, "items"); items != nil {
			for _, item := range items.Content {
				e.document(item)
			}
		}
	default:
		e.note(kind.Line, "kind", "is not read: only a ConfigMap has a configuration")
	}
}

func (e *envoy) configMap(root *yaml.Node) {
	if binary := valueOf(root, "binaryData"); binary != nil {
		e.note(binary.Line, "binaryData", "is not read: a configuration must be text in data")
	}
	data := valueOf(root, "data")
	if data == nil || data.Kind != yaml.MappingNode {
		return
	}
	outer := e.file
	for i := 0; i+1 < len(data.Content); i += 2 {
		key, value := data.Content[i], data.Content[i+1]
		if !IsYAMLName(key.Value) {
			e.note(key.Line, "data."+key.Value, "is not read: it is no file whose name ends in .yaml or .yml")
			continue
		}
		text := []byte(value.Value)
		if !e.charge(key.Line, values(text)) { // an alias may repeat it
			return
		}
		e.read(File{outer + " " + key.Value, text})
		e.file = outer
	}
}

// IsYAMLName reports whether a file of a folder is read.
func IsYAMLName(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")
}

// word reads text, for which a number counts too.
func word(o *object, name string, required bool) string {
	node := o.get(name, required)
	switch {
	case node == nil:
		return ""
	case node.Kind != yaml.ScalarNode:
		o.fail(name, "must be text, got "+kindOf(node))
		return ""
	case node.Value == "" && required:
		o.fail(name, "must not be empty")
	}
	return node.Value
}

// refuseOctal refuses 010, which YAML 1.1, and so envoyproxy/ratelimit, reads as 8.
func refuseOctal(o *object, name string) {
	if text := word(o, name, false); len(text) > 1 && text[0] == '0' {
		o.fail(name, "must have no leading zero: envoyproxy/ratelimit reads such a number as octal; got "+text)
	}
}
