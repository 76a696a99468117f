package checkjson

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

type amount struct {
	enforce.Tokens
	given bool
}

func (a *amount) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	number, err := readNumber(d)
	if err != nil {
		return err
	}
	millionths, err := rules.ParseCost(number)
	if err != nil {
		return httpapi.Wrong(err.Error())
	}
	a.Tokens, a.given = enforce.Tokens(millionths), true
	return nil
}

// count is a number of decisions, exact an integer that fits a double.
type (
	count struct {
		int64
		given bool
	}
	exact struct{ int64 }
)

func (c *count) UnmarshalJSONFrom(d *jsontext.Decoder) (err error) {
	c.given = true
	c.int64, err = readWhole(d, 1_000_000_000)
	return err
}

func (e *exact) UnmarshalJSONFrom(d *jsontext.Decoder) (err error) {
	e.int64, err = readWhole(d, 1<<53-1)
	return err
}

func readWhole(d *jsontext.Decoder, most int64) (int64, error) {
	text, err := readNumber(d)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > most || text[0] == '-' {
		return 0, httpapi.Wrong(fmt.Sprintf("must be a whole number from 0 to %d, written in plain digits", most))
	}
	return n, nil
}

func readNumber(d *jsontext.Decoder) (string, error) {
	if d.PeekKind() != jsontext.KindNumber {
		if err := d.SkipValue(); err != nil {
			return "", err //nolint:wrapcheck // httpapi.Decode describes it
		}
		return "", httpapi.Wrong("must be a number; leave it out to give none")
	}
	token, err := d.ReadToken()
	return token.String(), err //nolint:wrapcheck // likewise
}

type mistakes []httpapi.FieldError

func (m *mistakes) add(pointer, detail string) {
	*m = append(*m, httpapi.FieldError{Pointer: pointer, Detail: detail})
}

func (m *mistakes) tooMany(pointer string, n, most int) bool {
	if n > most {
		m.add(pointer, fmt.Sprintf("has %d elements; send at most %d", n, most))
	}
	return n > most
}
