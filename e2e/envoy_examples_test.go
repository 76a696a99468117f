package e2e_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// Envoy's types decode the examples as Envoy would: an unknown field, a wrong type or a value out of range is an
// error.
func TestEnvoysTypesReadItsExamples(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"envoy.yaml", "ratelimit.yaml"} {
		text, err := os.ReadFile("../deploy/examples/envoy/" + name)
		if err != nil {
			t.Fatal(err)
		}
		config, err := decodeEnvoy(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		listeners := config.GetStaticResources().GetListeners()
		if clusters := config.GetStaticResources().GetClusters(); len(listeners) != 1 || len(clusters) != 2 {
			t.Errorf("%s has %d listeners and %d clusters, want 1 and 2", name, len(listeners), len(clusters))
		}
		if _, err := decodeEnvoy([]byte(strings.Replace(string(text), "stat_prefix", "stat_prefixes", 1))); err == nil {
			t.Errorf("%s with a field that Envoy does not have is read", name)
		}
	}
}

func decodeEnvoy(text []byte) (*bootstrap.Bootstrap, error) {
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	config := &bootstrap.Bootstrap{}
	if err := protojson.Unmarshal(encoded, config); err != nil {
		return nil, err
	}
	return config, config.ValidateAll()
}
