package rules

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	_ "time/tzdata" // a container may have no zones of its own
)

// CalendarUnit is the unit of a calendar window.
type CalendarUnit string

// The units. A week begins on Monday and a month on its first day unless Window.StartDay says otherwise.
const (
	CalendarDay   CalendarUnit = "day"
	CalendarWeek  CalendarUnit = "week"
	CalendarMonth CalendarUnit = "month"
)

// Window is the window of a windowed rule: a length, aligned to the Unix epoch, or a calendar unit. The zero Window is
// none.
type Window struct {
	// Length is in whole seconds, up to MaxWindow; 0 for a window of the calendar.
	Length time.Duration
	// Calendar is "" for a window with a Length.
	Calendar CalendarUnit
	// Zone is an IANA name, whose midnight begins a calendar window; "" is UTC.
	Zone string
	// StartDay is the first day of a week (1, Monday, to 7) or of a month, whose last day counts if it is shorter; 0:
	// 1.
	StartDay int
}

// ParseWindow parses a window's length or unit: 30s, 5m, 24h, day, week, month.
func ParseWindow(text string) (Window, error) {
	switch unit := CalendarUnit(text); unit {
	case CalendarDay, CalendarWeek, CalendarMonth:
		return Window{Calendar: unit}, nil
	}
	length, err := ParseDuration(text)
	if err != nil {
		return Window{}, fmt.Errorf("must be day, week, month or a duration such as 30s, 5m or 24h, got %q", text)
	}
	return Window{Length: length}, nil
}

func (w Window) String() string {
	if w.Calendar != "" {
		return string(w.Calendar)
	}
	return FormatDuration(w.Length)
}

// ParseDuration parses a whole number of seconds, minutes or hours: 30s, 5m, 24h.
func ParseDuration(text string) (time.Duration, error) {
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour}
	if last := len(text) - 1; last > 0 && last <= 9 && text[0] != '0' && isDigits(text[:last]) &&
		units[text[last]] != 0 {
		n, err := strconv.ParseInt(text[:last], 10, 64)
		if unit := units[text[last]]; err == nil && n <= int64(MaxWindow/unit) {
			return time.Duration(n) * unit, nil
		}
	}
	return 0, fmt.Errorf("must be a duration such as 30s, 5m or 24h, at most %s, got %q", FormatDuration(MaxWindow),
		text)
}

// FormatDuration formats whole seconds in the largest unit that divides them; "" for 0.
func FormatDuration(d time.Duration) string {
	switch {
	case d == 0:
		return ""
	case d%time.Hour == 0:
		return strconv.FormatInt(int64(d/time.Hour), 10) + "h"
	case d%time.Minute == 0:
		return strconv.FormatInt(int64(d/time.Minute), 10) + "m"
	}
	return strconv.FormatInt(int64(d/time.Second), 10) + "s"
}

func (w Window) interval() int64 {
	if w.Calendar == "" {
		return w.Length.Microseconds()
	}
	return calendarOf(w).code
}

type calendar struct {
	unit     CalendarUnit
	startDay int
	zone     *time.Location
	code     int64 // below 0; the same in every process
	latest   atomic.Pointer[[4]int64]
}

var (
	calendarsMu sync.Mutex
	// calendars are all that this process has used, by code: at most about 40 for each time zone.
	calendars atomic.Pointer[map[int64]*calendar]
)

func calendarOf(w Window) *calendar {
	startDay := max(1, w.StartDay)
	if w.Calendar == CalendarDay {
		startDay = 1
	}
	zone := w.Zone
	if zone == "" {
		zone = "UTC"
	}
	sum := fnv.New64a()
	_, _ = fmt.Fprintf(sum, "%s %d %s", w.Calendar, startDay, zone) // a hash does not fail
	code := -1 - int64(sum.Sum64()>>16)                             // a double holds 48 bits exactly
	if held := calendars.Load(); held != nil && (*held)[code] != nil {
		return (*held)[code]
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		location = time.UTC // only a newer process knows the zone; rows are validated
	}
	calendarsMu.Lock()
	defer calendarsMu.Unlock()
	grown := map[int64]*calendar{}
	if held := calendars.Load(); held != nil {
		for other, c := range *held {
			grown[other] = c
		}
	}
	c := &calendar{unit: w.Calendar, startDay: startDay, zone: location, code: code}
	grown[code] = c
	calendars.Store(&grown)
	return c
}

func calendarAt(code int64) *calendar {
	if held := calendars.Load(); held != nil {
		return (*held)[code]
	}
	return nil
}

