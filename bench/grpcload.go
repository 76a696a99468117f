package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// grpcLoad writes requests down before anything is measured, and frames HTTP/2 by hand, because grpc-go's client costs
// more than its server.
type grpcLoad struct {
	addr, token string
	messages    [][]byte // of protobuf
}

const grpcPath = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// grpcConnections are shared by all callers, as an Envoy has one for each worker.
const grpcConnections = 4

func (l grpcLoad) closed(ctx context.Context, callers int, length time.Duration) (outcome, error) {
	var answers, denied atomic.Int64
	latencies := make([][]time.Duration, grpcConnections)
	failures := make([]error, grpcConnections)
	var wg sync.WaitGroup
	for i := range grpcConnections {
		wg.Go(func() {
			c, err := l.connect(ctx)
			if err != nil {
				failures[i] = err
				return
			}
			defer func() { _ = c.Close() }()
			failures[i] = c.closed(l.messages, i*7919, callers/grpcConnections, length, &answers, &denied)
			latencies[i] = c.latencies
		})
	}
	wg.Wait()
	return outcome{
		answers: answers.Load(), denied: denied.Load(), perSecond: float64(answers.Load()) / length.Seconds(),
		latencies: slices.Sorted(slices.Values(slices.Concat(latencies...))),
	}, errors.Join(errors.Join(failures...), ctx.Err())
}

type grpcConnection struct {
	net.Conn
	read      *bufio.Reader
	write     *bufio.Writer
	headers   []byte // of a request, once the other side has them in its table
	first     []byte // of the first request
	stream    uint32 // of the next request
	unread    uint32 // bytes of data that the window lacks
	body      []byte
	sent      []time.Time
	latencies []time.Duration
}

func (l grpcLoad) connect(ctx context.Context) (*grpcConnection, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", l.addr)
	if err != nil {
		return nil, fmt.Errorf("connect to a server: %w", err)
	}
	c := &grpcConnection{
		Conn: conn, read: bufio.NewReaderSize(conn, 64<<10), write: bufio.NewWriterSize(conn, 64<<10),
		stream: 1,
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, into := range []*[]byte{&c.first, &c.headers} {
		block.Reset()
		for _, h := range [][2]string{
			{":method", "POST"},
			{":scheme", "http"},
			{":path", grpcPath},
			{":authority", "bench"},
			{"content-type", "application/grpc"},
			{"te", "trailers"},
			{"authorization", "Bearer " + l.token},
		} {
			if err := encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
				return nil, fmt.Errorf("write the headers: %w", err)
			}
		}
		*into = bytes.Clone(block.Bytes())
	}
	_, _ = c.write.WriteString(http2.ClientPreface)
	c.frame(http2.FrameSettings, 0, 0, nil)
	return c, nil
}

// frame writes a frame. Its error is that of a later Flush.
func (c *grpcConnection) frame(kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) {
	var head [9]byte
	binary.BigEndian.PutUint32(head[:4], uint32(len(payload))<<8|uint32(kind))
	head[4] = byte(flags)
	binary.BigEndian.PutUint32(head[5:], stream)
	_, _ = c.write.Write(head[:])
	_, _ = c.write.Write(payload)
}

func (c *grpcConnection) send(message []byte) {
	c.sent = append(c.sent, time.Now())
	headers := c.headers
	if c.stream == 1 {
		headers = c.first
	}
	c.frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, c.stream, headers)
	c.body = append(c.body[:0], 0)
	c.body = binary.BigEndian.AppendUint32(c.body, uint32(len(message)))
	c.body = append(c.body, message...)
	c.frame(http2.FrameData, http2.FlagDataEndStream, c.stream, c.body)
	c.stream += 2
}

// closed keeps inFlight requests in flight for a length, and reads all answers.
func (c *grpcConnection) closed(
	messages [][]byte, next, inFlight int, length time.Duration, answers, denied *atomic.Int64,
) error {
	ask := func() {
		c.send(messages[next%len(messages)])
		next++
	}
	start := time.Now()
	for range inFlight {
		ask()
	}
	var payload []byte
	for inFlight > 0 {
		if c.read.Buffered() < 9 {
			if err := c.write.Flush(); err != nil {
				return fmt.Errorf("send requests: %w", err)
			}
		}
		var head [9]byte
		if _, err := io.ReadFull(c.read, head[:]); err != nil {
			return fmt.Errorf("read an answer: %w", err)
		}
		size := int(binary.BigEndian.Uint32(head[:4]) >> 8)
		if cap(payload) < size {
			payload = make([]byte, size)
		}
		payload = payload[:size]
		if _, err := io.ReadFull(c.read, payload); err != nil {
			return fmt.Errorf("read an answer: %w", err)
		}
		flags := http2.Flags(head[4])
		switch kind := http2.FrameType(head[3]); kind {
		case http2.FrameData:
			if size >= 7 && payload[5] == 0x08 && payload[6] == 2 {
				denied.Add(1)
			}
			answers.Add(1)
			if c.unread += uint32(size); c.unread > 16<<10 {
				c.frame(http2.FrameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, c.unread))
				c.unread = 0
			}
		case http2.FrameHeaders:
			if !flags.Has(http2.FlagHeadersEndStream) {
				continue
			}
			stream := binary.BigEndian.Uint32(head[5:])
			c.latencies = append(c.latencies, time.Since(c.sent[stream/2])) // streams have odd numbers
			if time.Since(start) < length {
				ask()
			} else {
				inFlight--
			}
		case http2.FrameSettings:
			if !flags.Has(http2.FlagSettingsAck) {
				c.frame(http2.FrameSettings, http2.FlagSettingsAck, 0, nil)
			}
		case http2.FramePing:
			if !flags.Has(http2.FlagPingAck) {
				c.frame(http2.FramePing, http2.FlagPingAck, 0, payload)
			}
		case http2.FrameGoAway, http2.FrameRSTStream:
			return fmt.Errorf("the server sent %s: %q", kind, payload)
		}
	}
	return nil
}
