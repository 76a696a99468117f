package fleet_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluicegate/sluice/internal/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type board struct {
	mu      sync.Mutex
	away    bool // reports wait for their timeout
	reports []fleet.Report
	ended   []string
}

func (b *board) ReportProcess(ctx context.Context, report *fleet.Report) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away {
		b.mu.Unlock()
		<-ctx.Done()
		b.mu.Lock()
		return errors.New("away")
	}
	b.reports = append(b.reports, *report)
	return nil
}

func (b *board) EndProcess(_ context.Context, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = append(b.ended, id)
	return nil
}

func (b *board) Processes(context.Context, time.Duration) ([]fleet.Report, time.Time, error) {
	return nil, time.Time{}, errors.New("nobody asks")
}

func (b *board) setAway(away bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = away
}

func TestKeepReportsEveryFiveSecondsWhatWasCountedInTheLastMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, total := &board{}, fleet.Count{}
		look := func() (fleet.Process, fleet.Count) {
			total.Checks += 100
			total.Degraded += 25
			return fleet.Process{ID: "a"}, total
		}
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); fleet.Keep(ctx, b, look, slog.New(slog.DiscardHandler)) }()
		time.Sleep(fleet.Interval + time.Second) //nolint:forbidigo // the bubble's clock
		b.setAway(true)
		time.Sleep(2 * fleet.Interval) //nolint:forbidigo // the bubble's clock
		b.setAway(false)
		time.Sleep(fleet.Interval + 3*time.Minute) //nolint:forbidigo // the bubble's clock
		end()
		<-done

		if len(b.reports) < 3 {
			t.Fatalf("%d reports came: %+v; want those of 0 s, 5 s, 20 s and later", len(b.reports), b.reports)
		}
		second, third, last := b.reports[1], b.reports[2], b.reports[len(b.reports)-1]
		if second.Checks != 200 || second.Span != fleet.Interval {
			t.Errorf("the second report counts %d checks in %s; want those of two looks in 5 s", second.Checks,
				second.Span)
		}
		if third.Checks != 500 || third.Span != 4*fleet.Interval {
			t.Errorf("the report after the outage counts %d checks in %s; want 500 in 20 s", third.Checks, third.Span)
		}
		if last.Span < time.Minute || last.Span > time.Minute+fleet.Interval {
			t.Errorf("the last report is of %s; want about the last minute", last.Span)
		}
		if got := last.ChecksPerSecond(); got != 20 {
			t.Errorf("that is %v checks per second; want 20", got)
		}
		if got := last.DegradedShare(); got != 0.25 {
			t.Errorf("%v of them degraded; want 0.25", got)
		}
		if len(b.ended) != 1 || b.ended[0] != "a" {
			t.Errorf("%q took their reports back; want a", b.ended)
		}
	})
}

func TestAReportWithoutChecksHasNoShares(t *testing.T) {
	t.Parallel()
	r := fleet.Report{}
	if r.ChecksPerSecond() != 0 || r.DegradedShare() != 0 {
		t.Errorf("an empty report says %v per second and %v degraded; want 0", r.ChecksPerSecond(), r.DegradedShare())
	}
}
