package traffic_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
)

func TestTheRunsOfAUserAreThoseAmongAll(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var all []traffic.Run
	for i := range 500 {
		run := traffic.Run{
			UserID: fmt.Sprint(random.IntN(10)), Plan: "free", Method: "GET", Endpoint: fmt.Sprint("/", random.IntN(5)),
			Cost:    random.Int64N(1 << 40),
			Decider: rules.RuleID(random.IntN(1000)), Times: []uint32{1, 500, 1 << 20},
		}
		switch i % 4 {
		case 0:
			run.IP = netip.MustParseAddr("2001:db8::1")
		case 1:
			run.IP, run.Attributes = netip.MustParseAddr("203.0.113.9"),
				[]rules.Attribute{{Name: "org", Value: "acme"}, {Name: "key", Value: "k"}}
		case 2:
			run.UserID, run.Flags, run.Costs = "", traffic.Sum, []int64{1, 1 << 30, 7}
		case 3:
			run.Flags, run.Meters = traffic.Metered|traffic.Record, []rules.Meter{"input_tokens", "usd"}
			run.Cost, run.Costs = 0, []int64{1, 2, 3, 4, 5, 6, 7, 1 << 40, 9}
		}
		all = append(all, run)
	}
	var block traffic.Block
	block.SetRuns(all)
	for _, user := range []string{"", "0", "3", "9", "nobody"} {
		want := slices.DeleteFunc(slices.Clone(all), func(r traffic.Run) bool { return r.UserID != user })
		got, err := block.RunsOf(user)
		if err != nil || len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("user %q has the runs\n%v (%v), want\n%v", user, got, err, want)
		}
	}
}

func TestBlocksOfOlderProcessesAreRead(t *testing.T) {
	t.Parallel()
	written, err := base64.StdEncoding.DecodeString(
		"KLUv/QAAQQIAAQUEZnJlZQNHRVQCL2EDb3JnBGFjbWUCCAHgxlsHCAAAAgEABgTLAHEJAAYBAgMBAAME" +
			"AQQFAAICAgYB8wMA6AcGA4CAgIAE")
	if err != nil {
		t.Fatal(err)
	}
	want := []traffic.Run{
		{
			UserID: "42", Plan: "free", Method: "GET", Endpoint: "/a", Cost: 1_500_000, Times: []uint32{1, 500},
			Attributes: []rules.Attribute{{Name: "org", Value: "acme"}}, IP: netip.MustParseAddr("203.0.113.9"),
			Decider: 7, Flags: traffic.Denied,
		},
		{Plan: "free", Endpoint: "/a", Flags: traffic.Sum, Times: []uint32{0, 1000}, Costs: []int64{3, 1 << 30}},
	}
	block := traffic.Block{Users: []string{"42"}, Payload: written}
	if got, err := block.Runs(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the block has the runs\n%v (%v), want\n%v", got, err, want)
	}
	block.SetRuns(want)
	if !bytes.Equal(block.Payload, written) {
		t.Errorf("the same checks are written as %s", base64.StdEncoding.EncodeToString(block.Payload))
	}
}
