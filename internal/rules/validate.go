package rules

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The longest texts: slugs and plan names in bytes, others in characters.
const (
	maxSlugLength        = 63
	maxPlanNameLength    = 64
	maxTenantNameLength  = 100
	maxRuleNameLength    = 64
	maxDescriptionLength = 1000
	MaxReasonLength      = 500
)

const maxNotifyAt = 5

// MaxRulesPerPattern is per key pattern and plan: each rule costs every matching check a bucket.
const MaxRulesPerPattern = 64

// Add appends an error unless the message is "".
func (e *FieldErrors) Add(field, message string) {
	if message != "" {
		*e = append(*e, FieldError{field, message})
	}
}

// AddIf appends an error if a value is wrong.
func (e *FieldErrors) AddIf(wrong bool, field, message string) {
	if wrong {
		e.Add(field, message)
	}
}

// Validate returns all mistakes; the store checks that the default plan exists.
func (t *Tenant) Validate() (errs FieldErrors) {
	if !isSlug(t.Slug) {
		errs.Add("slug", fmt.Sprintf("must be 1 to %d lower-case letters, digits and hyphens, with a hyphen neither "+
			"first nor last, got %q", maxSlugLength, t.Slug))
	}
	errs.AddIf(t.Name == "", "name", "must not be empty")
	errs.Add("name", WrongLine(t.Name, maxTenantNameLength))
	errs = append(errs, t.Settings.Validate()...)
	return errs
}

// Validate returns all mistakes in a tenant's settings.
func (s Settings) Validate() (errs FieldErrors) {
	errs.Add("retry_jitter_percent", wrongWhole(int64(s.RetryJitterPercent), 0, 50))
	errs.Add("ipv4_prefix", wrongWhole(int64(s.IPv4Prefix), 0, 32))
	errs.Add("ipv6_prefix", wrongWhole(int64(s.IPv6Prefix), 0, 128))
	errs.Add("record_days", wrongWhole(int64(s.RecordDays), 0, MaxRecordDays))
	errs.Add("failure_mode", WrongChoice(s.FailureMode, FailLocal, FailOpen, FailClosed))
	return errs
}

// Validate returns all mistakes in a plan.
func (p *Plan) Validate() (errs FieldErrors) {
	if !isName(p.Name, maxPlanNameLength) {
		errs.Add("name", fmt.Sprintf("must be 1 to %d letters, digits, '_', '.' and '-', got %q", maxPlanNameLength,
			p.Name))
	}
	errs.Add("description", wrongText(p.Description, maxDescriptionLength))
	return errs
}

// Validate returns all mistakes in a rule of a tenant with these plans.
func (r *Rule) Validate(plans map[string]bool) (errs FieldErrors) {
	errs.AddIf(len(r.Pattern.segments) == 0, "key_pattern", "must be a key pattern such as user:{user_id}")
	errs.Add("name", WrongLine(r.Name, maxRuleNameLength))
	errs.Add("description", wrongText(r.Description, maxDescriptionLength))
	if r.Plan != "" && !plans[r.Plan] {
		errs.Add("plan", fmt.Sprintf("must be a plan of the tenant, and %q is none", r.Plan))
	}
	wrongAlgorithm := WrongChoice(r.Algorithm, Algorithms...)
	errs.Add("algorithm", wrongAlgorithm)
	errs.Add("mode", WrongChoice(r.Mode, ModeEnforce, ModeShadow))
	errs.Add("action", WrongChoice(r.Action, ActionLimit, ActionBlock, ActionBypass))
	errs.Add("rate_unit", wrongUnit(r.RateUnit))
	errs.AddIf(r.FailureMode != "", "failure_mode", WrongChoice(r.FailureMode, FailLocal, FailOpen, FailClosed))
	if !r.ExpiresAt.IsZero() {
		// a past end is valid, because a file must not become invalid with time
		errs.Add("expires_at", WrongExpiry(r.ExpiresAt, time.Time{}))
	}
	switch r.Action {
	case ActionLimit:
		if wrongAlgorithm == "" {
			errs = append(errs, r.wrongLimit()...)
		}
	case ActionBlock, ActionBypass:
		errs = append(errs, r.wrongWithoutLimit()...)
	}
	return errs
}

