package auth

import (
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sluicegate/sluice/internal/rules"
)

// The longest texts: an address in bytes (RFC 5321, section 4.5.3.1.3, without its brackets), the others in
// characters.
const (
	maxEmailLength     = 254
	maxNameLength      = 100
	maxUserAgentLength = 256
)

// Validate returns the mistakes in an account's address and name.
func (a *Account) Validate() rules.FieldErrors {
	var errs rules.FieldErrors
	if !isAddress(a.Email) {
		errs = append(errs, wrongAddress(a.Email))
	}
	if !isLine(a.Name) || utf8.RuneCountInString(a.Name) > maxNameLength {
		errs = append(errs, rules.FieldError{Field: "name", Message: fmt.Sprintf(
			"must be one line of at most %d visible characters without space around it", maxNameLength)})
	}
	return errs
}

// Validate returns the mistakes in an invitation's address and role.
func (i *Invitation) Validate() rules.FieldErrors {
	var errs rules.FieldErrors
	if !isAddress(i.Email) {
		errs = append(errs, wrongAddress(i.Email))
	}
	return append(errs, i.Role.Validate()...)
}

// Validate returns the mistake in a role, if any.
func (r Role) Validate() rules.FieldErrors {
	if slices.Contains(roles, r) {
		return nil
	}
	return rules.FieldErrors{{
		Field:   "role",
		Message: fmt.Sprintf("must be viewer, editor or owner, got %q", string(r)),
	}}
}

func wrongAddress(email string) rules.FieldError {
	return rules.FieldError{Field: "email", Message: fmt.Sprintf(
		"must be an e-mail address such as ada@example.com, of at most %d bytes, got %.80q", maxEmailLength, email)}
}

// isAddress accepts an addr-spec of RFC 5322 without display name, comments and quotes.
func isAddress(email string) bool {
	if len(email) > maxEmailLength || !isLine(email) || strings.ContainsAny(email, ` "`) {
		return false
	}
	parsed, err := mail.ParseAddress(email)
	return err == nil && parsed.Name == "" && parsed.Address == email
}

func isLine(text string) bool {
	return utf8.ValidString(text) && strings.TrimSpace(text) == text &&
		!strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// SameAddress reports whether two e-mail addresses are equal but for the case of ASCII letters.
func SameAddress(a, b string) bool { return foldAddress(a) == foldAddress(b) }

// foldAddress folds only ASCII letters, like the database: Unicode folding would merge different addresses.
func foldAddress(email string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, email)
}

func tidyUserAgent(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
	if utf8.RuneCountInString(text) > maxUserAgentLength {
		text = string([]rune(text)[:maxUserAgentLength])
	}
	return text
}
