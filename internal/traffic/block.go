package traffic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/sluicegate/sluice/internal/rules"
)

// Block contains checks of one tenant, day and stratum, as stored.
type Block struct {
	Tenant      rules.TenantID
	Writer      string // a Recorder and its block, from 1; a repeated block is stored once
	Number      int64
	First, Last time.Time // in milliseconds, on one day in UTC
	Stratum     int       // the checks', StratumOfSums or StratumOfExtras
	Level       int       // of the sample at the time: 1/4^Level of users and addresses
	Checks      int       // without sums
	Counts
	// Users are in order of first use, outside of the payload, so that a store finds a user's blocks for an erasure.
	Users   []string
	Payload []byte // compressed
}

// Bytes is the block's size in a budget.
func (b *Block) Bytes() int {
	n := len(b.Payload) + blockBytes
	for _, user := range b.Users {
		n += len(user) + 1
	}
	return n
}

const blockBytes = 200

// Counts count a tenant's checks since its previous block.
type Counts struct {
	// Seen are all checks, LeftOut those that are not recorded because they reserve, Dropped those beyond a bound.
	Seen, LeftOut, Dropped int64
}

func (c *Counts) add(other Counts) {
	c.Seen += other.Seen
	c.LeftOut += other.LeftOut
	c.Dropped += other.Dropped
}

// Run is a set of checks that differ only in time.
type Run struct {
	UserID, Plan, Method, Endpoint string
	IP                             netip.Addr
	Attributes                     []rules.Attribute
	Cost                           int64         // of each check, of requests, in millionths; unused if there are Costs
	Meters                         []rules.Meter // what checks cost beside requests
	Decider                        rules.RuleID  // 0: allowed, or denied only by exhausted reservations
	Flags                          Flags
	Times                          []uint32 // milliseconds since the Block's First, ascending
	// Costs has for each time of sums and checks with Meters the cost of requests, then of Meters; nil for others.
	Costs []int64
}

// Flags describe a Run.
type Flags uint8

// The flags.
const (
	Denied Flags = 1 << iota
	Proxied
	Extra   // denied, outside of the sample
	Sum     // costs outside of the sample, added up by second
	Metered // with costs of other meters than requests
	Record  // charged after it had happened
	counted // by month already; only in a buffer

	allFlags = Denied | Proxied | Extra | Sum | Metered | Record
)

// Is reports whether any flag is set.
func (f Flags) Is(flag Flags) bool { return f&flag != 0 }

// CostsAt returns the costs of a time by its index: that of requests, then those of Meters.
func (r *Run) CostsAt(time int) []int64 {
	n := 1 + len(r.Meters)
	return r.Costs[time*n : (time+1)*n]
}

// IsExtra reports whether the run may be listed, but not extrapolated.
func (r *Run) IsExtra() bool { return r.Flags.Is(Extra) }

// Request returns the checks' request.
func (r *Run) Request() rules.Request {
	return rules.Request{UserID: r.UserID, Method: r.Method, Endpoint: r.Endpoint, IP: r.IP, Attributes: r.Attributes}
}

const (
	// Blocks with meters or records have a second version, which processes that know neither refuse.
	plainVersion   = 1
	meteredVersion = 2
	maxPayload     = 64 << 20 // to read a block in bounded memory
	// MaxBlockChecks bounds the checks of a block.
	MaxBlockChecks = 32 << 10
)

var (
	encoder = must(zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
		zstd.WithLowerEncoderMem(true)))
	decoder = must(zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxPayload)))

	errCorrupt = errors.New("a recorded block is damaged")
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err) // the options are constants
	}
	return value
}

// SetRuns packs runs, whose Times are relative to First. Columns and a dictionary of texts compress well.
func (b *Block) SetRuns(runs []Run) {
	texts := dictionary{index: map[string]uint64{}}
	users := dictionary{index: map[string]uint64{}}
	var columns [8][]byte
	put := func(column int, n uint64) { columns[column] = binary.AppendUvarint(columns[column], n) }
	b.Checks = 0
	version := byte(plainVersion)
	for i := range runs {
		r := &runs[i]
		put(0, uint64(r.Flags))
		put(0, uint64(r.Cost))
		put(0, uint64(r.Decider))
		put(1, users.of(r.UserID))
		ip, _ := r.IP.MarshalBinary() // never fails
		columns[2] = append(append(columns[2], byte(len(ip))), ip...)
		put(3, texts.of(r.Plan))
		put(3, texts.of(r.Method))
		put(3, texts.of(r.Endpoint))
		put(4, uint64(len(r.Attributes)))
		for _, a := range r.Attributes {
			put(4, texts.of(a.Name))
			put(4, texts.of(a.Value))
		}
		if r.Flags.Is(Metered) {
			put(4, uint64(len(r.Meters)))
			for _, meter := range r.Meters {
				put(4, texts.of(string(meter)))
			}
		}
		if r.Flags.Is(Metered | Record) {
			version = meteredVersion
		}
		put(5, uint64(len(r.Times)))
		before := uint32(0)
		for _, at := range r.Times {
			put(6, uint64(at-before))
			before = at
		}
		for _, cost := range r.Costs {
			put(7, uint64(cost))
		}
		if !r.Flags.Is(Sum) {
			b.Checks += len(r.Times)
		}
	}
	raw := append([]byte(nil), version)
	raw = binary.AppendUvarint(raw, uint64(len(texts.all)))
	for _, text := range texts.all {
		raw = append(binary.AppendUvarint(raw, uint64(len(text))), text...)
	}
	raw = binary.AppendUvarint(raw, uint64(len(runs)))
	for _, column := range columns {
		raw = append(binary.AppendUvarint(raw, uint64(len(column))), column...)
	}
	b.Users = users.all
	b.Payload = encoder.EncodeAll(raw, nil)
}

