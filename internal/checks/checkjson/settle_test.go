package checkjson

import (
	"errors"
	"slices"
	"testing"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
)

func TestSettlementsByMeter(t *testing.T) {
	t.Parallel()
	const id = `"reservation":"tuY6wqDZR9m3WSBMPqWHzQ"`
	_, with, err := DecodeSettlement([]byte(`{` + id + `,"costs":{"usd":0.5,"requests":2,"input_tokens":7}}`))
	if err != nil || !with.HasCost || with.Cost != 2*enforce.Token || !slices.Equal(with.Costs, []enforce.MeterCost{
		{Meter: "input_tokens", Cost: 7 * enforce.Token}, {Meter: "usd", Cost: enforce.Token / 2},
	}) {
		t.Errorf("read as %+v, %v", with, err)
	}
	for body, pointer := range map[string]string{
		`"cost":1,"costs":{"usd":1}`:      "/costs",
		`"costs":{"USD":1}`:               "/costs/USD",
		`"costs":{"usd":-1}`:              "/costs/usd",
		`"extend":true,"cancel":true`:     "/extend",
		`"cancel":true,"costs":{"usd":1}`: "/cancel",
		`"costs":{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1}`: "/costs",
	} {
		var problem *httpapi.Problem
		if _, _, err := DecodeSettlement([]byte(`{` + id + `,` + body + `}`)); !errors.As(err, &problem) ||
			len(problem.Fields) != 1 || problem.Fields[0].Pointer != pointer {
			t.Errorf("%s: %v, want one mistake at %s", body, err, pointer)
		}
	}
	settled := enforce.Settled{
		Found: true, Charged: enforce.Token,
		Costs: []enforce.MeterCost{{Meter: "input_tokens", Cost: 7 * enforce.Token}, {Meter: "usd", Cost: 1}},
	}
	const want = `{"settled":true,"charged":1,"charged_costs":{"input_tokens":7,"usd":0.000001}}`
	if got := string(AppendSettled(nil, settled, with)); got != want {
		t.Errorf("answered %s, want %s", got, want)
	}
	const denied = `{"settled":false,"extended":false,"denied":true}`
	if got := string(AppendSettled(nil, enforce.Settled{Found: true, Denied: true},
		enforce.Settlement{Extend: true})); got != denied {
		t.Errorf("answered %s, want %s", got, denied)
	}
}
