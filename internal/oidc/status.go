package oidc

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
)

// maxFailures is how many different failures of a provider are remembered, maxOfReason of one reason. People can make up the text
// of an answer, and so fill no more than the places of its reason.
const (
	maxFailures = 20
	maxOfReason = 5
)

// Failure is why sign-ins failed.
type Failure struct {
	At     time.Time // the last one's
	Count  int       // how often
	Reason auth.ProviderReason
	Detail string // in words; without secrets
}

// Status is how a provider does, as this process sees it.
type Status struct {
	*auth.IdentityProvider
	RedirectURL string // that the provider must allow
	Problem     string // of the last discovery; "" if it worked
	CheckedAt   time.Time
	Failures    []Failure // the latest first; of this process, since it started
}

// Status asks each provider for its discovery document, unless that was read within an hour, and returns how all of them do.
func (ps *Providers) Status(ctx context.Context) []Status {
	if ps == nil {
		return nil
	}
	all := make([]Status, len(ps.list))
	var waiting sync.WaitGroup
	for i, p := range ps.list {
		waiting.Go(func() {
			_, err := p.discover(ctx)
			all[i] = Status{IdentityProvider: p.Rule, RedirectURL: ps.RedirectURL(p.Slug)}
			p.mu.Lock()
			defer p.mu.Unlock()
			all[i].CheckedAt = p.triedAt
			if p.failed != nil {
				err = p.failed // although an older document is still in use
			}
			if err != nil {
				all[i].Problem = err.Error()
			}
			for j := len(p.failures) - 1; j >= 0; j-- {
				all[i].Failures = append(all[i].Failures, p.failures[j])
			}
		})
	}
	waiting.Wait()
	return all
}

// Note remembers that somebody who came from a provider was refused.
func (ps *Providers) Note(slug string, refused auth.ProviderError) {
	if p, err := ps.find(slug); err == nil {
		_ = p.fail(refused)
	}
}

// fail remembers a failure, and returns it.
func (p *provider) fail(refused auth.ProviderError) error {
	refused.Detail = line(refused.Detail)
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.options.Now().UTC()
	failure := Failure{At: now, Count: 1, Reason: refused.Reason, Detail: refused.Detail}
	ofReason, first := 0, 0 // the oldest that makes room
	for i, old := range slices.Backward(p.failures) {
		if old.Reason != refused.Reason {
			continue
		}
		if old.Detail == refused.Detail {
			failure.Count += old.Count
			p.failures = append(slices.Delete(p.failures, i, i+1), failure)
			return refused
		}
		ofReason++
		first = i
	}
	if ofReason < maxOfReason {
		first = 0
	}
	if ofReason == maxOfReason || len(p.failures) == maxFailures {
		p.failures = slices.Delete(p.failures, first, first+1)
	}
	p.failures = append(p.failures, failure)
	return refused
}
