package envoy_test

import (
	"reflect"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluicegate/sluice/internal/checks/envoy"
)

type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	return proto.Unmarshal(data.Materialize(), v.(proto.Message))
}

func (w *world) askRaw(t testing.TB, message []byte) (*rls.RateLimitResponse, error) {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", token)
	answer := new(rls.RateLimitResponse)
	return answer, w.conn.Invoke(ctx, envoy.Route, message, answer, grpc.ForceCodecV2(rawCodec{}))
}

func rawDescriptor(domain string, text ...string) []byte {
	var descriptor []byte
	for i := 0; i < len(text); i += 2 {
		entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), text[i])
		entry = protowire.AppendString(protowire.AppendTag(entry, 2, protowire.BytesType), text[i+1])
		descriptor = protowire.AppendBytes(protowire.AppendTag(descriptor, 1, protowire.BytesType), entry)
	}
	message := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), domain)
	return protowire.AppendBytes(protowire.AppendTag(message, 2, protowire.BytesType), descriptor)
}

func TestTextThatIsNotUTF8IsLimitedLikeAnyOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", window(t, 1, "user:{user_id}", 1, 60e9), window(t, 2, "attr.h:{attr.h}", 1, 60e9))
	for _, message := range [][]byte{
		rawDescriptor("acme", "user_id", "a\xff"), rawDescriptor("acme", "user_id", "b\xff"),
		rawDescriptor("acme", "h", "\xc3("),
		rawDescriptor("acme", "h", "x", "k\xfe", "\xfe"),
	} {
		for _, want := range []string{"OK | OK 1/MINUTE 0 60s", "OVER_LIMIT | OVER_LIMIT 1/MINUTE 0 60s"} {
			answer, err := w.askRaw(t, message)
			if err != nil {
				t.Fatalf("%q: %v", message, err)
			}
			expect(t, answer, want)
		}
	}
	if _, err := w.askRaw(t, []byte("\x0a\xff")); status.Code(err) != codes.Internal {
		t.Errorf("a message that ends too early: %v", err)
	}
}

func FuzzTheCodecReadsWhatProtobufReads(f *testing.F) {
	negative := descriptor("a", "b", "c", "")
	negative.IsNegativeHits, negative.HitsAddend = true, wrapperspb.UInt64(1<<40)
	negative.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 3, Unit: 2}
	seed, err := proto.Marshal(&rls.RateLimitRequest{
		Domain: "d", HitsAddend: 7, Descriptors: []*common.RateLimitDescriptor{
			descriptor("key", "value"), negative,
			{},
		},
	})
	if err != nil {
		f.Fatal(err)
	}
	for _, message := range [][]byte{
		seed, append(seed, seed...), nil, []byte("\x0a"), []byte("\x1a\x01x"),
		[]byte("\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
		[]byte("\x12\x06\x1a\x00\x1a\x02\x08\x05"), []byte("\x1b\x1c\x0b"), []byte("\x12\x02\x20\x02"),
		rawDescriptor("d", "k", "\xff"),
	} {
		f.Add(message)
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		got, gotErr := envoy.ReadRequest(message)
		var want rls.RateLimitRequest
		if proto.Unmarshal(message, &want) != nil {
			return // it also judges fields that the codec skips
		}
		if gotErr != nil || !reflect.DeepEqual(got, envoy.AsRequest(&want)) {
			t.Fatalf("%q is read as %+v, %v, want %v", message, got, gotErr, &want)
		}
	})
}
