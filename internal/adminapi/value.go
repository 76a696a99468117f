package adminapi

import (
	"strconv"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/rules"
)

// never means no time in the domain.
var never time.Time

func orNull[T comparable](value T) nullable.Nullable[T] {
	return orNullIf(value != *new(T), value)
}

func orNullIf[T any](known bool, value T) nullable.Nullable[T] {
	if !known {
		return nullable.NewNullNullable[T]()
	}
	return nullable.NewNullableWithValue(value)
}

func timeOrNull(t time.Time) nullable.Nullable[time.Time] { return timeIf(true, t) }

func timeIf(known bool, t time.Time) nullable.Nullable[time.Time] {
	return orNullIf(known && !t.IsZero(), t.UTC())
}

func orZero[T any](value nullable.Nullable[T]) T {
	given, _ := value.Get()
	return given
}

func isZeroTime(value nullable.Nullable[time.Time]) bool {
	given, err := value.Get()
	return err == nil && given.IsZero()
}

var wrongZeroTime = rules.FieldError{Field: "expires_at", Message: "must be in the future, or null for never"}

func valueOf[T any](value *T) T {
	return or(value, *new(T))
}

func or[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}

func set[T any](field *T, given *T) {
	if given != nil {
		*field = *given
	}
}

func formatInt[T ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

func parseInt(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }
