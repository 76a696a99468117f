package rules

import (
	"encoding/json"
	"fmt"
	"iter"
	"reflect"
	"time"
)

// Fields are what people can change of a rule, by the names of the API, rules files, the audit log and the database;
// nil is none.
type Fields struct {
	Meter          string       `json:"meter"` // as ParseMeter reads it
	RatePerSecond  float64      `json:"rate_per_second"`
	RateUnit       RateUnit     `json:"rate_unit"`
	BurstCapacity  int64        `json:"burst_capacity"`
	Algorithm      Algorithm    `json:"algorithm"`
	Window         *string      `json:"window"` // as ParseWindow reads it
	WindowZone     *string      `json:"window_zone"`
	WindowStartDay *int         `json:"window_start_day"`
	RefillInterval *string      `json:"refill_interval"` // as ParseDuration reads it
	MaxHold        *string      `json:"max_hold"`
	NotifyAt       []int        `json:"notify_at"`
	Adapt          *AdaptFields `json:"adapt"`
	Mode           Mode         `json:"mode"`
	Action         Action       `json:"action"`
	Charge         Charge       `json:"charge"`
	FailureMode    *FailureMode `json:"failure_mode"`
	Lease          Lease        `json:"lease"`
	IsActive       bool         `json:"is_active"`
	ExpiresAt      *time.Time   `json:"expires_at"`
	Description    string       `json:"description"`
}

// AdaptFields are the fields of an Adapt.
type AdaptFields struct {
	Backend      string   `json:"backend"`
	FloorPercent int      `json:"floor_percent"`
	P99Ms        *int64   `json:"p99_ms"`
	ErrorPercent *float64 `json:"error_percent"`
}

// Standard returns a rule with the defaults of a new one.
func Standard() Rule {
	return Rule{
		RateUnit: PerSecond, Algorithm: TokenBucket, Mode: ModeEnforce, Action: ActionLimit, Active: true,
	}
}

// Fields returns the rule's fields; equal rules have deeply equal ones.
func (r *Rule) Fields() Fields {
	f := Fields{
		Meter:         r.Meter.Word(),
		RatePerSecond: r.RatePerSecond, RateUnit: r.RateUnit, BurstCapacity: r.Burst, Algorithm: r.Algorithm,
		Window: orNil(r.Window.String()), WindowZone: orNil(r.Window.Zone), WindowStartDay: orNil(r.Window.StartDay),
		RefillInterval: orNil(FormatDuration(r.RefillInterval)), MaxHold: orNil(FormatDuration(r.MaxHold)),
		NotifyAt: append([]int{}, r.NotifyAt...),
		Mode:     r.Mode, Action: r.Action, Charge: r.Charge(), FailureMode: orNil(r.FailureMode), Lease: r.Lease(),
		IsActive:    r.Active,
		Description: r.Description,
	}
	if r.Adapt != (Adapt{}) {
		f.Adapt = &AdaptFields{
			Backend: r.Adapt.Backend, FloorPercent: r.Adapt.FloorPercent, P99Ms: orNil(r.Adapt.P99.Milliseconds()),
			ErrorPercent: orNil(r.Adapt.ErrorPercent),
		}
	}
	if !r.ExpiresAt.IsZero() {
		f.ExpiresAt = new(r.ExpiresAt.Round(0).UTC())
	}
	return f
}

