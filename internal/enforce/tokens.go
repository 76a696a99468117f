package enforce

import "github.com/sluicegate/sluice/internal/enforce/lend"

// Tokens is an amount of tokens in millionths.
type Tokens = lend.Tokens

// Token is one token.
const Token = lend.Token
