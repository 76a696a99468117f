package openapi

import (
	"errors"
	"strconv"
)

// TextID is an ID of openapi.yaml: a number that is text in JSON and in addresses.
type TextID int64

// MarshalText is for encoding/json.
func (id TextID) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(id), 10), nil }

// UnmarshalText is for encoding/json and for parameters.
func (id *TextID) UnmarshalText(text []byte) error {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 1 {
		return errors.New("an id is a number above 0")
	}
	*id = TextID(n)
	return nil
}
