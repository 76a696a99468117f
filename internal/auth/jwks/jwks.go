// Package jwks verifies the JWTs of gateways' visitors with the key sets that tenants name.
//
// Verify never blocks: Keys reads the sets in the background, every 5 minutes, and within seconds of a token with an
// unknown key, so that an issuer can rotate its keys. While an issuer does not answer, the last good set stays; before
// the first, no token is valid (gateway.ErrNoKeys). A slow issuer delays only its own tenant. Verifying a signature
// costs
// 30 to 100 µs; the claims of up to maxRemembered tokens are cached for each mapping.
package jwks

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/gateway"
)

// The times of reading key sets, and bounds of their size.
const (
	refreshEvery  = 5 * time.Minute
	missingEvery  = 10 * time.Second // for unknown keys
	firstRetry    = time.Second
	lastRetry     = time.Minute
	maxReads      = 256
	maxRemembered = 1024
	maxSet        = 256 << 10
	maxKeys       = 100
	skew          = 30 * time.Second
	ReadTimeout   = 5 * time.Second // of a key set
)

// Options configure Keys. Now is optional.
type Options struct {
	// Client reads URLs that tenants choose, so it must refuse private addresses.
	Client   *http.Client
	Mappings func() map[rules.TenantID]*gateway.Mapping // called every second; the map must not change afterwards
	Log      *slog.Logger
	Now      func() time.Time
}

// Keys holds the key sets of all tenants.
type Keys struct {
	options Options
	reads   chan struct{} // semaphore
	verify  atomic.Pointer[map[rules.TenantID]*verifier]
	running panics.Group

	followed chan struct{} // closed after the first follow
}

// New returns empty Keys; call Run.
func New(options Options) *Keys {
	if options.Now == nil {
		options.Now = time.Now
	}
	k := &Keys{options: options, reads: make(chan struct{}, maxReads), followed: make(chan struct{})}
	k.verify.Store(&map[rules.TenantID]*verifier{})
	return k
}

// Run reads key sets until ctx ends.
func (k *Keys) Run(ctx context.Context) {
	hasFollowed := sync.OnceFunc(func() { close(k.followed) })
	panics.Every(ctx, time.Second, func() {
		_ = panics.Do(k.options.Log, "reading which keys of tokens to follow", func() error {
			k.follow(ctx)
			return nil
		})
		hasFollowed()
	})
	for _, v := range *k.verify.Load() {
		v.stop()
	}
	_ = k.running.Wait()
}

// AwaitFirst waits until Run has tried to read each set once, or ctx ends.
func (k *Keys) AwaitFirst(ctx context.Context) {
	select {
	case <-k.followed:
	case <-ctx.Done():
		return
	}
	for _, v := range *k.verify.Load() {
		select {
		case <-v.tried:
		case <-ctx.Done():
			return
		}
	}
}

func (k *Keys) follow(ctx context.Context) {
	held := *k.verify.Load()
	mappings := k.options.Mappings()
	next := make(map[rules.TenantID]*verifier, len(mappings))
	for tenant, mapping := range mappings {
		v := held[tenant]
		if v == nil || v.mapping != mapping {
			v = k.newVerifier(ctx, tenant, mapping, v)
		}
		next[tenant] = v
	}
	for tenant, v := range held {
		if next[tenant] != v {
			v.stop()
		}
	}
	k.verify.Store(&next)
}

// Verify returns the claims that a mapping reads, gateway.ErrNoKeys, or an error for the bearer of the token.
func (k *Keys) Verify(tenant rules.TenantID, mapping *gateway.Mapping, token string) (gateway.Claims, error) {
	v := (*k.verify.Load())[tenant]
	if v == nil || !v.mapping.JWT().SameKeys(mapping.JWT()) {
		return nil, gateway.ErrNoKeys
	}
	return v.claims(mapping, token, k.options.Now())
}

type verifier struct {
	mapping  *gateway.Mapping
	set      atomic.Pointer[[]jose.JSONWebKey]
	tried    chan struct{} // closed after the first read or its failure
	hasTried func()
	missing  chan struct{} // signals a token with an unknown key
	stop     context.CancelFunc

	mu         sync.Mutex
	remembered map[[sha256.Size]byte]remembered
}

type remembered struct {
	claims  gateway.Claims
	expires time.Time
	mapping *gateway.Mapping
	set     *[]jose.JSONWebKey // verified the token
}

func (k *Keys) newVerifier(ctx context.Context, tenant rules.TenantID, mapping *gateway.Mapping,
	before *verifier,
) *verifier {
	v := &verifier{
		mapping: mapping, tried: make(chan struct{}), missing: make(chan struct{}, 1),
		remembered: map[[sha256.Size]byte]remembered{},
	}
	v.hasTried = sync.OnceFunc(func() { close(v.tried) })
	ctx, v.stop = context.WithCancel(ctx)
	source := mapping.JWT()
	log := k.options.Log.With("tenant_id", int64(tenant))
	if source.JWKS != "" {
		v.hasTried()
		set, err := parseSet([]byte(source.JWKS))
		if err != nil {
			log.Warn("the keys of a gateway's tokens cannot be read; no token is valid", "error", err)
			return v
		}
		v.set.Store(&set)
		return v
	}
	if before != nil && before.mapping.JWT().SameKeys(source) {
		v.set.Store(before.set.Load())
	}
	k.running.Loop(ctx, log, "the keys of a gateway's tokens", func(ctx context.Context) {
		defer v.hasTried()
		k.keepFresh(ctx, v, source.JWKSURL, log)
	})
	return v
}

