package sluice

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func FuzzAsk(f *testing.F) {
	f.Add("alice", "/orders/{id}", "region", "eu", 1.0, int64(-1))
	f.Add("", "", "", "", 0.25, int64(0))
	f.Add("a\"b\\c\n<é>\x7f\u2028", strings.Repeat("/x", 300), "a", "\x01", 1e9, int64(1500*time.Millisecond))
	f.Add("bad\xff", "/", "", "", 1.0, int64(-1))
	isText := func(text string, most int) bool {
		return utf8.ValidString(text) && len(text) <= most && !strings.Contains(text, "\x00")
	}
	attributeName := regexp.MustCompile(`^[0-9A-Za-z_.-]{1,64}$`)
	f.Fuzz(func(t *testing.T, user, endpoint, name, value string, cost float64, hold int64) {
		check := Check{UserID: user, Endpoint: endpoint, Cost: cost}
		if name != "" {
			check.Attributes = map[string]string{name: value}
		}
		q, err := check.ask(time.Duration(hold))
		if err != nil {
			_, costErr := tokens(cost)
			isAttribute := name == "" || attributeName.MatchString(name) && isText(value, 256)
			if costErr == nil && isText(user, 256) && isText(endpoint, 1024) && isAttribute &&
				time.Duration(hold) <= maxHold {
				t.Fatal(err)
			}
			return
		}
		var got struct {
			UserID     string            `json:"user_id"`
			Endpoint   string            `json:"endpoint"`
			Attributes map[string]string `json:"attributes"`
			Cost       *float64          `json:"cost"`
			Reserve    bool              `json:"reserve"`
			ReserveFor int64             `json:"reserve_for"`
		}
		if err := json.Unmarshal([]byte(q.body), &got); err != nil {
			t.Fatalf("%s: %v", q.body, err)
		}
		if got.UserID != user || got.Endpoint != endpoint || !reflect.DeepEqual(got.Attributes, check.Attributes) {
			t.Errorf("%q, %q, %v became %s", user, endpoint, check.Attributes, q.body)
		}
		if got.Reserve != (hold >= 0) || (got.ReserveFor > 0) != (hold > 0) ||
			(got.Cost == nil) != (cost == 0 || cost == 1) {
			t.Errorf("a cost of %v and a hold of %v became %s", cost, time.Duration(hold), q.body)
		}
		other, err := (&Check{UserID: user, Endpoint: endpoint, Attributes: check.Attributes, Cost: 7}).ask(-1)
		if err != nil || other.identity != q.identity {
			t.Errorf("the identities %q and %q differ by the cost (%v)", q.identity, other.identity, err)
		}
	})
}
