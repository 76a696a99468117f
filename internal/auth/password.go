package auth

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sluicegate/sluice/internal/auth/commonpasswords"
	"github.com/sluicegate/sluice/internal/rules"
)

// in characters
const (
	minPasswordLength = commonpasswords.MinLength
	maxPasswordLength = 128
)

const maxPasswordBytes = maxPasswordLength * utf8.UTFMax

// wrongPassword validates a new password as NIST SP 800-63B advises: by its length and by lists of likely guesses,
// not by kinds of characters.
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
	case consistsOf(letters(folded), contextWords(email)):
		wrong = "must have more in it than sluice, admin and words of the e-mail address"
	case commonpasswords.Contains(password) || isOneCharacter(folded):
		wrong = "must not be one of those that everybody tries first"
	}
	if wrong == "" {
		return nil
	}
	return rules.FieldErrors{{Field: field, Message: wrong}}
}

const minContextWord = 3 // in characters

func contextWords(email string) []string {
	words := []string{"sluice", "rate", "limit", "admin", "password"}
	parts := strings.FieldsFunc(strings.ToLower(email), func(r rune) bool { return !unicode.IsLetter(r) })
	if len(parts) == 0 {
		return words
	}
	for _, part := range parts[:len(parts)-1] {
		if utf8.RuneCountInString(part) >= minContextWord {
			words = append(words, part)
		}
	}
	return words
}

func letters(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) {
			return -1
		}
		return r
	}, text)
}

func consistsOf(text string, words []string) bool {
	ends := make([]bool, len(text)+1) // at each byte, whether a sequence may end before it
	ends[0] = true
	for at := range text {
		for _, word := range words {
			if ends[at] && strings.HasPrefix(text[at:], word) {
				ends[at+len(word)] = true
			}
		}
	}
	return text != "" && ends[len(text)]
}

func isOneCharacter(text string) bool {
	first, _ := utf8.DecodeRuneInString(text)
	return strings.Trim(text, string(first)) == ""
}
