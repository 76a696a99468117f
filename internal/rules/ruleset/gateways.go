package ruleset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/gateway"
)

type mapping interface {
	Validate() rules.FieldErrors
	Document() string
}

func (d *decoder) gateways(node *yaml.Node) {
	o := d.object(node, "gateways", string(rules.GatewayAuthorize), string(rules.GatewayDescriptors))
	for _, g := range []struct {
		kind rules.GatewayKind
		mapping
	}{{rules.GatewayAuthorize, new(gateway.Authorize)}, {rules.GatewayDescriptors, new(gateway.Descriptors)}} {
		kind := string(g.kind)
		if node := o.get(kind, false); node != nil && d.mapping(node, "gateways."+kind, g.mapping) {
			d.config.Gateways = append(d.config.Gateways, rules.Gateway{Kind: g.kind, Document: g.Document()})
		}
	}
}

func (d *decoder) mapping(node *yaml.Node, path string, into mapping) bool {
	var content any
	err := node.Decode(&content)
	if _, isMapping := content.(map[string]any); err == nil && !isMapping {
		err = errors.New("must be a mapping with fields such as user, got " + kindOf(node))
	}
	if err == nil {
		var text []byte
		if text, err = json.Marshal(content); err == nil {
			decoder := json.NewDecoder(bytes.NewReader(text))
			decoder.DisallowUnknownFields()
			err = decoder.Decode(into)
		}
	}
	if err != nil {
		d.fail(node.Line, path, strings.TrimPrefix(strings.TrimPrefix(err.Error(), "json: "), "yaml: "))
		return false
	}
	for _, wrong := range into.Validate() {
		d.fail(lineOf(node, wrong.Field), strings.TrimSuffix(path+"."+wrong.Field, "."), wrong.Message)
	}
	return true
}

func lineOf(node *yaml.Node, field string) int {
	name, rest, _ := strings.Cut(field, ".")
	for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return max(node.Content[i].Line, lineOf(node.Content[i+1], rest))
		}
	}
	if at, err := strconv.Atoi(name); err == nil && node.Kind == yaml.SequenceNode && at < len(node.Content) {
		return node.Content[at].Line
	}
	return node.Line
}

func encodeGateways(gateways []rules.Gateway) (map[rules.GatewayKind]any, error) {
	section := map[rules.GatewayKind]any{}
	for _, g := range gateways {
		var content map[string]any
		if err := json.Unmarshal([]byte(g.Document), &content); err != nil {
			return nil, fmt.Errorf("writing the mapping of the gateway %s as YAML: %w", g.Kind, err)
		}
		section[g.Kind] = content
	}
	return section, nil
}

// gatewayFields normalizes the document, because the database reorders its fields.
func gatewayFields(g *rules.Gateway) []field {
	var content any
	text := []byte(g.Document)
	if json.Unmarshal(text, &content) == nil {
		text, _ = json.Marshal(content)
	}
	return []field{{"mapping", string(text)}}
}

func describeGateway(g *rules.Gateway) string { return gatewayFields(g)[0].value }
