package ruleset_test

import (
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

const gatewayFile = `gateways:
  authorize:
    user: {header: X-User, plain: true}
    cost: {query: limit, default: 0.5}
    endpoint:
      templates:
        - /orders/{id}
`

func TestAMappingOfAFileIsReadAndWritten(t *testing.T) {
	t.Parallel()
	config, err := ruleset.Decode(strings.NewReader(gatewayFile), "f", nil)
	if err != nil {
		t.Fatal(err)
	}
	const document = `{"user":{"header":"X-User","plain":true},"cost":{"query":"limit","default":0.5},"endpoint":{"templates":["/orders/{id}"]}}`
	if len(config.Gateways) != 1 || config.Gateways[0].Document != document {
		t.Fatalf("the mapping is %+v", config.Gateways)
	}
	var out strings.Builder
	if err := ruleset.Encode(&out, config); err != nil {
		t.Fatal(err)
	}
	again, err := ruleset.Decode(strings.NewReader(out.String()), "f", nil)
	if err != nil || again.Gateways[0].Document != document {
		t.Errorf("%s\nis read as %+v, %v", out.String(), again.Gateways, err)
	}
	// As the database stores the document.
	stored := ruleset.Config{Gateways: []rules.Gateway{{
		Kind:     rules.GatewayAuthorize,
		Document: `{"cost": {"query": "limit", "default": 0.5}, "user": {"plain": true, "header": "X-User"}, "endpoint": {"templates": ["/orders/{id}"]}}`,
	}}}
	for name, test := range map[string]struct {
		current ruleset.Config
		prune   bool
		desired ruleset.Config
		want    string
	}{
		"new":  {ruleset.Config{}, false, config, `+ gateway authorize: {"cost"`},
		"same": {stored, true, config, ""},
		"changed": {
			ruleset.Config{Gateways: []rules.Gateway{{Kind: "authorize", Document: `{}`}}},
			false, config,
			`~ gateway authorize: mapping {} → {"cost"`,
		},
		"kept":   {stored, false, ruleset.Config{}, "= gateway authorize: kept"},
		"pruned": {stored, true, ruleset.Config{}, "- gateway authorize"},
	} {
		changes, err := ruleset.Diff(test.current, test.desired, ruleset.DiffOptions{Prune: test.prune})
		var text strings.Builder
		if err != nil || changes.WriteText(&text) != nil || !strings.HasPrefix(text.String(), test.want) ||
			test.want == "" && text.String() != "" {
			t.Errorf("%s: %q, %v, want %q", name, text.String(), err, test.want)
		}
	}
}

func TestAWrongMappingOfAFileNamesItsLine(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"gateways:\n  nginx: {}\n": "f:2: " +
			"gateways.nginx: is no field here; the fields are authorize",
		"gateways:\n  authorize: []\n": "f:2: " +
			"gateways.authorize: must be a mapping with fields such as user, got a list",
		"gateways:\n  authorize:\n    users: " +
			"{}\n": `f:3: gateways.authorize: unknown field "users"`,
		"gateways:\n  authorize:\n    user:\n      header: 5\n": "f:3: " +
			"gateways.authorize: cannot unmarshal number",
		"gateways:\n  authorize:\n    user:\n      header: a b\n": "f:4: " +
			"gateways.authorize.user.header: must be the name of a header",
		"gateways:\n  authorize:\n    endpoint:\n      templates:\n        - /a\n        - b\n": "f:6: " +
			"gateways.authorize.endpoint.templates.1: must be a path",
	} {
		if _, err := ruleset.Decode(strings.NewReader(file), "f", nil); err == nil ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", file, err, want)
		}
	}
}