func (r *Rule) wrongLimit() (errs FieldErrors) {
	algorithm := r.Algorithm
	if algorithm.HasRate() {
		errs = append(errs, wrongAmounts(r.RatePerSecond, r.Burst)...)
	} else {
		errs = append(errs, wrongWithoutRate(algorithm, r.RatePerSecond, r.Burst)...)
	}
	if algorithm.HasWindow() {
		errs = append(errs, r.Window.wrong()...)
		if r.Window.Calendar != "" && algorithm != FixedWindow {
			errs.Add("window", fmt.Sprintf(
				"must be a duration such as 60s: a %s moves with the time, and only fixed_window follows the calendar",
				algorithm))
		}
	} else {
		errs = append(errs, r.Window.mustBeNone(fmt.Sprintf("a %s has no window", algorithm))...)
	}
	switch {
	case algorithm == TokenBucket && r.RefillInterval != 0:
		errs.Add("refill_interval", wrongSeconds(r.RefillInterval, MaxWindow))
	case r.RefillInterval != 0:
		errs.Add("refill_interval", fmt.Sprintf(
			"must be left out: only a token_bucket refills in steps, and this is a %s", algorithm))
	}
	switch {
	case algorithm == Concurrency:
		errs.Add("max_hold", wrongSeconds(r.MaxHold, MaxHold))
	case r.MaxHold != 0:
		errs.Add("max_hold", fmt.Sprintf("must be left out: only concurrency rules hold places, and this is a %s",
			algorithm))
	}
	errs.AddIf(r.ChargedAfter && !algorithm.CanBeChargedAfter(), "charge", fmt.Sprintf(
		"must be before: a %s cannot be charged after a check has passed", algorithm))
	errs.Add("notify_at", r.wrongNotifyAt())
	return append(errs, r.wrongAdapt()...)
}

func (r *Rule) wrongNotifyAt() string {
	if len(r.NotifyAt) > 0 && r.Algorithm != FixedWindow {
		return fmt.Sprintf("must be left out: only a fixed_window notes when a share of its limit is used, and this "+
			"is a %s", r.Algorithm)
	}
	if len(r.NotifyAt) > maxNotifyAt {
		return fmt.Sprintf("must be at most %d shares, got %d", maxNotifyAt, len(r.NotifyAt))
	}
	for i, percent := range r.NotifyAt {
		if percent < 1 || percent > 100 || i > 0 && percent <= r.NotifyAt[i-1] {
			return fmt.Sprintf("must be whole percents from 1 to 100 in ascending order, such as 80 and 100, got %v",
				r.NotifyAt)
		}
	}
	return ""
}

func wrongWithoutRate(algorithm Algorithm, rate float64, burst int64) (errs FieldErrors) {
	if rate != 0 {
		errs.Add("rate_per_second", fmt.Sprintf("must be 0 or left out: a %s has a burst and no rate", algorithm))
	}
	most := int64(MaxBurst)
	if algorithm.isListed() {
		most = MaxListed
	}
	errs.Add("burst_capacity", wrongWhole(burst, 1, most))
	return errs
}

func wrongSeconds(d, most time.Duration) string {
	if d < time.Second || d > most || d%time.Second != 0 {
		return fmt.Sprintf("must be whole seconds from 1s to %s, such as 30s, 5m or 1h", FormatDuration(most))
	}
	return ""
}

func (r *Rule) wrongWithoutLimit() (errs FieldErrors) {
	why := fmt.Sprintf("a %s rule takes no tokens", r.Action)
	errs.AddIf(r.RatePerSecond != 0, "rate_per_second", "must be 0 or left out: "+why)
	errs.AddIf(r.Burst != 0, "burst_capacity", "must be 0 or left out: "+why)
	errs = append(errs, r.Window.mustBeNone(why)...)
	errs.AddIf(r.Meter != "", "meter", "must be requests: "+why)
	errs.AddIf(r.ChargedAfter, "charge", "must be before: "+why)
	errs.AddIf(r.RefillInterval != 0, "refill_interval", "must be left out: "+why)
	errs.AddIf(r.MaxHold != 0, "max_hold", "must be left out: "+why)
	errs.AddIf(len(r.NotifyAt) > 0, "notify_at", "must be left out: "+why)
	errs.AddIf(r.Adapt != Adapt{}, "adapt", "must be left out: "+why)
	if r.Action == ActionBypass && r.Mode == ModeShadow {
		errs.Add("mode", "must be enforce: a bypass rule has no shadow mode")
	}
	return errs
}

// Validate returns all mistakes in an override that begins now.
func (o *Override) Validate(rule *Rule, now time.Time) (errs FieldErrors) {
	switch {
	case rule.Action != ActionLimit:
		errs.Add("rule", fmt.Sprintf("must be a rule that limits: a %s rule has no limit to override", rule.Action))
	case !rule.Pattern.SplitsByUser():
		errs.Add("rule", fmt.Sprintf("must be a rule with user:{user_id} in its pattern: the buckets of %s are not "+
			"one user's", rule.Pattern))
	}
	errs.Add("user_id", wrongUserID(o.UserID))
	errs.Add("rate_unit", wrongUnit(o.RateUnit))
	if rule.Action == ActionLimit && !rule.Algorithm.HasRate() {
		errs = append(errs, wrongWithoutRate(rule.Algorithm, o.RatePerSecond, o.Burst)...)
	} else {
		errs = append(errs, wrongAmounts(o.RatePerSecond, o.Burst)...)
	}
	errs.AddIf(strings.TrimSpace(o.Reason) == "", "reason", "must say why the user has an own limit")
	errs.Add("reason", wrongText(o.Reason, MaxReasonLength))
	if !o.ExpiresAt.IsZero() {
		errs.Add("expires_at", WrongExpiry(o.ExpiresAt, now))
	}
	return errs
}