func (k *Keys) keepFresh(ctx context.Context, v *verifier, url string, log *slog.Logger) {
	failures := 0
	for {
		began := time.Now()
		set, err := k.read(ctx, url)
		wait := refreshEvery
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			wait = min(firstRetry<<min(failures, 10), lastRetry)
			if failures++; failures == 1 {
				log.Warn("the keys of a gateway's tokens cannot be read; the last ones stay in force", "error", err)
			}
		default:
			if failures > 0 {
				log.Info("the keys of a gateway's tokens are read again")
			}
			failures = 0
			v.set.Store(&set)
		}
		v.hasTried()
		if !v.sleep(ctx, wait, began) {
			return
		}
	}
}

func (v *verifier) sleep(ctx context.Context, wait time.Duration, began time.Time) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-v.missing:
	}
	soon := time.NewTimer(min(missingEvery, wait) - time.Since(began))
	defer soon.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-soon.C:
	}
	select {
	case <-v.missing: // signalled meanwhile
	default:
	}
	return true
}

func (k *Keys) read(ctx context.Context, url string) ([]jose.JSONWebKey, error) {
	select {
	case k.reads <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-k.reads }()
	ctx, cancel := context.WithTimeout(ctx, ReadTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("read the keys: %w", err)
	}
	request.Header.Set("Accept", "application/jwk-set+json, application/json")
	request.Header.Set("User-Agent", "Sluice")
	response, err := k.options.Client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("read the keys: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read the keys: the issuer answered %d", response.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxSet+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the keys: %w", err)
	case len(body) > maxSet:
		return nil, fmt.Errorf("read the keys: they have more than %d bytes", maxSet)
	}
	return parseSet(body)
}

// parseSet keeps public keys for signatures: with a published HMAC key everybody could sign. It skips unreadable
// keys, since an issuer may publish new kinds of keys for other clients.
func parseSet(text []byte) ([]jose.JSONWebKey, error) {
	var all struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("read the keys: %w", err)
	}
	var set []jose.JSONWebKey
	for _, one := range all.Keys[:min(len(all.Keys), maxKeys)] {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(one) == nil && key.IsPublic() && (key.Use == "" || key.Use == "sig") {
			set = append(set, key)
		}
	}
	if len(set) == 0 {
		return nil, errors.New("read the keys: there is no public key among them")
	}
	return set, nil
}

func (v *verifier) claims(mapping *gateway.Mapping, token string, now time.Time) (gateway.Claims, error) {
	set := v.set.Load()
	if set == nil {
		return nil, gateway.ErrNoKeys
	}
	digest := sha256.Sum256([]byte(token))
	v.mu.Lock()
	known, ok := v.remembered[digest]
	v.mu.Unlock()
	if ok && known.set == set && known.mapping == mapping && now.Before(known.expires) {
		return known.claims, nil
	}
	claims, expires, err := verify(mapping, *set, token, now)
	if err != nil {
		if errors.Is(err, errUnknownKey) {
			select {
			case v.missing <- struct{}{}:
			default:
			}
		}
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.remembered) >= maxRemembered {
		for other := range v.remembered { // evict any entry
			delete(v.remembered, other)
			break
		}
	}
	v.remembered[digest] = remembered{claims, expires, mapping, set}
	return claims, nil
}

// The mistakes in a token, for its bearer.
var (
	errMalformed  = errors.New("it is not a signed JWT in compact form")
	errUnknownKey = errors.New("none of the issuer's keys has signed it")
	errExpired    = errors.New("it has expired")
	errEarly      = errors.New("it is not valid yet")
	errOther      = errors.New("it is of another issuer, for another audience, or has no expiry")
)

var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

func verify(mapping *gateway.Mapping, set []jose.JSONWebKey, token string, now time.Time) (gateway.Claims, time.Time,
	error,
) {
	payload, ok := payloadOf(token)
	if !ok {
		return nil, time.Time{}, errMalformed
	}
	if !signed(token, set) {
		return nil, time.Time{}, errUnknownKey
	}
	var registered jwt.Claims
	if err := json.Unmarshal(payload, &registered); err != nil {
		return nil, time.Time{}, errMalformed
	}
	source := mapping.JWT()
	expected := jwt.Expected{Issuer: source.Issuer, Time: now}
	if source.Audience != "" {
		expected.AnyAudience = jwt.Audience{source.Audience}
	}
	switch err := registered.ValidateWithLeeway(expected, skew); {
	case errors.Is(err, jwt.ErrExpired):
		return nil, time.Time{}, errExpired
	case errors.Is(err, jwt.ErrNotValidYet), errors.Is(err, jwt.ErrIssuedInTheFuture):
		return nil, time.Time{}, errEarly
	case err != nil, registered.Expiry == nil:
		return nil, time.Time{}, errOther
	}
	claims, err := gateway.ReadClaims(payload, mapping.ClaimNames())
	return claims, registered.Expiry.Time().Add(skew), err
}

func signed(token string, set []jose.JSONWebKey) bool {
	signature, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return false
	}
	header := signature.Signatures[0].Header
	for i := range set {
		key := &set[i]
		if header.KeyID != "" && key.KeyID != header.KeyID || key.Algorithm != "" && key.Algorithm != header.Algorithm {
			continue
		}
		if _, err := signature.Verify(key); err == nil {
			return true
		}
	}
	return false
}

func payloadOf(token string) ([]byte, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	return payload, err == nil
}
