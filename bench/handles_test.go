package main

import (
	"testing"

	"golang.org/x/time/rate"

	sluice "github.com/sluicegate/sluice/client"
	"github.com/sluicegate/sluice/internal/rules"
)

// BenchmarkInProcess compares a handle's Try with golang.org/x/time/rate.Allow:
//
//	go test -bench InProcess -benchmem .
func BenchmarkInProcess(b *testing.B) {
	lender, err := startLender(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer lender.close()
	handle, err := lender.client.Handle(sluice.Check{UserID: "42"})
	if err != nil {
		b.Fatal(err)
	}
	limiter := rate.NewLimiter(rate.Limit(rules.MaxRate), rules.MaxBurst)
	for name, decide := range map[string]func() bool{
		"rate": limiter.Allow, "handle": func() bool { return handle.Try() == sluice.Allowed },
	} {
		b.Run(name+"/one goroutine", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				decide()
			}
		})
		b.Run(name+"/all cores", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					decide()
				}
			})
		})
	}
}
