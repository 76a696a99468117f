package enforce

import "github.com/sluicegate/sluice/internal/enforce/lend"

// Tokens are millionths.
type Tokens = lend.Tokens

// Token is one token.
const Token = lend.Token
