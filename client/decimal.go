package sluice

import (
	"errors"
	"strconv"
)

// oneToken is a token in millionths, like lend.Token.
const oneToken = 1_000_000

// decimal is in millionths of a token, and encoded in tokens.
type decimal int64

func (d decimal) MarshalJSON() ([]byte, error) {
	b := strconv.AppendInt(nil, int64(d)/oneToken, 10)
	if parts := int64(d) % oneToken; parts != 0 {
		b = append(b, '.')
		for unit := int64(oneToken / 10); parts > 0; unit /= 10 {
			b = append(b, byte('0'+parts/unit))
			parts %= unit
		}
	}
	return b, nil
}

// UnmarshalJSON parses at most 6 decimals, which are exact in a float64 of millionths.
func (d *decimal) UnmarshalJSON(text []byte) error {
	tokens, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(tokens >= 0 && tokens <= 1e9) {
		return errAmount
	}
	*d = decimal(tokens*oneToken + 0.5)
	return nil
}

var errAmount = errors.New("an amount of tokens is not a number from 0 to 1e9")
