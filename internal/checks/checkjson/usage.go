package checkjson

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

// DecodeUsage reads a query such as user_id=42&plan=pro; the error is a *httpapi.Problem.
func DecodeUsage(query string) (userID, plan string, err error) {
	const parameter, planParameter = "user_id", "plan"
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", "", httpapi.InvalidRequest.Problem("Write the query as user_id=42, percent-encoded.")
	}
	var wrong []httpapi.FieldError
	refuse := func(name, detail string) {
		if len(wrong) < httpapi.MaxFieldErrors {
			pointer := strings.NewReplacer("~", "~0", "/", "~1").Replace(strings.ToValidUTF8(name, "\uFFFD"))
			wrong = append(wrong, httpapi.FieldError{Pointer: "/query/" + pointer, Detail: detail})
		}
	}
	userID = values.Get(parameter)
	switch sent := values[parameter]; {
	case userID == "" && len(sent) < 2:
		refuse(parameter, "is missing; send the user_id of your checks")
	case len(sent) > 1:
		refuse(parameter, "is given twice; send it once")
	case len(userID) > rules.MaxUserIDLength:
		refuse(parameter, fmt.Sprintf("is %d bytes long; at most %d are accepted", len(userID), rules.MaxUserIDLength))
	case !utf8.ValidString(userID):
		refuse(parameter, "is not valid UTF-8")
	case strings.Contains(userID, "\x00"):
		refuse(parameter, "contains the character NUL; remove it")
	}
	plan = values.Get(planParameter)
	switch sent := values[planParameter]; {
	case len(sent) > 1:
		refuse(planParameter, "is given twice; send it once")
	case len(sent) == 1 && plan == "":
		refuse(planParameter, "is empty; leave it out to use the user's own")
	}
	delete(values, parameter)
	delete(values, planParameter)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		refuse(name, "is not known; the parameters are user_id and plan")
	}
	return userID, plan, httpapi.BodyProblem(wrong)
}

// AppendUsage appends the limits of a user as a JSON object.
func AppendUsage(b []byte, userID, plan string, limits []enforce.TierDecision, hasMore bool) []byte {
	b = httpapi.AppendString(append(b, `{"user_id":`...), userID)
	b = httpapi.AppendText(append(b, `,"plan":`...), plan)
	b = appendList(append(b, `,"limits":`...), limits, appendUsed)
	return append(strconv.AppendBool(append(b, `,"has_more":`...), hasMore), '}')
}

func appendUsed(b []byte, t *enforce.TierDecision) []byte {
	rule, left := t.Match.Rule, max(t.Remaining, 0)
	b = appendRule(append(b, '{'), rule, t.Match.Mode)
	b = httpapi.AppendString(append(b, `,"algorithm":`...), string(rule.Algorithm))
	b = strconv.AppendInt(append(b, `,"limit":`...), t.Limit.Burst, 10)
	b = appendTokens(append(b, `,"remaining":`...), left)
	b = appendTokens(append(b, `,"used":`...), enforce.Tokens(t.Limit.Burst)*enforce.Token-left)
	b = append(b, `,"rate_per_second":`...)
	if t.Limit.Rate > 0 {
		b = strconv.AppendFloat(b, t.Limit.Rate, 'f', -1, 64)
	} else {
		b = append(b, `null`...)
	}
	b = append(b, `,"window_ends_at":`...)
	if t.Limit.Kind == rules.KindFixedWindow {
		_, end := t.Limit.WindowAt(t.Stamp)
		b = append(time.UnixMicro(end).UTC().AppendFormat(append(b, '"'), time.RFC3339), '"')
	} else {
		b = append(b, `null`...)
	}
	b = appendReset(append(b, `,"reset_after_ms":`...), t)
	return append(httpapi.AppendString(append(b, `,"limit_text":`...), rule.Describe(t.Limit)), '}')
}