// SetFields is the inverse of Fields, and returns what cannot be read; Validate finds the rest.
func (r *Rule) SetFields(f *Fields) (wrong FieldErrors) {
	r.Meter = parsed(&wrong, "meter", &f.Meter, ParseMeter)
	r.RatePerSecond, r.RateUnit, r.Burst, r.Algorithm = f.RatePerSecond, f.RateUnit, f.BurstCapacity, f.Algorithm
	r.Mode, r.Action, r.FailureMode = f.Mode, f.Action, orZero(f.FailureMode)
	r.Active, r.Description = f.IsActive, f.Description
	r.Window = parsed(&wrong, "window", f.Window, ParseWindow)
	r.Window.Zone, r.Window.StartDay = orZero(f.WindowZone), orZero(f.WindowStartDay)
	r.RefillInterval = parsed(&wrong, "refill_interval", f.RefillInterval, ParseDuration)
	r.MaxHold = parsed(&wrong, "max_hold", f.MaxHold, ParseDuration)
	r.NotifyAt = nil
	if len(f.NotifyAt) > 0 {
		r.NotifyAt = f.NotifyAt
	}
	r.Adapt = f.Adapt.adapt()
	r.ChargedAfter = f.Charge == ChargeAfter
	wrong.Add("charge", WrongChoice(f.Charge, ChargeBefore, ChargeAfter))
	r.NeverLeased = f.Lease == LeaseNever
	wrong.Add("lease", WrongChoice(f.Lease, LeaseAuto, LeaseNever))
	r.ExpiresAt = time.Time{}
	if f.ExpiresAt != nil {
		r.ExpiresAt = f.ExpiresAt.UTC()
		wrong.AddIf(r.ExpiresAt.IsZero(), "expires_at", "must be in the future, or null for never")
	}
	return wrong
}

func (f *AdaptFields) adapt() Adapt {
	if f == nil {
		return Adapt{}
	}
	a := Adapt{Backend: f.Backend, FloorPercent: f.FloorPercent}
	if f.P99Ms != nil {
		a.P99 = -time.Millisecond
		if *f.P99Ms > 0 && *f.P99Ms <= MaxP99.Milliseconds() {
			a.P99 = time.Duration(*f.P99Ms) * time.Millisecond
		}
	}
	if f.ErrorPercent != nil {
		if a.ErrorPercent = *f.ErrorPercent; a.ErrorPercent == 0 {
			a.ErrorPercent = -1
		}
	}
	return a
}

// HasSameFields compares fields; an end that is counted from the write always differs.
func (r *Rule) HasSameFields(other *Rule) bool {
	return reflect.DeepEqual(r.Fields(), other.Fields()) && r.ExpiresIn == other.ExpiresIn
}

// LimitDiffers reports whether buckets behave in another way than under the rule before, whose rate may have adapted.
func (r *Rule) LimitDiffers(before *Rule) bool {
	return r.Algorithm != before.Algorithm || !r.Limit().SameAmounts(before.Limit()) ||
		before.Adapt.Backend != "" && r.Adapt.Backend == ""
}

// Set sets the fields that a JSON object names and ignores other names.
func (r *Rule) Set(object []byte) FieldErrors {
	given, wrong := namedIn(object)
	f := r.Fields()
	wrong = append(wrong, f.merge(given)...)
	return append(wrong, r.SetFields(&f)...)
}

// Patch is Set for people: fields that lose their meaning by the change must be named too, so that nothing is lost
// unsaid. The object may also have rate and expires_in_seconds.
func (r *Rule) Patch(object []byte) FieldErrors {
	given, wrong := namedIn(object)
	wrong = append(wrong, expandRate(given)...)
	f := r.Fields()
	wrong = append(wrong, f.merge(given)...)
	r.Action, r.Algorithm = f.Action, f.Algorithm
	r.dropForeign()
	if window, err := ParseWindow(orZero(f.Window)); given["window"] != nil && err == nil {
		if window.Calendar == "" {
			r.Window.Zone = ""
		}
		if window.Calendar != r.Window.Calendar {
			r.Window.StartDay = 0
		}
	}
	kept := r.Fields()
	wrong = append(wrong, f.lost(&kept, given)...)
	if text := given["expires_in_seconds"]; text != nil {
		var seconds int64
		wrong.AddIf(json.Unmarshal(text, &seconds) != nil, "expires_in_seconds", "must be a whole number")
		wrong.AddIf(given["expires_at"] != nil, "expires_in_seconds", "must be left out beside expires_at")
		r.ExpiresIn = new(time.Duration(seconds) * time.Second)
	}
	f = r.Fields()
	_ = f.merge(given) // told above
	return append(wrong, r.SetFields(&f)...)
}

func (f *Fields) lost(kept *Fields, given map[string]json.RawMessage) (wrong FieldErrors) {
	values := reflect.ValueOf(kept).Elem()
	i := -1
	for name, field := range Named(f) {
		i++
		value := values.Field(i).Interface()
		if given[name] == nil && !reflect.DeepEqual(field.Interface(), value) {
			text, _ := json.Marshal(value)
			wrong.Add(name, fmt.Sprintf("has no meaning after this change: send %s too, which removes it", text))
		}
	}
	return wrong
}

