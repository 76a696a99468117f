package snapshot

import (
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

// draft builds a Snapshot from pages of rows and can be discarded at any time; a row that equals the held one costs no
// lasting memory.
type draft struct {
	from    *Snapshot
	tenants map[rules.TenantID]*tenantDraft
	keys    tableEdit[string, *Key]
	names   map[string]string
	// reread marks a draft of a reread, and same its unchanged tenants, whose newer rows alone come. Missing rows of
	// others are found by counting, because a list of a million would double the memory of the read.
	reread  bool
	same    map[rules.TenantID]bool
	newKeys bool
	// began and readAt are in microseconds.
	began, readAt int64
}

func newDraft(from *Snapshot) *draft {
	return &draft{
		from: from, tenants: map[rules.TenantID]*tenantDraft{}, names: map[string]string{}, keys: editTable(from.keys),
		began: time.Now().UnixMicro(), readAt: from.readAt,
	}
}

func newReread(from *Snapshot, same map[rules.TenantID]bool, readAt time.Time) *draft {
	d := newDraft(from)
	d.reread, d.same, d.readAt = true, same, readAt.UnixMicro()
	d.keys = tableEdit[string, *Key]{}
	for id, key := range from.keys.all() {
		if same[key.TenantID] {
			d.keys.set(id, key)
		}
	}
	return d
}

func (d *draft) forget(ids []rules.TenantID) {
	for _, id := range ids {
		t := d.newTenant(new(Tenant), false)
		t.was = d.from.Tenant(id)
		d.tenants[id] = t
	}
}

func (d *draft) add(rows *Rows) {
	for i := range rows.Tenants {
		row := &rows.Tenants[i]
		t := d.tenant(row.ID)
		if t == nil {
			t = d.newTenant(new(Tenant), true)
			d.tenants[row.ID] = t
		}
		t.tenant, t.exists = *row, !row.Removed
	}
	addEach(d, rows.Plans, func(r *rules.Plan) rules.TenantID { return r.TenantID }, (*tenantDraft).addPlan)
	addEach(d, rows.Rules, func(r *rules.Rule) rules.TenantID { return r.TenantID }, (*tenantDraft).addRule)
	addEach(d, rows.Overrides, func(r *rules.Override) rules.TenantID { return r.TenantID }, (*tenantDraft).addOverride)
	addEach(d, rows.Steps, func(r *rules.Step) rules.TenantID { return r.TenantID }, (*tenantDraft).addStep)
	addEach(d, rows.Assignments, func(r *rules.Assignment) rules.TenantID { return r.TenantID },
		(*tenantDraft).addAssignment)
	addEach(d, rows.Gateways, func(r *rules.Gateway) rules.TenantID { return r.TenantID }, (*tenantDraft).addGateway)
	for i := range rows.Keys {
		d.addKey(&rows.Keys[i])
	}
}

// addEach drops rows of unknown tenants.
func addEach[T any](d *draft, rows []T, tenant func(*T) rules.TenantID, add func(*tenantDraft, *T)) {
	for i := range rows {
		if t := d.tenant(tenant(&rows[i])); t != nil {
			add(t, &rows[i])
		}
	}
}

func (d *draft) tenant(id rules.TenantID) *tenantDraft {
	if t, ok := d.tenants[id]; ok {
		return t
	}
	held := d.from.Tenant(id)
	if held == nil {
		return nil
	}
	t := d.newTenant(held, !d.reread || d.same[id])
	d.tenants[id] = t
	return t
}

// intern shares one copy of a text that many rows repeat.
func (d *draft) intern(name string) string {
	if one, ok := d.names[name]; ok {
		return one
	}
	d.names[name] = name
	return name
}

// addKey keeps a revoked key revoked: neither a lagging replica nor a restored backup may revive a leaked key.
func (d *draft) addKey(row *auth.Key) {
	key, held := d.keys.get(row.ID)
	if !held {
		key, held = d.from.keys.get(row.ID)
	}
	if !held || !key.Revoked && !sameKey(&key.Key, row) {
		key, d.newKeys = &Key{Key: *row}, true
	}
	d.keys.set(row.ID, key)
}

func (d *draft) keepRevoked(other *Snapshot) {
	for _, key := range other.keys.all() {
		if key.Revoked {
			d.addKey(&key.Key)
		}
	}
}

// snapshot returns the original if nothing changed. lost are the tenants of a reread with missing rows.
func (d *draft) snapshot() (next *Snapshot, lost []rules.TenantID) {
	sizes := d.from.sizes
	tenants := editTable(d.from.tenants)
	for id, t := range d.tenants {
		held := d.from.Tenant(id)
		if !t.exists {
			tenants.remove(id)
			sizes.replace(held, nil)
			continue
		}
		if d.reread && !d.same[id] && t.lostRows() {
			lost = append(lost, id)
		}
		built := t.build(d.readAt)
		tenants.set(id, built)
		sizes.replace(held, built)
	}
	if d.reread {
		for id, held := range d.from.tenants.all() {
			if _, seen := d.tenants[id]; seen {
				continue
			}
			if d.same[id] {
				tenants.set(id, held.withReadAt(d.readAt))
				continue
			}
			tenants.remove(id)
			sizes.replace(held, nil)
		}
	}
	keys, keysChanged := d.finishKeys()
	if !tenants.changed && !keysChanged && d.readAt == d.from.readAt {
		return d.from, lost
	}
	sizes.Keys = keys.size
	return &Snapshot{tenants: tenants.table, keys: keys, sizes: sizes, readAt: d.readAt}, lost
}

type news struct {
	slowed  []rules.Slowdown
	unknown []*rules.Rule // active ones
}

func (n *news) add(other news) {
	n.slowed = append(n.slowed, other.slowed...)
	n.unknown = append(n.unknown, other.unknown...)
}

func (d *draft) news() (all news) {
	for _, t := range d.tenants {
		if t.exists {
			all.add(t.news)
		}
	}
	return all
}

func (d *draft) finishKeys() (keys table[string, *Key], changed bool) {
	if !d.reread {
		return d.keys.table, d.keys.changed
	}
	d.keepRevoked(d.from)
	if !d.newKeys && d.keys.size == d.from.keys.size {
		return d.from.keys, false
	}
	return d.keys.table, true
}

func (s *Sizes) replace(old, next *Tenant) {
	s.add(old, -1)
	s.add(next, 1)
}

func (s *Sizes) add(t *Tenant, sign int) {
	if t == nil {
		return
	}
	s.Tenants += sign
	if t.Tenant.InShadow {
		s.TenantsInShadow += sign
	}
	s.Rules += sign * t.rules.size
	s.UnknownRules += sign * t.unknownRules
	s.AdaptingRules += sign * len(t.adapting)
	s.Overrides += sign * t.overrides.size
	s.Assignments += sign * t.assignments.size
}

type tenantDraft struct {
	draft       *draft
	held        *Tenant // its start
	exists      bool    // the tenant's row is held or was read
	tenant      rules.Tenant
	plans       tableEdit[string, string]
	rules       tableEdit[rules.RuleID, *rules.Rule]
	overrides   tableEdit[overrideKey, override]
	assignments tableEdit[string, string]
	gateways    tableEdit[rules.GatewayKind, rules.Gateway]
	steps       tableEdit[rules.RuleID, step]

	// the base of comparison for news
	was *Tenant
	news
}

func (d *draft) newTenant(held *Tenant, exists bool) *tenantDraft {
	return &tenantDraft{
		draft:       d,
		held:        held,
		was:         held,
		exists:      exists,
		tenant:      held.Tenant,
		plans:       editTable(held.plans),
		rules:       editTable(held.rules),
		overrides:   editTable(held.overrides),
		assignments: editTable(held.assignments),
		gateways:    editTable(held.gateways),
		steps:       editTable(held.steps),
	}
}

func (t *tenantDraft) addPlan(row *rules.Plan) {
	if row.Removed {
		t.plans.remove(row.Name)
		return
	}
	t.plans.set(row.Name, row.Name)
}

func (t *tenantDraft) addRule(row *rules.Rule) {
	if row.Removed {
		t.rules.remove(row.ID)
		return
	}
	if held, ok := t.rules.get(row.ID); ok && sameRule(held, row) {
		t.rules.seen++
		return
	}
	t.noteRule(row)
	rule := *row
	rule.Unknown = rule.UnknownWord()
	if rule.Unknown != "" && rule.Active {
		t.unknown = append(t.unknown, &rule)
	}
	intern := t.draft.intern
	rule.Plan, rule.Meter = intern(row.Plan), rules.Meter(intern(string(row.Meter)))
	rule.Mode, rule.Action = rules.Mode(intern(string(row.Mode))), rules.Action(intern(string(row.Action)))
	rule.FailureMode = rules.FailureMode(intern(string(row.FailureMode)))
	rule.RateUnit, rule.Algorithm = rules.RateUnit(intern(string(row.RateUnit))),
		rules.Algorithm(intern(string(row.Algorithm)))
	t.rules.set(rule.ID, &rule)
}

func (t *tenantDraft) addOverride(row *rules.Override) {
	key, next := overrideKey{row.RuleID, row.UserID}, newOverride(row)
	t.noteOverride(key, next)
	t.overrides.set(key, next)
}

func (t *tenantDraft) addAssignment(row *rules.Assignment) {
	if row.Removed {
		t.assignments.remove(row.UserID)
		return
	}
	t.assignments.set(row.UserID, t.draft.intern(row.Plan))
}

func (t *tenantDraft) lostRows() bool {
	return t.plans.lostRows() || t.rules.lostRows() || t.overrides.lostRows() || t.assignments.lostRows() ||
		t.gateways.lostRows() || t.steps.lostRows()
}

func (t *tenantDraft) build(readAt int64) *Tenant {
	if t.held.index != nil && t.tenant == t.held.Tenant && !t.plans.changed && !t.rules.changed &&
		!t.overrides.changed && !t.assignments.changed && !t.gateways.changed && !t.steps.changed &&
		t.held.readAt == readAt {
		return t.held
	}
	built := &Tenant{
		Tenant:      t.tenant,
		plans:       t.plans.table,
		rules:       t.rules.table,
		overrides:   t.overrides.table,
		overridden:  t.held.overridden,
		assignments: t.assignments.table,
		gateways:    t.gateways.table,
		mappings:    t.held.mappings,
		index:       t.held.index,
		steps:       t.steps.table,
		readAt:      readAt,

		unknownRules: t.held.unknownRules,
		adapting:     t.held.adapting,
	}
	if t.overrides.changed || built.overridden == nil {
		built.overridden = sync.OnceValue(func() map[rules.RuleID]bool { return rulesOf(built.overrides) })
	}
	if t.gateways.changed {
		built.mappings = compileMappings(built.gateways)
	}
	if t.rules.changed || built.index == nil {
		built.index = newIndex(built.rules)
		built.adapting = adaptingRules(built.index)
		built.unknownRules = 0
		for _, rule := range built.index.rules {
			if rule.Unknown != "" && rule.Active {
				built.unknownRules++
			}
		}
	}
	return built
}

func (t *Tenant) withReadAt(readAt int64) *Tenant {
	if t.readAt == readAt {
		return t
	}
	next := *t
	next.readAt = readAt
	return &next
}

func sameKey(a, b *auth.Key) bool {
	return a.ID == b.ID && a.TenantID == b.TenantID && a.Digest == b.Digest &&
		slices.Equal(a.Permissions, b.Permissions) && slices.Equal(a.Networks, b.Networks) &&
		a.ExpiresAt.Equal(b.ExpiresAt) &&
		a.Revoked == b.Revoked && a.Revision == b.Revision
}

// sameRule compares all fields, because a reread must also find edits that bypassed the platform.
func sameRule(a, b *rules.Rule) bool {
	x, y := *a, *b
	for _, times := range [][2]*time.Time{
		{&x.ExpiresAt, &y.ExpiresAt},
		{&x.InForceSince, &y.InForceSince},
		{&x.CreatedAt, &y.CreatedAt},
		{&x.UpdatedAt, &y.UpdatedAt},
	} {
		if times[0].Equal(*times[1]) {
			*times[0] = *times[1]
		}
	}
	if x.Pattern.String() == y.Pattern.String() {
		x.Pattern = y.Pattern
	}
	x.Unknown, y.Unknown = "", "" // it follows from the others
	return reflect.DeepEqual(&x, &y)
}
