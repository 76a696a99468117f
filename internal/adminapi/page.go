package adminapi

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strconv"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/httpapi"
)

const (
	defaultLimit = 50
	maxLimit     = 500
)

func limitOf(limit *int) int {
	if limit == nil {
		return defaultLimit
	}
	return *limit
}

// A cursor is base64url of cursorVersion, the first bytes of a SHA-256 over its list, filter and position, and the
// position as a JSON array of strings. The hash detects cursors that were cut or belong to another list. Callers may
// read every position of their lists, so nothing needs protection.
const (
	cursorVersion = 1
	cursorHash    = 8
)

func (q *apiRequest) list() string {
	query := q.r.URL.Query()
	query.Del("limit")
	query.Del("cursor")
	return q.r.URL.EscapedPath() + "?" + query.Encode()
}

func (q *apiRequest) cursorSum(place []byte) []byte {
	sum := sha256.Sum256(append([]byte(q.list()+"\n"), place...))
	return sum[:cursorHash]
}

// next returns the cursor after a position; null at the end.
func next(ctx context.Context, place ...string) nullable.Nullable[string] {
	if len(place) == 0 {
		return nullable.NewNullNullable[string]()
	}
	q := requestOf(ctx)
	text, _ := json.Marshal(place) // strings always encode
	cursor := append([]byte{cursorVersion}, q.cursorSum(text)...)
	return nullable.NewNullableWithValue(base64.RawURLEncoding.EncodeToString(append(cursor, text...)))
}

// after returns the parts of the position in the request's cursor; empty strings at the beginning.
func after(ctx context.Context, parts int) ([]string, error) {
	q := requestOf(ctx)
	place := make([]string, parts)
	text := q.r.URL.Query().Get("cursor")
	if text == "" {
		return place, nil
	}
	cursor, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(cursor) <= 1+cursorHash || cursor[0] != cursorVersion {
		return nil, errCursor
	}
	body := cursor[1+cursorHash:]
	if string(cursor[1:1+cursorHash]) != string(q.cursorSum(body)) ||
		json.Unmarshal(body, &place) != nil || len(place) != parts {
		return nil, errCursor
	}
	return place, nil
}

var errCursor = httpapi.InvalidRequest.Problem(
	"This cursor is damaged or belongs to another list or filter; start over without one.",
	httpapi.FieldError{Pointer: "/query/cursor", Detail: "must be the next_cursor of a page with the same filter"})

func afterNumber(ctx context.Context) (int64, error) {
	place, err := after(ctx, 1)
	if err != nil || place[0] == "" {
		return 0, err
	}
	number, err := strconv.ParseInt(place[0], 10, 64)
	if err != nil {
		return 0, errCursor
	}
	return number, nil
}

func page[Row, Item any](ctx context.Context, rows []Row, limit int, item func(*Row) Item,
	place func(*Row) string,
) ([]Item, nullable.Nullable[string]) {
	cursor := next(ctx)
	if len(rows) > limit {
		rows = rows[:limit]
		cursor = next(ctx, place(&rows[limit-1]))
	}
	return itemsOf(rows, item), cursor
}

// itemsOf shows rows as a list, which is never null.
func itemsOf[Row, Item any](rows []Row, item func(*Row) Item) []Item {
	items := make([]Item, len(rows))
	for i := range rows {
		items[i] = item(&rows[i])
	}
	return items
}