// Validate returns all mistakes in an assignment of a tenant with these plans.
func (a *Assignment) Validate(plans map[string]bool) (errs FieldErrors) {
	errs.Add("user_id", wrongUserID(a.UserID))
	if !plans[a.Plan] {
		errs.Add("plan", fmt.Sprintf("must be a plan of the tenant, and %q is none", a.Plan))
	}
	return errs
}

// Validate returns all mistakes in a limit's rate and burst.
func (l Limit) Validate() FieldErrors {
	if algorithm := l.Kind.Algorithm(); !algorithm.HasRate() {
		return wrongWithoutRate(algorithm, l.Rate, l.Burst)
	}
	return wrongAmounts(l.Rate, l.Burst)
}

func wrongAmounts(rate float64, burst int64) (errs FieldErrors) {
	if !(rate >= MinRate && rate <= MaxRate) { // written so that NaN is out of range
		errs.Add("rate_per_second", fmt.Sprintf("must be from 0.000001 to 1000000000 tokens per second, got %s",
			strconv.FormatFloat(rate, 'g', -1, 64)))
	}
	errs.Add("burst_capacity", wrongWhole(burst, 1, MaxBurst))
	if len(errs) > 0 {
		return errs
	}
	if seconds := float64(burst) / rate; seconds > MaxTimeToFull.Seconds() {
		errs.Add("burst_capacity", fmt.Sprintf(
			"must be at most %d at this rate: a bucket of %d would take %.0f days to fill, and %.0f is the most",
			int64(math.Floor(rate*MaxTimeToFull.Seconds())), burst, math.Ceil(seconds/86400), MaxTimeToFull.Hours()/24))
	}
	return errs
}

func wrongWhole(n, least, most int64) string {
	if n < least || n > most {
		return fmt.Sprintf("must be a whole number from %d to %d, got %d", least, most, n)
	}
	return ""
}

// WrongChoice checks a word that must be one of several.
func WrongChoice[T ~string](value T, choices ...T) string {
	names := make([]string, len(choices))
	for i, choice := range choices {
		if value == choice {
			return ""
		}
		names[i] = string(choice)
	}
	return fmt.Sprintf("must be %s, got %q", strings.Join(names, " or "), value)
}

func wrongUnit(unit RateUnit) string {
	return WrongChoice(unit, PerSecond, PerMinute, PerHour, PerDay)
}

func wrongUserID(id string) string {
	if id == "" || len(id) > MaxUserIDLength {
		return fmt.Sprintf("must be 1 to %d bytes long, got %d", MaxUserIDLength, len(id))
	}
	return wrongBytes(id)
}

// WrongExpiry returns the mistake in an end, or "".
func WrongExpiry(at, now time.Time) string {
	switch {
	case !at.After(now):
		return fmt.Sprintf("must be in the future, got %s", at.UTC().Format(time.RFC3339Nano))
	case at.Nanosecond()%1000 != 0:
		return fmt.Sprintf("must be no finer than a microsecond, got %s", at.UTC().Format(time.RFC3339Nano))
	case at.UTC().Year() > 9999:
		return "must be before the year 10000"
	}
	return ""
}

func wrongBytes(text string) string {
	switch {
	case !utf8.ValidString(text):
		return "must be valid UTF-8"
	case strings.Contains(text, "\x00"):
		return "must not contain a NUL byte"
	}
	return ""
}

func wrongText(text string, most int) string {
	if n := utf8.RuneCountInString(text); n > most {
		return fmt.Sprintf("must be at most %d characters long, got %d", most, n)
	}
	return wrongBytes(text)
}

// WrongLine returns the mistake in a name, which is one line of visible characters.
func WrongLine(text string, most int) string {
	if wrong := wrongText(text, most); wrong != "" {
		return wrong
	}
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.TrimSpace(text) != text {
		return fmt.Sprintf("must be one line of visible characters without space around it, got %q", text)
	}
	return ""
}

func isSlug(text string) bool {
	return text != "" && len(text) <= maxSlugLength &&
		strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" &&
		!strings.HasPrefix(text, "-") && !strings.HasSuffix(text, "-")
}
