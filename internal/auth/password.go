package auth

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sluicegate/sluice/internal/commonpasswords"
	"github.com/sluicegate/sluice/internal/rules"
)

// The lengths of a password, in characters.
const (
	minPasswordLength = commonpasswords.MinLength
	maxPasswordLength = 128
)

const maxPasswordBytes = maxPasswordLength * utf8.UTFMax

// wrongPassword judges a new password of the account with an address, as NIST SP 800-63B advises: by its
// length and by what a guesser tries first, and not by which kinds of characters it has.
func wrongPassword(field, password, email string) rules.FieldErrors {
	local, _, _ := strings.Cut(email, "@")
	folded := strings.ToLower(password)
	var wrong string
	switch n := utf8.RuneCountInString(password); {
	case len(password) > maxPasswordBytes || n > maxPasswordLength:
		wrong = fmt.Sprintf("must be at most %d characters long", maxPasswordLength)
	case n < minPasswordLength:
		wrong = fmt.Sprintf("must be at least %d characters long", minPasswordLength)
	case folded == strings.ToLower(email) || folded == strings.ToLower(local):
		wrong = "must not be the e-mail address"
	case commonpasswords.Contains(password) || isOneCharacter(folded):
		wrong = "must not be one of those that everybody tries first"
	}
	if wrong == "" {
		return nil
	}
	return rules.FieldErrors{{Field: field, Message: wrong}}
}

func isOneCharacter(text string) bool {
	first, _ := utf8.DecodeRuneInString(text)
	return strings.Trim(text, string(first)) == ""
}
