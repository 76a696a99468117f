package adminapi

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/httpapi"
)

const (
	defaultLimit = 50
	maxLimit     = 500
)

func limitOf(limit *int) int { return or(limit, defaultLimit) }

// A cursor is base64url of cursorVersion, the first bytes of a SHA-256 over its list, filter and position, and the
// position in JSON. Callers may read every position of their lists, so the hash is only against cursors that were cut
// or belong elsewhere.
const (
	cursorVersion = 2
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

// next returns the cursor after a position; null for the zero position, at the end.
func next[Place comparable](ctx context.Context, place Place) nullable.Nullable[string] {
	text, _ := placeText(place) // positions always encode
	if text == "" {
		return nullable.NewNullNullable[string]()
	}
	cursor := append([]byte{cursorVersion}, requestOf(ctx).cursorSum([]byte(text))...)
	return nullable.NewNullableWithValue(base64.RawURLEncoding.EncodeToString(append(cursor, text...)))
}

// after returns the position in the request's cursor; zero at the beginning.
func after[Place comparable](ctx context.Context) (place Place, err error) {
	q := requestOf(ctx)
	text := q.r.URL.Query().Get("cursor")
	if text == "" {
		return place, nil
	}
	cursor, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(cursor) <= 1+cursorHash || cursor[0] != cursorVersion {
		return place, errCursor
	}
	body := cursor[1+cursorHash:]
	if string(cursor[1:1+cursorHash]) != string(q.cursorSum(body)) || json.Unmarshal(body, &place) != nil {
		return place, errCursor
	}
	return place, nil
}

var errCursor = httpapi.InvalidRequest.Problem(
	"This cursor is damaged or belongs to another list or filter; start over without one.",
	httpapi.FieldError{Pointer: "/query/cursor", Detail: "must be the next_cursor of a page with the same filter"})

// list reads the page after the request's cursor.
func list[Row any, Place comparable](
	ctx context.Context, limit *int, read func(after Place, limit int) ([]Row, error), placeOf func(*Row) Place,
) (rows []Row, cursor nullable.Nullable[string], err error) {
	place, err := after[Place](ctx)
	if err != nil {
		return nil, nil, err
	}
	most := limitOf(limit)
	if rows, err = read(place, most+1); err != nil {
		return nil, nil, err
	}
	var last Place
	if len(rows) > most {
		rows = rows[:most]
		last = placeOf(&rows[most-1])
	}
	return rows, next(ctx, last), nil
}

// itemsOf shows rows as a list, which is never null.
func itemsOf[Row, Item any](rows []Row, item func(*Row) Item) []Item {
	items := make([]Item, len(rows))
	for i := range rows {
		items[i] = item(&rows[i])
	}
	return items
}

// tryItems is itemsOf for rows that may be damaged.
func tryItems[Row, Item any](rows []Row, item func(*Row) (Item, error)) (items []Item, err error) {
	items = make([]Item, len(rows))
	for i := range rows {
		if items[i], err = item(&rows[i]); err != nil {
			return nil, err
		}
	}
	return items, nil
}
