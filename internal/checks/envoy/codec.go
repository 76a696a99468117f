package envoy

import (
	"fmt"
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sluicegate/sluice/internal/rules/gateway"
)

// request is a RateLimitRequest in reused memory, whose texts need not be UTF-8.
type request struct {
	domain      string
	hits        uint32
	descriptors []descriptor
}

const keptDescriptors = 16

var requests = sync.Pool{New: func() any { return new(request) }}

func (r *request) release() {
	if cap(r.descriptors) > keptDescriptors {
		return
	}
	for i := range r.descriptors {
		d := &r.descriptors[i]
		clear(d.entries)
		*d = descriptor{entries: d.entries[:0]}
	}
	*r = request{descriptors: r.descriptors[:0]}
	requests.Put(r)
}

func (r *request) addDescriptor() *descriptor {
	n := len(r.descriptors)
	if n < cap(r.descriptors) {
		r.descriptors = r.descriptors[:n+1] // with the entries' memory of a former request
	} else {
		r.descriptors = append(r.descriptors, descriptor{})
	}
	return &r.descriptors[n]
}

type descriptor struct {
	entries  []gateway.Entry
	limit    ownLimit
	hits     uint64
	ownHits  bool // hits overrides those of the request
	negative bool
}

func (d *descriptor) attributes() int { return len(d.entries) + gateway.AddedAttributes }

func (r *request) attributes() (n int) {
	for i := range r.descriptors {
		n += r.descriptors[i].attributes()
	}
	return n
}

// codec reads a *request itself, because protobuf refuses a text that is not UTF-8, such as a visitor's header. Envoy
// lets requests pass on errors, so one byte would evade all limits; the mapping replaces such texts by their hash.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*request)
	if !ok {
		return c.CodecV2.Unmarshal(data, v) //nolint:wrapcheck // gRPC makes a status of it
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	return r.read(message{whole.ReadOnlyData(), string(whole.ReadOnlyData())})
}

func (r *request) read(m message) error {
	return m.each(func(f field) error {
		switch {
		case f.number == 1 && f.isText():
			r.domain = f.message.text
		case f.number == 2 && f.isText():
			return r.addDescriptor().read(f.message)
		case f.number == 3 && f.isVarint():
			r.hits = uint32(f.varint) // as protobuf reads a uint32
		}
		return nil
	})
}

func (d *descriptor) read(m message) error {
	return m.each(func(f field) error {
		switch {
		case f.number == 1 && f.isText():
			d.entries = append(d.entries, gateway.Entry{})
			return readEntry(f.message, &d.entries[len(d.entries)-1])
		case f.number == 2 && f.isText():
			return d.limit.read(f.message)
		case f.number == 3 && f.isText():
			d.ownHits = true
			return f.message.each(func(f field) error {
				if f.number == 1 && f.isVarint() {
					d.hits = f.varint
				}
				return nil
			})
		case f.number == 4 && f.isVarint():
			d.negative = f.varint != 0
		}
		return nil
	})
}

type ownLimit struct {
	requests uint32
	unit     int32
}

func (l *ownLimit) read(m message) error {
	return m.each(func(f field) error {
		switch {
		case f.number == 1 && f.isVarint():
			l.requests = uint32(f.varint) // as protobuf reads a uint32
		case f.number == 2 && f.isVarint():
			l.unit = int32(f.varint)
		}
		return nil
	})
}

func readEntry(m message, e *gateway.Entry) error {
	return m.each(func(f field) error {
		switch {
		case f.number == 1 && f.isText():
			e.Key = f.message.text
		case f.number == 2 && f.isText():
			e.Value = f.message.text
		}
		return nil
	})
}

// message has the wire format as text too, so that all texts of a request share one string.
type message struct {
	bytes []byte
	text  string
}

type field struct {
	number  protowire.Number
	wire    protowire.Type
	varint  uint64
	message message // a text, or a message within the message
}

func (f field) isVarint() bool { return f.wire == protowire.VarintType }
func (f field) isText() bool   { return f.wire == protowire.BytesType }

func (m message) each(do func(field) error) error {
	var f field
	for len(m.bytes) > 0 {
		var n int
		if f.number, f.wire, n = protowire.ConsumeTag(m.bytes); n < 0 {
			return fmt.Errorf("read a field: %w", protowire.ParseError(n))
		}
		m = m.from(n)
		switch f.wire {
		case protowire.VarintType:
			f.varint, n = protowire.ConsumeVarint(m.bytes)
		case protowire.BytesType:
			var value []byte
			if value, n = protowire.ConsumeBytes(m.bytes); n >= 0 {
				f.message = message{value, m.text[n-len(value) : n]}
			}
		default:
			n = protowire.ConsumeFieldValue(f.number, f.wire, m.bytes)
		}
		if n < 0 {
			return fmt.Errorf("read field %d: %w", f.number, protowire.ParseError(n))
		}
		m = m.from(n)
		if err := do(f); err != nil {
			return err
		}
	}
	return nil
}

func (m message) from(n int) message { return message{m.bytes[n:], m.text[n:]} }
