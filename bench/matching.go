package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/snapshot"
)

const fewRules, manyRules = 10, 100_000

// matching compares finding the four rules that a check meets among a hundred thousand with finding
// them among ten of the same kinds.
//
// One of the four fixes the endpoint, and so is found among all that do. A service's checks ask
// for few endpoints at a time; the last row, without a target, asks for each of the hundred thousand in
// turn, so that hardly anything is in the processor's caches.
func matching(_ context.Context, rounds int, round time.Duration) ([]line, error) {
	few, err := tenantOf(fewRules)
	if err != nil {
		return nil, err
	}
	many, err := tenantOf(manyRules)
	if err != nil {
		return nil, err
	}
	var lines []line
	for _, row := range []struct {
		what      string
		endpoints int
		target    float64
	}{
		{"matching among 100,000 rules ÷ among 10, ns", endpointRules(fewRules), -1.2},
		{"  every endpoint in turn, ns", endpointRules(manyRules), 0},
	} {
		fewRequests, manyRequests := requestsFor(endpointRules(fewRules)), requestsFor(row.endpoints)
		var was, is []float64
		for range rounds {
			for _, side := range []struct {
				tenant   *snapshot.Tenant
				requests []rules.Request
				figures  *[]float64
			}{{few, fewRequests, &was}, {many, manyRequests, &is}} {
				took, err := matchTime(side.tenant, side.requests, round/2)
				if err != nil {
					return nil, err
				}
				*side.figures = append(*side.figures, took)
			}
		}
		lines = append(lines, ratioLine(row.what, "%.0f", median(was), median(is), row.target))
	}
	return lines, nil
}

// endpointRules is how many of a tenant's rules fix the endpoint: half of those beside the first three.
func endpointRules(size int) int { return (size - 3) / 2 }

func tenantOf(size int) (*snapshot.Tenant, error) {
	patterns := []string{"user:{user_id}", "global", "ip:{ip}"}
	for i := range endpointRules(size) {
		patterns = append(patterns, fmt.Sprintf("endpoint:/api/%d", i))
	}
	for i := len(patterns); i < size; i++ {
		patterns = append(patterns, []string{
			fmt.Sprintf("user:someone-%d", i),
			fmt.Sprintf("ip:10.%d.%d.0/24", i>>8&255, i&255),
			fmt.Sprintf("user:{user_id}:endpoint:/other/%d", i),
			fmt.Sprintf("endpoint:POST /v%d/*", i),
		}[i%4])
	}
	rows := snapshot.Rows{Tenants: []rules.Tenant{{ID: 1, Slug: "bench", Settings: rules.DefaultSettings()}}}
	for i, text := range patterns {
		pattern, err := rules.ParsePattern(text)
		if err != nil {
			return nil, fmt.Errorf("pattern %s: %w", text, err)
		}
		rows.Rules = append(rows.Rules, rules.Rule{
			ID: rules.RuleID(i + 1), TenantID: 1, Name: fmt.Sprint(i), Pattern: pattern, Active: true,
			RatePerSecond: 10, RateUnit: rules.PerSecond, Burst: 50,
			Algorithm: rules.TokenBucket, Mode: rules.ModeEnforce, Action: rules.ActionLimit,
		})
	}
	return snapshot.New(rows).Tenant(1), nil
}

func requestsFor(endpoints int) []rules.Request {
	requests := make([]rules.Request, endpoints)
	for i := range requests {
		requests[i] = rules.Request{
			UserID: fmt.Sprint(i), Endpoint: fmt.Sprintf("/api/%d", i), Method: "GET",
			IP: netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}),
		}
	}
	return requests
}

// matchTime returns how many nanoseconds one match takes.
func matchTime(tenant *snapshot.Tenant, requests []rules.Request, round time.Duration) (float64, error) {
	now := time.Now()
	matches := make([]rules.Match, 0, 8)
	start, calls := time.Now(), 0
	for time.Since(start) < round {
		for i := range 1000 {
			matches = tenant.Match(&requests[(calls+i)%len(requests)], "", now, matches[:0])
			if len(matches) != 4 {
				return 0, fmt.Errorf("%d rules match %q, not 4", len(matches), requests[(calls+i)%len(requests)].Endpoint)
			}
		}
		calls += 1000
	}
	return float64(time.Since(start).Nanoseconds()) / float64(calls), nil
}
