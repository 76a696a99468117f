package traffic

import (
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

type packKey struct {
	tenant  rules.TenantID
	day     int64 // since the Unix epoch, in UTC
	stratum int
	level   int
}

type pack struct {
	began  time.Time
	runs   map[string]*packedRun
	checks int
	bytes  int // approximate memory
	first  int64
	last   int64
}

type packedRun struct {
	Run
	at []int64 // in milliseconds; for sums, whole seconds
}

const (
	dayMillis  = 24 * 60 * 60 * 1000
	runBytes   = 300 // approximate memory with texts
	checkBytes = 8
	// lateSums is how many seconds back an existing sum is extended.
	lateSums = 10
)

func (r *Recorder) unpack(buffer []byte) {
	in := reader{rest: buffer}
	now := r.options.Now()
	for len(in.rest) > 0 {
		tenant := rules.TenantID(in.number())
		at := int64(binary.LittleEndian.Uint64(in.take(8)))
		head := in.take(3)
		stratum, level, flags := int(head[0]), int(head[1]), Flags(head[2])&allFlags
		isCounted := Flags(head[2]).Is(counted)
		// The rest is the same for all checks of a run; for sums and checks with meters, the rest after the costs.
		body := in.rest
		costs := append(make([]int64, 0, 1+rules.MaxMeters), int64(in.number()))
		var meters [rules.MaxMeters][]byte // those that are counted by month
		if flags.Is(Metered) {
			counts := [rules.MaxMeters]bool{}
			for i := range in.take(1)[0] {
				twice := in.number()
				costs, counts[i] = append(costs, int64(twice>>1)), twice&1 != 0
			}
			body = in.rest
			for i, n := 0, in.count(); n > 0; i, n = i+1, in.count() {
				if meter := in.take(n); counts[i] {
					meters[i] = meter
				}
			}
		} else if flags.Is(Sum) {
			body = in.rest
		}
		for range 3 {
			in.take(in.count())
		}
		if flags.Is(Sum) {
			at -= at % 1000
		} else {
			in.number()
			user := in.take(in.count())
			if !isCounted && r.countUser(tenant, at, user, flags.Is(Denied), costs, meters) {
				signal(r.monthly)
			}
			in.take(int(in.take(1)[0]))
			for {
				name := in.count()
				if name == 0 {
					break
				}
				in.take(name)
				in.take(in.count())
			}
		}
		identity := body[:len(body)-len(in.rest)]
		switch {
		case flags.Is(Sum):
			stratum = StratumOfSums
		case flags.Is(Extra):
			stratum = StratumOfExtras
		}
		key := packKey{tenant, at / dayMillis, stratum, level}
		p := r.packs[key]
		if p == nil {
			p = &pack{began: now, runs: map[string]*packedRun{}, first: math.MaxInt64}
			r.packs[key] = p
		}
		before := p.bytes
		p.add(flags, identity, at, costs)
		r.bytes += p.bytes - before
		r.recorded.Add(1)
		if p.checks >= MaxBlockChecks {
			r.finish(key, p)
		}
	}
}

func (r *Recorder) countUser(
	tenant rules.TenantID, at int64, user []byte, isDenied bool, costs []int64, meters [rules.MaxMeters][]byte,
) (isDue bool) {
	isDue = r.months.add(tenant, at, user, nil, decided(isDenied, costs[0]))
	for i, cost := range costs[1:] {
		if meters[i] != nil {
			isDue = r.months.add(tenant, at, user, meters[i], decided(isDenied, cost)) || isDue
		}
	}
	return isDue
}

func (p *pack) add(flags Flags, identity []byte, at int64, costs []int64) {
	var key [512]byte
	named := append(append(key[:0], byte(flags)), identity...)
	run := p.runs[string(named)]
	if run == nil {
		run = &packedRun{Run: readRun(flags, identity)}
		p.runs[string(named)] = run
		p.bytes += runBytes + 2*len(named)
	}
	p.checks++
	p.first, p.last = min(p.first, at), max(p.last, at)
	if flags.Is(Sum) {
		for i := len(run.at) - 1; i >= max(0, len(run.at)-lateSums); i-- {
			if run.at[i] == at {
				for j, sum := range run.CostsAt(i) {
					run.Costs[i*len(costs)+j] = sum + costs[j]
				}
				return
			}
		}
	}
	if flags.Is(Sum | Metered) {
		run.Costs = append(run.Costs, costs...)
		p.bytes += checkBytes * len(costs)
	}
	run.at = append(run.at, at)
	p.bytes += checkBytes
}

func readRun(flags Flags, identity []byte) Run {
	in := reader{rest: identity}
	text := func() string { return string(in.take(in.count())) }
	run := Run{Flags: flags}
	switch {
	case flags.Is(Metered):
		for meter := text(); meter != ""; meter = text() {
			run.Meters = append(run.Meters, rules.Meter(meter))
		}
	case !flags.Is(Sum):
		run.Cost = int64(in.number())
	}
	run.Plan, run.Method, run.Endpoint = text(), text(), text()
	if flags.Is(Sum) {
		return run
	}
	run.Decider = rules.RuleID(in.number())
	run.UserID = text()
	if ip, ok := netip.AddrFromSlice(in.take(int(in.take(1)[0]))); ok {
		run.IP = ip
	}
	for {
		name := text()
		if name == "" {
			return run
		}
		run.Attributes = append(run.Attributes, rules.Attribute{Name: name, Value: text()})
	}
}

func (p *pack) block(key packKey) Block {
	all := make([]*packedRun, 0, len(p.runs))
	for _, run := range p.runs {
		if run.Costs == nil {
			slices.Sort(run.at)
		} else {
			sortWithCosts(run)
		}
		all = append(all, run)
	}
	slices.SortFunc(all, func(a, b *packedRun) int {
		if a.at[0] != b.at[0] {
			return int(a.at[0] - b.at[0])
		}
		return compareRuns(&a.Run, &b.Run)
	})
	runs := make([]Run, len(all))
	for i, run := range all {
		run.Times = make([]uint32, len(run.at))
		for j, at := range run.at {
			run.Times[j] = uint32(at - p.first)
		}
		runs[i] = run.Run
	}
	block := Block{
		Tenant: key.tenant, Stratum: key.stratum, Level: key.level,
		First: time.UnixMilli(p.first).UTC(), Last: time.UnixMilli(p.last).UTC(),
	}
	block.SetRuns(runs)
	return block
}

func compareRuns(a, b *Run) int {
	for _, pair := range [][2]string{
		{a.UserID, b.UserID},
		{a.Endpoint, b.Endpoint},
		{a.Method, b.Method},
		{a.Plan, b.Plan},
	} {
		switch {
		case pair[0] < pair[1]:
			return -1
		case pair[0] > pair[1]:
			return 1
		}
	}
	return a.IP.Compare(b.IP)
}

func sortWithCosts(run *packedRun) {
	order := make([]int, len(run.at))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(run.at[a] - run.at[b]) })
	at, costs := make([]int64, len(order)), make([]int64, 0, len(run.Costs))
	for i, from := range order {
		at[i] = run.at[from]
		costs = append(costs, run.CostsAt(from)...)
	}
	run.at, run.Costs = at, costs
}