type dictionary struct {
	index map[string]uint64
	all   []string
}

func (d *dictionary) of(text string) uint64 {
	if text == "" {
		return 0
	}
	n, ok := d.index[text]
	if !ok {
		d.all = append(d.all, text)
		n = uint64(len(d.all))
		d.index[text] = n
	}
	return n
}

// Runs unpacks the block.
func (b *Block) Runs() ([]Run, error) { return b.runs(nil) }

// RunsOf unpacks the runs of one user, in a fraction of the time.
func (b *Block) RunsOf(user string) ([]Run, error) { return b.runs(&user) }

func (b *Block) runs(of *string) ([]Run, error) {
	raw, err := decoder.DecodeAll(b.Payload, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCorrupt, err)
	}
	if len(raw) == 0 || raw[0] != plainVersion && raw[0] != meteredVersion {
		return nil, fmt.Errorf("%w: it was written by another version", errCorrupt)
	}
	in := &reader{rest: raw[1:]}
	texts := make([]string, in.count())
	for i := range texts {
		texts[i] = string(in.take(in.count()))
	}
	n := in.count()
	var columns [8]reader
	for i := range columns {
		columns[i].rest = in.take(in.count())
	}
	if in.wrong || n > len(columns[0].rest) { // each run takes some bytes of the first column
		return nil, errCorrupt
	}
	lookUp := func(column int, in []string) string {
		place := columns[column].number()
		switch {
		case place == 0:
			return ""
		case place > uint64(len(in)):
			columns[column].wrong = true
			return ""
		}
		return in[place-1]
	}
	var runs []Run
	if of == nil {
		runs = make([]Run, 0, n)
	}
	for range n {
		var r Run
		r.Flags = Flags(columns[0].number()) & allFlags
		r.Cost, r.Decider = int64(columns[0].number()), rules.RuleID(columns[0].number())
		r.UserID = lookUp(1, b.Users)
		if of != nil && r.UserID != *of {
			skipRun(&columns, r.Flags)
			continue
		}
		size := columns[2].take(1)
		if len(size) == 1 && r.IP.UnmarshalBinary(columns[2].take(int(size[0]))) != nil {
			columns[2].wrong = true
		}
		r.Plan, r.Method, r.Endpoint = lookUp(3, texts), lookUp(3, texts), lookUp(3, texts)
		if attributes := columns[4].count(); attributes > 0 {
			r.Attributes = make([]rules.Attribute, attributes)
			for j := range r.Attributes {
				r.Attributes[j] = rules.Attribute{Name: lookUp(4, texts), Value: lookUp(4, texts)}
			}
		}
		if r.Flags.Is(Metered) {
			r.Meters = make([]rules.Meter, columns[4].count())
			for j := range r.Meters {
				r.Meters[j] = rules.Meter(lookUp(4, texts))
			}
		}
		times := int(columns[5].number())
		if times > len(columns[6].rest) {
			return nil, errCorrupt
		}
		r.Times = make([]uint32, times)
		at := uint32(0)
		for j := range r.Times {
			at += uint32(columns[6].number())
			r.Times[j] = at
		}
		if r.Flags.Is(Sum | Metered) {
			costs := times * (1 + len(r.Meters))
			if costs > len(columns[7].rest) {
				return nil, errCorrupt
			}
			r.Costs = make([]int64, costs)
			for j := range r.Costs {
				r.Costs[j] = int64(columns[7].number())
			}
		}
		runs = append(runs, r)
	}
	for i := range columns {
		if columns[i].wrong {
			return nil, errCorrupt
		}
	}
	return runs, nil
}

func skipRun(columns *[8]reader, flags Flags) {
	if size := columns[2].take(1); len(size) == 1 {
		columns[2].take(int(size[0]))
	}
	columns[3].skip(3)
	columns[4].skip(2 * columns[4].count())
	meters := 0
	if flags.Is(Metered) {
		meters = columns[4].count()
		columns[4].skip(meters)
	}
	times := int(columns[5].number())
	columns[6].skip(times)
	if flags.Is(Sum | Metered) {
		columns[7].skip(times * (1 + meters))
	}
}

// WithoutUser returns the block without a user's checks; ok is false if none remain.
func (b *Block) WithoutUser(user string) (rest Block, ok bool, err error) {
	runs, err := b.Runs()
	if err != nil {
		return Block{}, false, err
	}
	kept := runs[:0]
	for i := range runs {
		if runs[i].UserID != user {
			kept = append(kept, runs[i])
		}
	}
	rest = *b
	rest.SetRuns(kept)
	return rest, len(kept) > 0, nil
}

type reader struct {
	rest  []byte
	wrong bool
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.wrong, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) skip(numbers int) {
	for i := 0; numbers > 0; i++ {
		if i == len(r.rest) {
			r.wrong, r.rest = true, nil
			return
		}
		if r.rest[i] < 0x80 {
			numbers--
		}
		if numbers == 0 {
			r.rest = r.rest[i+1:]
		}
	}
}

func (r *reader) count() int {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.wrong, r.rest = true, nil
		return 0
	}
	return int(n)
}

func (r *reader) take(n int) []byte {
	if n > len(r.rest) {
		r.wrong, r.rest = true, nil
		return nil
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}
