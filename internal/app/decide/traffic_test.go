package decide

import (
	"context"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/membucket"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/snapshot"
	"github.com/sluicegate/sluice/internal/traffic"
)

// keptTraffic is a traffic.Sink that keeps what it is given.
type keptTraffic struct {
	blocks []traffic.Block
	months []traffic.UserMonth
}

func (k *keptTraffic) WriteTraffic(_ context.Context, blocks []traffic.Block) error {
	k.blocks = append(k.blocks, blocks...)
	return nil
}

func (k *keptTraffic) WriteUserMonths(_ context.Context, _ string, _ int64, counts []traffic.UserMonth) error {
	k.months = append(k.months, counts...)
	return nil
}

func (*keptTraffic) TrafficUsage(context.Context, []rules.TenantID) ([]traffic.Usage, int64, int, error) {
	return nil, 0, 1, nil
}

// TestChecksThatClientsDecidedAreRecordedOneByOne: a report in bulk is as many checks, spread over the time since the one before.
func TestChecksThatClientsDecidedAreRecordedOneByOne(t *testing.T) {
	t.Parallel()
	settings := rules.DefaultSettings()
	settings.RecordDays = 7
	tenant := snapshot.New(snapshot.Rows{Tenants: []rules.Tenant{{ID: 1, Slug: "acme", Settings: settings}}}).Tenant(1)
	sink := &keptTraffic{}
	recorder := traffic.NewRecorder(sink, traffic.Options{})
	lessor := enforce.NewLessor(membucket.New(membucket.Options{}), recordingTraffic{recorder}, nil, func(err error) { t.Error(err) })
	for _, allowed := range []int64{250, maxRecorded + 5} {
		lessor.Lease(t.Context(), tenant, &enforce.LesseeRequest{Holder: "a", Checks: []enforce.LesseeCheck{{
			Check: enforce.Check{Cost: enforce.Token, Request: rules.Request{UserID: "42"}}, Allowed: allowed,
		}}})
	}
	ended, end := context.WithCancel(t.Context())
	end()
	recorder.Run(ended, time.Minute)
	recorded, times := 0, map[int64]bool{}
	var counts traffic.Counts
	for i := range sink.blocks {
		runs, err := sink.blocks[i].Runs()
		if err != nil {
			t.Fatal(err)
		}
		for j := range runs {
			recorded += len(runs[j].Times)
			for _, at := range runs[j].Times {
				times[int64(at)] = true
			}
		}
		counts.Seen += sink.blocks[i].Seen
		counts.Dropped += sink.blocks[i].Dropped
	}
	if recorded != 250+maxRecorded || counts.Seen != 250+maxRecorded+5 || counts.Dropped != 5 {
		t.Errorf("%d checks are recorded; the counts are %+v", recorded, counts)
	}
	if len(times) < 200 {
		t.Errorf("they are in %d milliseconds", len(times))
	}
}
