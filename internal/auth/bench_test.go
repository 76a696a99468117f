package auth_test

import (
	"testing"

	"github.com/sluicegate/sluice/internal/auth"
)

func BenchmarkHashPassword(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		auth.HashPassword(adaPassword)
	}
}
