package lend

import "strconv"

// Tokens is an amount of tokens in millionths, the smallest cost, so that every cost and burst is exact.
type Tokens int64

// Token is one token.
const Token Tokens = 1_000_000

// Whole returns the number of whole tokens, rounded down, never below 0.
func (t Tokens) Whole() int64 { return int64(max(t, 0) / Token) }

// String writes the amount in tokens, with as few decimals as it needs: 1, 0.5, 0.000001.
func (t Tokens) String() string {
	return strconv.FormatFloat(float64(t)/float64(Token), 'f', -1, 64)
}
