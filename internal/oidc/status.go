package oidc

import (
	"context"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/jobs/panics"
)

// maxOfReason keeps invented answers from evicting failures of other reasons.
const (
	maxFailures = 20
	maxOfReason = 5
)

// Failure is a cause of failed sign-ins.
type Failure struct {
	At     time.Time // of the last one
	Count  int
	Reason auth.ProviderReason
	Detail string // without secrets
}

// Status is the state of a provider as seen by this process.
type Status struct {
	*auth.IdentityProvider
	RedirectURL string
	Problem     string // of the last discovery, or ""
	CheckedAt   time.Time
	Failures    []Failure // latest first
}

// Status reads each provider's discovery document, unless cached.
func (ps *Providers) Status(ctx context.Context) []Status {
	if ps == nil {
		return nil
	}
	all := make([]Status, len(ps.list))
	var waiting panics.Group
	for i, p := range ps.list {
		all[i] = Status{IdentityProvider: p.Rule, RedirectURL: ps.RedirectURL(p.Slug)}
		waiting.Go(nil, "the status of a provider", func() {
			err := panics.Do(nil, "the discovery of a provider", func() error {
				_, err := p.discover(ctx)
				return err
			})
			p.mu.Lock()
			defer p.mu.Unlock()
			all[i].CheckedAt = p.triedAt
			if p.failed != nil {
				err = p.failed // an older document may still be in use
			}
			if err != nil {
				all[i].Problem = err.Error()
			}
			for j := len(p.failures) - 1; j >= 0; j-- {
				all[i].Failures = append(all[i].Failures, p.failures[j])
			}
		})
	}
	_ = waiting.Wait()
	return all
}

// Note records that a sign-in at a provider was refused.
func (ps *Providers) Note(slug string, refused auth.ProviderError) {
	if p, err := ps.find(slug); err == nil {
		_ = p.fail(refused)
	}
}

func (p *provider) fail(refused auth.ProviderError) error {
	refused.Detail = line(refused.Detail)
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.options.Now().UTC()
	failure := Failure{At: now, Count: 1, Reason: refused.Reason, Detail: refused.Detail}
	ofReason, first := 0, 0 // the oldest, to be evicted
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