func (c *calendar) longest() time.Duration {
	const day = 24 * time.Hour
	switch {
	case c == nil:
		return 0
	case c.unit == CalendarDay:
		return day + 2*time.Hour
	case c.unit == CalendarWeek:
		return 7*day + 2*time.Hour
	}
	return 31*day + 2*time.Hour
}

// windowAt returns the window that contains a time. An unknown calendar has one window without an end, so that its
// buckets earn nothing.
func (c *calendar) windowAt(at int64) (start, end int64) {
	if c == nil {
		return 0, at + MaxTimeToFull.Microseconds()
	}
	starts := c.startsAround(at)
	return starts[1], starts[2]
}

func (c *calendar) startsAround(now int64) [4]int64 {
	if c == nil { // all in the future, so that the store does not choose one
		year := MaxTimeToFull.Microseconds()
		return [4]int64{now + year, now + 2*year, now + 3*year, now + 4*year}
	}
	if held := c.latest.Load(); held != nil && held[1] <= now && now < held[2] {
		return *held
	}
	local := time.UnixMicro(now).In(c.zone)
	var starts [4]int64
	// The period before or after may contain the time: a month may begin on its last day.
	period := 1
	for c.start(local, period) > now {
		period--
	}
	starts[1] = c.start(local, period)
	for i, step := 2, period+1; i < 4; step++ {
		if start := c.start(local, step); start > starts[i-1] { // Samoa had no 30 December in 2011
			starts[i] = start
			i++
		}
	}
	starts[0] = starts[1]
	for step := period - 1; starts[0] == starts[1]; step-- {
		starts[0] = c.start(local, step)
	}
	c.latest.Store(&starts)
	return starts
}

func (c *calendar) start(local time.Time, periods int) int64 {
	year, month, day := local.Date()
	switch c.unit {
	case CalendarWeek:
		sinceStart := (int(local.Weekday()) - c.startDay%7 + 7) % 7
		day += 7*periods - sinceStart
	case CalendarMonth:
		month += time.Month(periods)
		last := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC)
		year, month, day = last.Year(), last.Month(), min(c.startDay, last.Day())
	default:
		day += periods
	}
	return startOfDay(year, month, day, c.zone).UnixMicro()
}

// startOfDay returns the first moment of a day. Where clocks go forward at midnight, that is later than midnight.
func startOfDay(year int, month time.Month, day int, zone *time.Location) time.Time {
	midnight := time.Date(year, month, day, 0, 0, 0, 0, zone)
	wanted := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	if midnight.Hour() == 0 && midnight.Day() == wanted.Day() {
		return midnight
	}
	start, end := midnight.ZoneBounds()
	if midnight.Day() == wanted.Day() {
		return start
	}
	return end
}

func (w Window) wrong() (errs FieldErrors) {
	switch w.Calendar {
	case "":
		if w.Length < time.Second || w.Length > MaxWindow || w.Length%time.Second != 0 {
			errs.Add("window", fmt.Sprintf("must be day, week, month or whole seconds up to %s, such as 30s, 5m or 24h",
				FormatDuration(MaxWindow)))
		}
		if w.Zone != "" {
			errs.Add("window_zone", "must be left out: only windows of day, week and month have a time zone")
		}
		if w.StartDay != 0 {
			errs.Add("window_start_day", "must be left out: only windows of week and month begin on a day")
		}
		return errs
	case CalendarDay:
		if w.StartDay != 0 {
			errs.Add("window_start_day", "must be left out: only windows of week and month begin on a day")
		}
	case CalendarWeek:
		errs.Add("window_start_day", wrongWhole(int64(w.StartDay), 0, 7))
	case CalendarMonth:
		errs.Add("window_start_day", wrongWhole(int64(w.StartDay), 0, 31))
	default:
		errs.Add("window", WrongChoice(w.Calendar, CalendarDay, CalendarWeek, CalendarMonth))
	}
	errs.AddIf(w.Length != 0, "window", "must be a length or a unit of the calendar, not both")
	errs.Add("window_zone", wrongZone(w.Zone))
	return errs
}

func (w Window) mustBeNone(why string) (errs FieldErrors) {
	errs.AddIf(w.Length != 0 || w.Calendar != "", "window", "must be left out: "+why)
	errs.AddIf(w.Zone != "", "window_zone", "must be left out: "+why)
	errs.AddIf(w.StartDay != 0, "window_start_day", "must be left out: "+why)
	return errs
}

func wrongZone(name string) string {
	// LoadLocation accepts "Local", which differs from machine to machine.
	if _, err := time.LoadLocation(name); err != nil || strings.EqualFold(name, "local") {
		return fmt.Sprintf("must be a time zone such as Europe/Berlin or UTC, got %q", name)
	}
	return ""
}
