package shares

import (
	"errors"
	"testing"
)

func TestABudgetRefusesThoseThatHoldMuch(t *testing.T) {
	t.Parallel()
	type held struct {
		Caller
		bytes int
	}
	limits := BudgetLimits{Bytes: 100, PerTenant: 50, PerAccount: 30}
	two := []held{{caller(1, "a"), 30}, {caller(1, "b"), 20}, {caller(2, "c"), 30}, {caller(2, "d"), 20}}
	for name, test := range map[string]struct {
		held []held
		asks held
		want error
	}{
		"the first, of any size":       {nil, held{caller(1, "a"), 1000}, nil},
		"an account's last":            {[]held{{caller(1, "a"), 20}}, held{caller(1, "a"), 10}, nil},
		"an account's one too many":    {[]held{{caller(1, "a"), 20}}, held{caller(1, "a"), 11}, ErrAccount},
		"a look by one that has all":   {[]held{{caller(1, "a"), 30}}, held{caller(1, "a"), 0}, nil},
		"a look by one that has more":  {[]held{{caller(1, "a"), 31}}, held{caller(1, "a"), 0}, ErrAccount},
		"an account in another tenant": {[]held{{caller(1, "a"), 30}}, held{caller(2, "a"), 1}, ErrAccount},
		"a greedy account's colleague": {[]held{{caller(1, "a"), 30}}, held{caller(1, "b"), 20}, nil},
		"a greedy tenant":              {two[:2], held{caller(1, "e"), 1}, ErrTenant},
		"a tenant without accounts":    {[]held{{caller(1, ""), 50}}, held{caller(1, ""), 1}, ErrTenant},
		"accounts without a tenant": {
			[]held{{caller(0, "a"), 30}, {caller(0, "b"), 30}}, held{caller(0, "d"), 1}, nil,
		},
		"a quiet tenant's first":         {two, held{caller(3, "e"), 60}, nil},
		"a quiet tenant's second":        {append(two, held{caller(3, "e"), 20}), held{caller(3, "e"), 10}, nil},
		"more than a third":              {append(two, held{caller(3, "e"), 20}), held{caller(3, "f"), 14}, ErrBusy},
		"a greedy tenant beside it":      {append(two[1:], held{caller(3, "e"), 40}), held{caller(2, "f"), 0}, ErrBusy},
		"less than all bytes, of anyone": {two[1:], held{caller(1, "a"), 30}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := NewBudget(limits)
			total := 0
			for _, h := range test.held {
				b.Add(h.Caller, h.bytes)
				total += h.bytes
			}
			if err := b.Reserve(test.asks.Caller, test.asks.bytes); !errors.Is(err, test.want) {
				t.Errorf("the answer is %v, want %v", err, test.want)
			} else if err == nil {
				total += test.asks.bytes
			} else if b.Refused() != 1 {
				t.Error("the refusal does not count")
			}
			if b.Held() != total {
				t.Errorf("%d bytes are held, want %d", b.Held(), total)
			}
		})
	}
}

func TestABudgetForgetsThoseThatHoldNothing(t *testing.T) {
	t.Parallel()
	b := NewBudget(BudgetLimits{Bytes: 100})
	for tenant := range 3 {
		b.Add(caller(tenant, "a"), 10)
		b.Add(caller(tenant, "a"), -10)
		if err := b.Reserve(caller(tenant, "a"), 0); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.tenants)+len(b.owners) != 0 {
		t.Errorf("%d tenants and %d accounts are remembered", len(b.tenants), len(b.owners))
	}
}
