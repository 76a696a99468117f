package enforce

import (
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

const (
	maxLessees, maxLesseesOfTenant = 1 << 16, 1 << 14
	// lesseeForgotten: a silent client's leases have ended by then.
	lesseeForgotten = 2 * time.Second
	lesseePace      = 5 * time.Millisecond
)

type lessee struct {
	key    Key
	holder string
}

func lesseeOf(key Key, holder string) lessee {
	if key.IsHashed() {
		digest := key.Digest()
		key.Subject = key.Subject[:maxSubject] + string(digest[:]) // longer than any that is kept as it is
	}
	return lessee{key, holder}
}

// lessees keeps clients' leases, so that asking for more, more often, or again gets no more than a share. Without room
// in the table a client gets nothing.
type lessees struct {
	now func() time.Time

	mu       sync.Mutex
	all      map[lessee]*lesseeState
	ofTenant map[rules.TenantID]int
	swept    time.Time
}

type lesseeState struct {
	asked    time.Time // last
	epoch    int64     // of the last grant
	presence int64     // its slot; 0 after an answer that was lost
	holders  int64     // of the bucket then
	lots     [MaxSlots]outstanding
}

type outstanding struct {
	slot   int64
	amount Tokens
	ends   time.Time
}

func (l *lessees) init(now func() time.Time) {
	l.now, l.all, l.ofTenant, l.swept = now, map[lessee]*lesseeState{}, map[rules.TenantID]int{}, now()
}

func (l *lessees) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

// ask returns the request to the store, if any; after an answer granted must follow.
func (l *lessees) ask(of lessee, ask Ask, limit Limit) (Ask, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	ask.Need, ask.Since = 0, 0
	e := l.all[of]
	switch {
	case e == nil && ask.Want == 0:
		return ask, len(ask.Returns) > 0
	case e == nil:
		if e = l.add(of, now); e == nil {
			ask.Want = 0
			return ask, len(ask.Returns) > 0
		}
	case ask.Want > 0 && now.Sub(e.asked) < lesseePace:
		// Too soon: without a Presence the store keeps counting this client once.
		ask.Want, ask.Presence = 0, 0
		e.report(&ask)
		return ask, len(ask.Returns) > 0
	default:
		ask.Since = now.Sub(e.asked).Microseconds()
		e.correct(&ask)
	}
	e.report(&ask)
	ask.Held = max(ask.Held, e.held(now))
	burst := float64(capacity(limit))
	most := min(lesseeShare*burst/float64(max(1, e.holders)), limit.Rate*lesseeLot.Seconds()*float64(Token))
	ask.Want = min(ask.Want, Tokens(most))
	e.asked, e.presence = now, 0
	if ask.Want == 0 { // it leaves
		l.remove(of)
	}
	return ask, true
}

// correct counts a client once even if it missed its last grant; a later epoch comes from another server.
func (e *lesseeState) correct(ask *Ask) {
	switch {
	case ask.Epoch > e.epoch:
	case ask.Epoch < e.epoch:
		ask.Returns = nil // of tokens that the store has forgotten
		ask.Epoch, ask.Presence = e.epoch, e.presence
	default:
		ask.Presence = max(ask.Presence, e.presence)
	}
}

func (l *lessees) granted(to lessee, lease *Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.all[to]
	if e == nil || lease.Ask.Want == 0 {
		return
	}
	g := &lease.Grant
	if g.Epoch != e.epoch {
		e.lots = [MaxSlots]outstanding{}
	}
	e.epoch, e.presence, e.holders = g.Epoch, g.Slot, g.Holders
	at := &e.lots[0]
	for i := range e.lots {
		if e.lots[i].slot == g.Slot {
			at = &e.lots[i]
			break
		}
		if e.lots[i].ends.Before(at.ends) {
			at = &e.lots[i]
		}
	}
	if at.slot != g.Slot {
		*at = outstanding{slot: g.Slot}
	}
	at.amount += g.Amount
	at.ends = l.now().Add(LeaseLife)
}

func (e *lesseeState) report(ask *Ask) {
	for _, r := range ask.Returns {
		for i := range e.lots {
			if e.lots[i].slot == r.Slot {
				e.lots[i].amount = max(0, e.lots[i].amount-r.Spent-r.Back)
			}
		}
	}
}

func (e *lesseeState) held(now time.Time) (sum Tokens) {
	for i := range e.lots {
		if now.Before(e.lots[i].ends) {
			sum += e.lots[i].amount
		}
	}
	return sum
}

func (l *lessees) add(of lessee, now time.Time) *lesseeState {
	isFull := len(l.all) >= maxLessees || l.ofTenant[of.key.Tenant] >= maxLesseesOfTenant
	if since := now.Sub(l.swept); since > lesseeForgotten || isFull && since > lesseePace {
		l.sweep(now)
	}
	if len(l.all) >= maxLessees || l.ofTenant[of.key.Tenant] >= maxLesseesOfTenant {
		return nil
	}
	e := &lesseeState{holders: 1, asked: now}
	l.all[of] = e
	l.ofTenant[of.key.Tenant]++
	return e
}

func (l *lessees) sweep(now time.Time) {
	l.swept = now
	for of, e := range l.all {
		if now.Sub(e.asked) > lesseeForgotten {
			l.remove(of)
		}
	}
}

func (l *lessees) remove(of lessee) {
	delete(l.all, of)
	if l.ofTenant[of.key.Tenant]--; l.ofTenant[of.key.Tenant] == 0 {
		delete(l.ofTenant, of.key.Tenant)
	}
}
