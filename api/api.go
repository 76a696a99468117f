// Package api is the description of Sluice's HTTP surfaces, openapi.yaml, for the programs that serve
// it and hold requests to it.
package api

import _ "embed"

// Description is openapi.yaml as it stands.
//
//go:embed openapi.yaml
var Description []byte