func (r *Rule) dropForeign() {
	if r.Action != ActionLimit {
		r.Burst = 0
	}
	if r.Action != ActionLimit || !r.Algorithm.HasRate() {
		r.RatePerSecond, r.Adapt = 0, Adapt{}
	}
	if r.Action != ActionLimit || !r.Algorithm.HasWindow() {
		r.Window = Window{}
	}
	if r.Action != ActionLimit || r.Algorithm != TokenBucket {
		r.RefillInterval = 0
	}
	if r.Action != ActionLimit || r.Algorithm != Concurrency {
		r.MaxHold = 0
	}
	if r.Action != ActionLimit || !r.Algorithm.CanBeChargedAfter() {
		r.ChargedAfter = false
	}
	if r.Action != ActionLimit || r.Algorithm != FixedWindow {
		r.NotifyAt = nil
	}
}

func expandRate(given map[string]json.RawMessage) (wrong FieldErrors) {
	text := given["rate"]
	if text == nil {
		return nil
	}
	for _, name := range []string{"rate_per_second", "rate_unit"} {
		wrong.AddIf(given[name] != nil, name, "must be left out beside rate")
	}
	if string(text) == "null" {
		given["rate_per_second"] = json.RawMessage("0")
		return wrong
	}
	var rate string
	_ = json.Unmarshal(text, &rate)
	perSecond, unit, err := ParseRate(rate)
	if err != nil {
		wrong.Add("rate", err.Error())
		return wrong
	}
	given["rate_per_second"], _ = json.Marshal(perSecond)
	given["rate_unit"], _ = json.Marshal(unit)
	return wrong
}

func namedIn(object []byte) (given map[string]json.RawMessage, wrong FieldErrors) {
	if err := json.Unmarshal(object, &given); err != nil {
		wrong.Add("change", "must be a JSON object")
	}
	return given, wrong
}

// merge leaves fields as they are whose values are of another type, and returns the mistakes.
func (f *Fields) merge(given map[string]json.RawMessage) (wrong FieldErrors) {
	for name, field := range Named(f) {
		text := given[name]
		if text == nil {
			continue
		}
		read := reflect.New(field.Type())
		if err := json.Unmarshal(text, read.Interface()); err != nil {
			wrong.Add(name, mustBe(field.Type()))
			continue
		}
		field.Set(read.Elem())
	}
	return wrong
}

func mustBe(kind reflect.Type) string {
	switch {
	case kind == reflect.TypeFor[*time.Time]():
		return "must be a time such as 2027-01-31T00:00:00Z"
	case kind.Kind() == reflect.Pointer:
		return mustBe(kind.Elem())
	case kind.Kind() == reflect.Int, kind.Kind() == reflect.Int64:
		return "must be a whole number"
	}
	return "must be of the type that the API's description says"
}

// Named iterates over the fields of a struct, by their names in JSON; the values can be set.
func Named(object any) iter.Seq2[string, reflect.Value] {
	return func(yield func(string, reflect.Value) bool) {
		value := reflect.ValueOf(object).Elem()
		for i := range value.NumField() {
			if !yield(value.Type().Field(i).Tag.Get("json"), value.Field(i)) {
				return
			}
		}
	}
}

// Chosen goes through the fields that differ from those of a Standard rule.
func (f *Fields) Chosen() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		rule := Standard()
		standard := rule.Fields()
		usual := reflect.ValueOf(&standard).Elem()
		i := 0
		for name, field := range Named(f) {
			if !reflect.DeepEqual(field.Interface(), usual.Field(i).Interface()) && !yield(name, field.Interface()) {
				return
			}
			i++
		}
	}
}

func parsed[T any](wrong *FieldErrors, name string, text *string, parse func(string) (T, error)) (value T) {
	if text == nil {
		return value
	}
	value, err := parse(*text)
	if err != nil {
		wrong.Add(name, err.Error())
	}
	return value
}

func orNil[T comparable](value T) *T {
	if value == *new(T) {
		return nil
	}
	return &value
}

func orZero[T any](value *T) (zero T) {
	if value == nil {
		return zero
	}
	return *value
}
