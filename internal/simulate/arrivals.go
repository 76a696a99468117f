package simulate

import (
	"fmt"
	"strconv"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// maxArrivals is how many arrivals a simulation can have.
const maxArrivals = 100_000

// maxCost is the highest cost that a check can have.
const maxCost = rules.MaxBurst * enforce.Token

// Arrival is one check of a simulation.
type Arrival struct {
	// At is how long after the start it comes, to the microsecond, up to rules.MaxTimeToFull.
	At   time.Duration
	Cost enforce.Tokens // at most a thousand million tokens
}

// Pattern describes arrivals that come as regularly as a machine's.
type Pattern struct {
	// Rate is how many arrivals come per second on average, up to rules.MaxRate.
	Rate float64
	// BurstSize is how many come at one moment; 1 spreads them evenly. A burst comes every
	// BurstSize/Rate seconds.
	BurstSize int
	// Duration is until when they come, up to rules.MaxTimeToFull. The first burst comes at the start,
	// and none at the very end.
	Duration time.Duration
	Cost     enforce.Tokens // of each
}

// Arrivals returns the arrivals, in order. Its errors are rules.FieldErrors about rate, burst_size,
// duration and cost.
func (p Pattern) Arrivals() ([]Arrival, error) {
	if errs := p.validate(); len(errs) > 0 {
		return nil, errs
	}
	var arrivals []Arrival
	for {
		micros := float64(len(arrivals)) * 1e6 / p.Rate
		if micros >= float64(p.Duration.Microseconds()) {
			return arrivals, nil
		}
		if len(arrivals)+p.BurstSize > maxArrivals {
			return nil, rules.FieldErrors{{Field: "duration", Message: fmt.Sprintf(
				"must be shorter: at this rate more than %d arrivals come, and a simulation has at most that many", maxArrivals)}}
		}
		for range p.BurstSize {
			arrivals = append(arrivals, Arrival{At: time.Duration(micros) * time.Microsecond, Cost: p.Cost})
		}
	}
}

func (p Pattern) validate() rules.FieldErrors {
	var errs rules.FieldErrors
	wrong := func(field, format string, args ...any) {
		errs = append(errs, rules.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if !(p.Rate > 0 && p.Rate <= rules.MaxRate) { // written so that NaN is out of range
		wrong("rate", "must be above 0 and at most 1000000000 arrivals per second, got %s", strconv.FormatFloat(p.Rate, 'g', -1, 64))
	}
	if p.BurstSize < 1 || p.BurstSize > maxArrivals {
		wrong("burst_size", "must be a whole number from 1 to %d, got %d", maxArrivals, p.BurstSize)
	}
	if p.Duration < time.Microsecond || p.Duration > rules.MaxTimeToFull {
		wrong("duration", "must be from a microsecond to %.0f days, got %v", rules.MaxTimeToFull.Hours()/24, p.Duration)
	}
	if message := wrongCost(p.Cost); message != "" {
		wrong("cost", "%s", message)
	}
	return errs
}

// wrongArrivals returns the first thing that is wrong with a list of arrivals.
func wrongArrivals(arrivals []Arrival) rules.FieldErrors {
	wrong := func(field, message string) rules.FieldErrors {
		return rules.FieldErrors{{Field: field, Message: message}}
	}
	if len(arrivals) < 1 || len(arrivals) > maxArrivals {
		return wrong("timestamps", fmt.Sprintf("must be 1 to %d, got %d", maxArrivals, len(arrivals)))
	}
	earlier := time.Duration(0)
	for i, arrival := range arrivals {
		field := fmt.Sprintf("timestamps[%d]", i)
		switch {
		case arrival.At < 0:
			return wrong(field, "must not be before the start")
		case arrival.At < earlier:
			return wrong(field, "must not be before the one that stands before it; sort them")
		case arrival.At > rules.MaxTimeToFull:
			return wrong(field, fmt.Sprintf("must be within %.0f days of the start", rules.MaxTimeToFull.Hours()/24))
		}
		if message := wrongCost(arrival.Cost); message != "" {
			return wrong(field+".cost", message)
		}
		earlier = arrival.At
	}
	return nil
}

func wrongCost(cost enforce.Tokens) string {
	if cost < 0 || cost > maxCost {
		return fmt.Sprintf("must be from 0 to %v tokens, got %v", maxCost, cost)
	}
	return ""
}
