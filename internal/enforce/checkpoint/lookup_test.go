package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/store/membucket"
)

const patience = time.Minute

var daily = enforce.Limit{Burst: 1000, Interval: (24 * time.Hour).Microseconds(), Kind: rules.KindFixedWindow}

func tier(tenant rules.TenantID, subject string) enforce.Tier {
	return enforce.Tier{Key: enforce.Key{Tenant: tenant, Rule: 7, Subject: subject}, Limit: daily}
}

type reader struct {
	asked    chan []rules.CheckpointPlace
	let      chan error
	failures atomic.Int64
}

func (r *reader) CheckpointsOf(ctx context.Context, places []rules.CheckpointPlace) (rows []rules.Checkpoint,
	err error,
) {
	r.asked <- places
	select {
	case err = <-r.let:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	for _, place := range places {
		if place.Subject != "new" {
			state := enforce.NewState(daily, time.Now().UnixMicro())
			state.Level.Micros = 300 * enforce.Token
			rows = append(rows, rules.Checkpoint{CheckpointPlace: place, Stamp: state.Stamp, State: state.Append(nil)})
		}
	}
	return rows, err
}

// TenantsWithCheckpoints implements Reader: the third tenant has none.
func (r *reader) TenantsWithCheckpoints(_ context.Context, tenants []rules.TenantID) ([]rules.TenantID, error) {
	if r.failures.Add(-1) >= 0 {
		return nil, errors.New("the database is busy")
	}
	return slices.DeleteFunc(slices.Clone(tenants), func(t rules.TenantID) bool { return t == 3 }), nil
}

func open() (*membucket.Store, *reader, *Lookups) {
	memory := membucket.New(membucket.Options{CheckpointAbove: time.Hour})
	r := &reader{asked: make(chan []rules.CheckpointPlace, 100), let: make(chan error)}
	return memory, r, NewLookups(memory, r, patience, slog.New(slog.DiscardHandler))
}

func TestLocalBucketsBeginAsTheirCheckpoints(t *testing.T) {
	t.Parallel()
	memory, r, lookups := open()
	short := tier(1, "short")
	short.Limit = enforce.Limit{Rate: 1, Burst: 10}
	tiers := []enforce.Tier{tier(1, "42"), tier(1, "new"), short}
	found := make(chan []enforce.Tier)
	go func() { found <- lookups.RestoreLocal(tiers) }()
	if places := <-r.asked; len(places) != 2 {
		t.Errorf("%d buckets are looked up, want the two with a long limit", len(places))
	}
	r.let <- nil
	if unknown := <-found; len(unknown) != 0 {
		t.Errorf("%d buckets are unknown", len(unknown))
	}
	if unknown := lookups.RestoreLocal(tiers); len(unknown) != 0 { // asks nobody
		t.Errorf("%d buckets are unknown", len(unknown))
	}
	checks := []enforce.BucketCheck{{Cost: enforce.Token, Tiers: tiers}}
	_ = memory.Take(t.Context(), checks)
	for i, want := range []int64{299, 999, 9} {
		if left := tiers[i].Bucket.Level.Micros.Whole(); left != want {
			t.Errorf("bucket %d has %d, want %d", i, left, want)
		}
	}
}

func TestBucketsThatCannotBeLookedUpAreUnknown(t *testing.T) {
	t.Parallel()
	_, r, lookups := open()
	known, other := tier(1, "42"), tier(2, "43")
	found := make(chan []enforce.Tier)
	go func() { found <- lookups.RestoreLocal([]enforce.Tier{known}) }()
	<-r.asked
	r.let <- nil
	<-found
	go func() { found <- lookups.RestoreLocal([]enforce.Tier{known, other}) }()
	<-r.asked
	r.let <- errors.New("the database is away")
	if unknown := <-found; len(unknown) != 1 || unknown[0].Key != other.Key {
		t.Errorf("%v are unknown, want the other", unknown)
	}
	if unknown := lookups.RestoreLocal([]enforce.Tier{other}); len(unknown) != 1 {
		t.Errorf("%v are unknown", unknown)
	}
}

func TestAStaleCopyIsLookedUp(t *testing.T) {
	t.Parallel()
	memory, r, lookups := open()
	learn := func(subject string, age time.Duration, left enforce.Tokens) enforce.Tier {
		one := tier(1, subject)
		one.Limit.Interval = rules.MaxWindow.Microseconds() // another begins in no test
		state := enforce.NewState(one.Limit, time.Now().Add(-age).UnixMicro())
		state.Level.Micros = left * enforce.Token
		memory.Learn(one.Key, state)
		return one
	}
	tiers := []enforce.Tier{
		learn("stale", time.Minute, 900), learn("new", time.Minute, 800), learn("fresh", 0, 700),
	}
	unlucky := []enforce.Tier{learn("unlucky", time.Minute, 600)}
	found := make(chan []enforce.Tier)
	for _, test := range []struct {
		tiers   []enforce.Tier
		asked   int
		failure error
	}{{unlucky, 1, errors.New("the database is away")}, {tiers, 2, nil}} {
		lookups.restsTo = time.Time{}
		go func() { found <- lookups.RestoreLocal(test.tiers) }()
		if places := <-r.asked; len(places) != test.asked {
			t.Errorf("%v are looked up, want the %d of a minute ago", places, test.asked)
		}
		if others := memory.Unknown(test.tiers); len(others) != 0 {
			t.Errorf("meanwhile another check waits for %v", others)
		}
		r.let <- test.failure
		if unknown := <-found; len(unknown) != 0 {
			t.Errorf("%v are unknown, although copies are held", unknown)
		}
	}
	for range 2 {
		if unknown := lookups.RestoreLocal(tiers); len(unknown) != 0 { // asks nobody
			t.Errorf("%v are unknown", unknown)
		}
	}
	_ = memory.Take(t.Context(), []enforce.BucketCheck{{Cost: enforce.Token, Tiers: tiers}})
	for i, want := range []int64{299, 799, 699} {
		if left := tiers[i].Bucket.Level.Micros.Whole(); left != want {
			t.Errorf("the %s bucket has %d, want %d", tiers[i].Key.Subject, left, want)
		}
	}
}

// While the store is away, a bucket without a checkpoint is taken for full; what others know counts later.
func TestAGuessIsNoKnowledge(t *testing.T) {
	t.Parallel()
	memory, r, lookups := open()
	guessed := tier(1, "new")
	found := make(chan []enforce.Tier)
	go func() { found <- lookups.RestoreLocal([]enforce.Tier{guessed}) }()
	<-r.asked
	r.let <- nil
	if unknown := <-found; len(unknown) > 0 {
		t.Fatalf("%v are unknown", unknown)
	}
	if known, ok := memory.Newest(guessed.Key); !ok || known.Stamp != 1 {
		t.Errorf("the guess counts as known since %d", known.Stamp)
	}
	learned := enforce.NewState(daily, time.Now().UnixMicro())
	memory.Learn(guessed.Key, learned)
	if known, _ := memory.Newest(guessed.Key); known.Stamp != learned.Stamp {
		t.Errorf("what was learned counts as known since %d", known.Stamp)
	}
}

func TestATenantThatInventsUsersDelaysNoOther(t *testing.T) {
	t.Parallel()
	_, r, lookups := open()
	done := make(chan answer, 10_000)
	ask := func(one enforce.Tier) error {
		return lookups.ask([]lookup{{key: one.Key, done: done}})
	}
	if err := ask(tier(1, "first")); err != nil {
		t.Fatal(err)
	}
	<-r.asked
	refused := 0
	for i := range waitingOfTenant + 1000 {
		if errors.Is(ask(tier(1, fmt.Sprint("invented ", i))), errCrowded) {
			refused++
		}
	}
	if refused != 1000 {
		t.Errorf("%d look-ups of the greedy tenant are refused, want 1000", refused)
	}
	found := make(chan []enforce.Tier)
	go func() { found <- lookups.RestoreLocal([]enforce.Tier{tier(2, "quiet")}) }()
	waits := func() bool {
		lookups.mu.Lock()
		defer lookups.mu.Unlock()
		return len(lookups.lines[2]) > 0
	}
	for !waits() {
		runtime.Gosched()
	}
	r.let <- nil
	if places := <-r.asked; len(places) != askedAtOnce ||
		!slices.ContainsFunc(places, func(p rules.CheckpointPlace) bool { return p.Tenant == 2 }) {
		t.Errorf("the next query has %d buckets, and none of the quiet tenant", len(places))
	}
	r.let <- nil
	if unknown := <-found; len(unknown) != 0 {
		t.Errorf("%v are unknown", unknown)
	}
	for range waitingOfTenant / askedAtOnce {
		<-r.asked
		r.let <- nil
	}
}

func TestAStoreThatLostBucketsGetsTheNewestStates(t *testing.T) {
	t.Parallel()
	memory, r, lookups := open()
	keys := []enforce.Key{tier(1, "42").Key, tier(1, "new").Key, tier(1, "busy").Key}
	later := enforce.NewState(daily, time.Now().Add(time.Minute).UnixMicro())
	later.Level.Micros = 100 * enforce.Token
	memory.Learn(keys[2], later)
	found := make(chan []enforce.Checkpoint)
	recoverAll := func() {
		known, isNew, err := lookups.Recover(keys, time.Now().UnixMicro())
		if isNew || err != nil {
			t.Errorf("new: %v, error %v", isNew, err)
		}
		found <- known
	}
	go recoverAll()
	<-r.asked
	r.let <- nil
	known := <-found
	if known[0].State.Level.Micros != 300*enforce.Token || known[1].Stamp != 0 || known[2].State != later {
		t.Errorf("found %+v", known)
	}
}

func TestATenantWithoutCheckpointsIsNew(t *testing.T) {
	t.Parallel()
	memory, r, lookups := open()
	r.failures.Store(2)
	newTenant, old := []enforce.Key{tier(3, "new").Key}, []enforce.Key{tier(1, "new").Key}
	asked := 0
	recoverOne := func(keys []enforce.Key, era int64) (isNew bool) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			var err error
			if _, isNew, err = lookups.Recover(keys, era); err != nil {
				t.Error(err)
			}
		}()
		select {
		case <-r.asked:
			asked++
			r.let <- nil
			<-done
		case <-done:
		}
		return isNew
	}
	for !recoverOne(newTenant, 1000) {
	}
	if asked < 3 {
		t.Errorf("the tenant is new after %d look-ups, although the first two questions about it failed", asked)
	}
	asked = 0
	if isNew := recoverOne(newTenant, 1000); !isNew || asked > 0 {
		t.Errorf("new: %v, after %d look-ups", isNew, asked)
	}
	for range 3 {
		if recoverOne(old, 1000) {
			t.Error("a tenant with checkpoints is new")
		}
	}
	if recoverOne(newTenant, 2000) {
		t.Error("a tenant is new in another era that nobody has asked about")
	}
	isFound := func(era int64) bool {
		lookups.mu.Lock()
		defer lookups.mu.Unlock()
		return lookups.known[3].began == era
	}
	memory.Learn(tier(3, "held").Key, enforce.State{Bucket: enforce.Bucket{Stamp: 2500, Limit: daily}})
	for _, era := range []int64{2400, 2600} {
		for !isFound(era) {
			recoverOne(newTenant, era)
		}
		if isNew := recoverOne(newTenant, era); isNew != (era < 2500) {
			t.Errorf("a tenant whose bucket was known at 2500 is new in an era that began at %d: %t", era, isNew)
		}
	}
}
