package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// AppendSubject appends the next value, preceded by its length, so that lists are unambiguous: 2:42,11:/api/search.
func AppendSubject(subject []byte, value string) []byte {
	if len(subject) > 0 {
		subject = append(subject, ',')
	}
	subject = strconv.AppendInt(subject, int64(len(value)), 10)
	return append(append(subject, ':'), value...)
}

// SubjectOfUser returns the only subject of the user; ok is false if the pattern excludes the user or has other values.
func (p Pattern) SubjectOfUser(userID string) (subject string, ok bool) {
	for i := range p.segments {
		s := &p.segments[i]
		switch {
		case s.Field == FieldUser && s.Placeholder:
			subject, ok = userID, userID != ""
		case s.Field == FieldUser:
			ok = userID == s.Value
		case s.Placeholder:
			return "", false
		}
	}
	return subject, ok
}

// OnlyUser reports whether a user id alone determines a bucket, and the user that the pattern names, "" for any.
func (p Pattern) OnlyUser() (user string, ok bool) {
	for i := range p.segments {
		s := &p.segments[i]
		switch {
		case s.Field == FieldUser:
			ok = true
			if !s.Placeholder {
				user = s.Value
			}
		case s.Placeholder:
			return "", false
		}
	}
	return user, ok
}

// UserOfSubject returns the user in a subject, or "" without {user_id}; ok is false for no subject of the pattern.
func (p Pattern) UserOfSubject(subject string) (user string, ok bool) {
	at, placeholders := p.placeOfUser()
	values, ok := splitSubject(subject, placeholders)
	if !ok || at < 0 {
		return "", ok
	}
	return values[at], true
}

func (p Pattern) placeOfUser() (at, placeholders int) {
	at = -1
	for i := range p.segments {
		if !p.segments[i].Placeholder {
			continue
		}
		if p.segments[i].Field == FieldUser {
			at = placeholders
		}
		placeholders++
	}
	return at, placeholders
}

// maxStoredSubject is in bytes: an index entry of PostgreSQL has at most 2,700, and several attributes can be longer.
const maxStoredSubject = 1024

// StoredSubject cuts a long subject and adds a digest to keep it unique.
func StoredSubject(subject string) string {
	if len(subject) <= maxStoredSubject {
		return subject
	}
	digest := sha256.Sum256([]byte(subject))
	return strings.ToValidUTF8(subject[:maxStoredSubject], "") + "…" + hex.EncodeToString(digest[:])
}

// HasStored reports whether a StoredSubject is one of a user. If the user's id itself is cut, the digest decides,
// unless values that follow are unknown; then it is nobody's.
func (p Pattern) HasStored(stored, userID string) bool {
	const tail = len("…") + 2*sha256.Size
	if len(stored) <= maxStoredSubject {
		user, ok := p.UserOfSubject(stored)
		return ok && user == userID
	}
	at, placeholders := p.placeOfUser()
	if at < 0 || placeholders == 1 {
		return false
	}
	kept := stored[:len(stored)-tail]
	rest := kept
	for range at {
		_, after, ok := nextValue(rest)
		if !ok {
			return false
		}
		rest = strings.TrimPrefix(after, ",")
	}
	if user, _, ok := nextValue(rest); ok {
		return user == userID
	}
	before := strings.TrimSuffix(kept[:len(kept)-len(rest)], ",")
	return at == placeholders-1 && StoredSubject(string(AppendSubject([]byte(before), userID))) == stored
}

// OwnerOf returns the user that owns a subject's bucket, or "" for a shared bucket.
func (p Pattern) OwnerOf(subject string) string {
	for i := range p.segments {
		if s := &p.segments[i]; s.Field == FieldUser && !s.Placeholder {
			return s.Value
		}
	}
	user, _ := p.UserOfSubject(subject)
	return user
}

// OwnSubject is the subject of a limit that came with a check: its burst, its window in microseconds, and the subject
// that it replaces, joined with colons.
func OwnSubject(limit Limit, subject string) string {
	return strconv.FormatInt(limit.Burst, 10) + ":" + strconv.FormatInt(limit.Interval, 10) + ":" + subject
}

// CutOwnSubject decodes an OwnSubject.
func CutOwnSubject(text string) (limit Limit, subject string, ok bool) {
	burst, rest, _ := strings.Cut(text, ":")
	window, subject, _ := strings.Cut(rest, ":")
	limit.Kind = KindFixedWindow
	limit.Burst, _ = strconv.ParseInt(burst, 10, 64)
	limit.Interval, _ = strconv.ParseInt(window, 10, 64)
	ok = OwnSubject(limit, subject) == text && limit.Burst >= 1 && limit.Burst <= MaxBurst &&
		limit.Interval >= 1 && limit.Interval <= MaxWindow.Microseconds()
	return limit, subject, ok
}

func splitSubject(subject string, placeholders int) (values []string, ok bool) {
	switch placeholders {
	case 0:
		return nil, subject == ""
	case 1:
		return []string{subject}, subject != ""
	}
	rest := subject
	for i := range placeholders {
		if i > 0 {
			if rest, ok = strings.CutPrefix(rest, ","); !ok {
				return nil, false
			}
		}
		var value string
		if value, rest, ok = nextValue(rest); !ok {
			return nil, false
		}
		values = append(values, value)
	}
	return values, rest == ""
}

func nextValue(text string) (value, rest string, ok bool) {
	digits, after, found := strings.Cut(text, ":")
	length, err := strconv.Atoi(digits)
	if !found || err != nil || strconv.Itoa(length) != digits || length < 1 || length > len(after) {
		return "", "", false
	}
	return after[:length], after[length:], true
}
