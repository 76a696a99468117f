package gateway

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// ReadClaims returns the named claims as text, without those that are neither text nor whole numbers.
func ReadClaims(payload []byte, names []string) (Claims, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(payload, &all); err != nil {
		return nil, fmt.Errorf("read the claims: %w", err)
	}
	claims := Claims{}
	for _, name := range names {
		if text := textOf(find(all, name)); text != "" {
			claims[name] = text
		}
	}
	return claims, nil
}

func find(claims map[string]json.RawMessage, name string) json.RawMessage {
	if value, ok := claims[name]; ok {
		return value
	}
	outer, inner, nested := strings.Cut(name, ".")
	var within map[string]json.RawMessage
	if !nested || json.Unmarshal(claims[outer], &within) != nil {
		return nil
	}
	return find(within, inner)
}

func textOf(value json.RawMessage) string {
	var text string
	if len(value) > 0 && value[0] == '"' && json.Unmarshal(value, &text) == nil {
		return text
	}
	if _, err := strconv.ParseInt(string(value), 10, 64); err == nil {
		return string(value)
	}
	return ""
}
