package lend

import "strconv"

// Tokens are millionths, the smallest cost, so that every cost and burst is exact.
type Tokens int64

// Token is one token.
const Token Tokens = 1_000_000

// Whole rounds down, and is never below 0.
func (t Tokens) Whole() int64 { return int64(max(t, 0) / Token) }

// String has as few decimals as needed: 1, 0.5, 0.000001.
func (t Tokens) String() string {
	return strconv.FormatFloat(float64(t)/float64(Token), 'f', -1, 64)
}
