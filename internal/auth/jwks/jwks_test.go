package jwks_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/sluicegate/sluice/internal/auth/jwks"
	"github.com/sluicegate/sluice/internal/notify/webhook"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/gateway"
)

type key struct {
	private jose.JSONWebKey
	set     string
}

func newKey(t *testing.T, kid string) key {
	t.Helper()
	raw, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private := jose.JSONWebKey{Key: raw, KeyID: kid}
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{private.Public()}})
	if err != nil {
		t.Fatal(err)
	}
	return key{private, string(text)}
}

func (k key) sign(t *testing.T, claims map[string]any) string {
	t.Helper()
	return sign(t, jose.ES256, k.private, claims)
}

func sign(t *testing.T, algorithm jose.SignatureAlgorithm, key any, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	claims = maps.Clone(claims)
	for name, value := range claims {
		if at, ok := value.(time.Time); ok {
			claims[name] = at.Unix()
		}
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

type issuer struct {
	mu    sync.Mutex
	sets  map[string]string
	asked int
}

func (i *issuer) publish(url, set string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.sets[url] = set
}

func (i *issuer) questions() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked
}

func (i *issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	i.mu.Lock()
	set := i.sets[r.URL.String()]
	i.asked++
	i.mu.Unlock()
	switch set {
	case "":
		return nil, errors.New("connection refused")
	case "panic":
		panic("by the test")
	case "slow":
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(set)), Request: r}, nil
}

func byURL(url string) *gateway.Mapping {
	a := &gateway.Authorize{
		JWT:  &gateway.JWT{JWKSURL: url, Issuer: "iss", Audience: "aud"},
		User: &gateway.User{Source: gateway.Source{Claim: "sub"}},
	}
	return a.Compile()
}

func good(extra ...map[string]any) map[string]any {
	claims := map[string]any{"sub": "42", "iss": "iss", "aud": "aud", "exp": time.Now().Add(24 * time.Hour)}
	for _, more := range extra {
		maps.Copy(claims, more)
	}
	return claims
}

func run(t *testing.T, client *http.Client, mappings map[rules.TenantID]*gateway.Mapping) (keys *jwks.Keys,
	stop func(),
) {
	t.Helper()
	keys = jwks.New(jwks.Options{
		Client: client, Log: slog.New(slog.DiscardHandler),
		Mappings: func() map[rules.TenantID]*gateway.Mapping { return mappings },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { keys.Run(ctx); close(done) }()
	return keys, func() { cancel(); <-done }
}

func TestOnlyTokensOfTheIssuerAreValid(t *testing.T) {
	t.Parallel()
	ours, theirs, nameless := newKey(t, "a"), newKey(t, "a"), newKey(t, "")
	hmac := sign(t, jose.HS256, []byte(ours.set), good())
	mixed, published := ours, []byte(strings.Repeat("secret", 8))
	mixed.set = `{"keys":[{"kty":"new"},{"kty":"oct","k":"` + base64.RawURLEncoding.EncodeToString(published) +
		`"},` + strings.TrimPrefix(ours.set, `{"keys":[`)
	payload := strings.Split(ours.sign(t, good()), ".")[1]
	for name, test := range map[string]struct {
		key   key
		token string
		want  string // in the error
	}{
		"a good one":                 {ours, ours.sign(t, good()), ""},
		"a number as the subject":    {ours, ours.sign(t, good(map[string]any{"iat": realNow})), ""},
		"without the name of a key":  {nameless, nameless.sign(t, good()), ""},
		"forged":                     {ours, theirs.sign(t, good()), "signed"},
		"tampered":                   {ours, ours.sign(t, good())[:40] + "x" + ours.sign(t, good())[41:], ""},
		"no algorithm":               {ours, "eyJhbGciOiJub25lIn0." + payload + ".", "signed"},
		"the public key as secret":   {ours, hmac, "signed"},
		"beside keys of other kinds": {mixed, ours.sign(t, good()), ""},
		"a published secret":         {mixed, sign(t, jose.HS256, published, good()), "signed"},
		"expired": {
			ours, ours.sign(t, good(map[string]any{"exp": realNow.Add(-time.Minute)})),
			"expired",
		},
		"within the skew": {
			ours, ours.sign(t, good(map[string]any{"exp": realNow.Add(-10 * time.Second)})),
			"",
		},
		"without expiry": {
			ours, ours.sign(t, map[string]any{"sub": "42", "iss": "iss", "aud": "aud"}),
			"no expiry",
		},
		"not yet": {
			ours, ours.sign(t, good(map[string]any{"nbf": time.Now().Add(time.Hour)})),
			"not valid yet",
		},
		"another issuer":         {ours, ours.sign(t, good(map[string]any{"iss": "other"})), "another issuer"},
		"another audience":       {ours, ours.sign(t, good(map[string]any{"aud": "other"})), "another audience"},
		"no JWT":                 {ours, "opaque", "not a signed JWT"},
		"three parts of nothing": {ours, "..", "signed"},
		"16 KiB":                 {ours, strings.Repeat("a.", 8<<10), "not a signed JWT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mapping := (&gateway.Authorize{
				JWT:  &gateway.JWT{JWKS: test.key.set, Issuer: "iss", Audience: "aud"},
				User: &gateway.User{Source: gateway.Source{Claim: "sub"}},
			}).Compile()
			synctest.Test(t, func(t *testing.T) {
				keys := jwks.New(jwks.Options{
					Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return realNow },
					Mappings: func() map[rules.TenantID]*gateway.Mapping {
						return map[rules.TenantID]*gateway.Mapping{1: mapping}
					},
				})
				ctx, cancel := context.WithCancel(t.Context())
				go keys.Run(ctx)
				synctest.Wait()
				for range 2 { // the second is cached
					claims, err := keys.Verify(1, mapping, test.token)
					if name == "tampered" {
						if err == nil {
							t.Error("it is valid")
						}
						continue
					}
					if test.want == "" && (err != nil || claims["sub"] != "42") || test.want != "" &&
						(err == nil || !strings.Contains(err.Error(), test.want)) {
						t.Errorf("its claims are %v, %v, want %q", claims, err, test.want)
					}
				}
				if _, err := keys.Verify(2, mapping, test.token); !errors.Is(err, gateway.ErrNoKeys) {
					t.Errorf("another tenant's: %v", err)
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}

// realNow is outside of bubbles, whose clocks begin in 2000.
var realNow = time.Now()

func TestKeysAreRotatedAndSurviveTheirIssuer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const url = "https://id.example.com/keys"
		first, second := newKey(t, "1"), newKey(t, "2")
		source := &issuer{sets: map[string]string{}}
		mapping := byURL(url)
		keys, stop := run(t, &http.Client{Transport: source}, map[rules.TenantID]*gateway.Mapping{1: mapping})
		defer stop()
		check := func(what string, k key, want error) {
			t.Helper()
			synctest.Wait()
			if _, err := keys.Verify(1, mapping, k.sign(t, good())); want == nil && err != nil || want != nil &&
				err == nil || errors.Is(want, gateway.ErrNoKeys) != errors.Is(err, gateway.ErrNoKeys) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		unknown := errors.New("unknown")
		check("down at first", first, gateway.ErrNoKeys)
		source.publish(url, first.set)
		time.Sleep(2 * time.Second) //nolint:forbidigo // a bubble's clock
		check("up soon after", first, nil)
		source.publish(url, second.set)
		check("rotated, and not read yet", second, unknown)
		time.Sleep(10 * time.Second) //nolint:forbidigo // a bubble's clock
		check("read because of that token", second, nil)
		check("the key that is gone", first, unknown)
		source.publish(url, "")
		time.Sleep(time.Hour) //nolint:forbidigo // a bubble's clock
		check("down for an hour", second, nil)
		source.publish(url, "slow")
		time.Sleep(time.Minute) //nolint:forbidigo // a bubble's clock
		check("slow", second, nil)
		source.publish(url, `{"keys":[]}`)
		time.Sleep(time.Hour) //nolint:forbidigo // a bubble's clock
		check("without keys", second, nil)
		source.publish(url, first.set)
		time.Sleep(2 * time.Minute) //nolint:forbidigo // a bubble's clock
		check("rotated back", first, nil)
		before := source.questions()
		for range 1000 {
			_, _ = keys.Verify(1, mapping, second.sign(t, good()))
		}
		time.Sleep(time.Minute) //nolint:forbidigo // a bubble's clock
		if asked := source.questions() - before; asked > 2 {
			t.Errorf("forged tokens caused %d reads in a minute", asked)
		}
	})
}

func TestASlowIssuerDelaysNoOtherTenant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ours := newKey(t, "1")
		source := &issuer{sets: map[string]string{"https://slow.example": "slow", "https://good.example": ours.set}}
		mappings := map[rules.TenantID]*gateway.Mapping{}
		for tenant := range rules.TenantID(100) {
			mappings[tenant+1] = byURL("https://slow.example")
		}
		mappings[500] = byURL("https://good.example")
		keys, stop := run(t, &http.Client{Transport: source}, mappings)
		defer stop()
		synctest.Wait() // no time has passed
		if _, err := keys.Verify(500, mappings[500], ours.sign(t, good())); err != nil {
			t.Errorf("beside a hundred slow issuers: %v", err)
		}
		if _, err := keys.Verify(1, mappings[1], ours.sign(t, good())); !errors.Is(err, gateway.ErrNoKeys) {
			t.Errorf("of a slow issuer: %v", err)
		}
	})
}

func TestTheFirstReadsCanBeAwaited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ours := newKey(t, "1")
		source := &issuer{sets: map[string]string{"https://good.example": ours.set}}
		mappings := map[rules.TenantID]*gateway.Mapping{
			1: byURL("https://good.example"),
			2: byURL("https://down.example"),
		}
		keys, stop := run(t, &http.Client{Transport: source}, mappings)
		defer stop()
		began := time.Now()
		keys.AwaitFirst(t.Context())
		if _, err := keys.Verify(1, mappings[1], ours.sign(t, good())); err != nil || time.Since(began) > 0 {
			t.Errorf("after %s: %v", time.Since(began), err)
		}

		slow := map[rules.TenantID]*gateway.Mapping{1: byURL("https://slow.example")}
		source.publish("https://slow.example", "slow")
		keys, stopSlow := run(t, &http.Client{Transport: source}, slow)
		defer stopSlow()
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if keys.AwaitFirst(soon); time.Since(began) != time.Second {
			t.Errorf("a slow issuer was awaited for %s", time.Since(began))
		}
	})
}

func TestKeysAreNotReadFromPrivateAddresses(t *testing.T) {
	t.Parallel()
	ours := newKey(t, "1")
	asked := make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		_, _ = io.WriteString(w, ours.set)
	}))
	defer server.Close()
	refused := &logged{lines: make(chan string, 10)}
	for _, allow := range [][]netip.Prefix{nil, {netip.MustParsePrefix("127.0.0.0/8")}} {
		mapping := byURL(server.URL)
		keys := jwks.New(jwks.Options{
			Client: webhook.NewClient(allow, time.Second), Log: slog.New(slog.NewTextHandler(refused, nil)),
			Mappings: func() map[rules.TenantID]*gateway.Mapping {
				return map[rules.TenantID]*gateway.Mapping{1: mapping}
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { keys.Run(ctx); close(done) }()
		select {
		case <-asked:
			if allow == nil {
				t.Error("the private address was asked")
			}
		case line := <-refused.lines:
			if allow != nil || !strings.Contains(line, "not public") {
				t.Errorf("logged %s", line)
			}
		}
		cancel()
		<-done
	}
}

type logged struct{ lines chan string }

func (l *logged) Write(line []byte) (int, error) {
	l.lines <- string(line)
	return len(line), nil
}

func BenchmarkVerify(b *testing.B) {
	t := new(testing.T)
	ours := newKey(t, "1")
	token := ours.sign(t, good())
	mapping := (&gateway.Authorize{
		JWT: &gateway.JWT{JWKS: ours.set}, User: &gateway.User{Source: gateway.Source{Claim: "sub"}},
	}).Compile()
	keys := jwks.New(jwks.Options{
		Log: slog.New(slog.DiscardHandler),
		Mappings: func() map[rules.TenantID]*gateway.Mapping {
			return map[rules.TenantID]*gateway.Mapping{1: mapping}
		},
	})
	ctx, cancel := context.WithCancel(b.Context())
	cancel()
	keys.Run(ctx)
	for b.Loop() {
		if _, err := keys.Verify(1, mapping, token); err != nil {
			b.Fatal(err)
		}
	}
}

func TestASetWhoseReadPanicsIsReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ours := newKey(t, "1")
		source := &issuer{sets: map[string]string{"https://one.example": "panic"}}
		mappings := map[rules.TenantID]*gateway.Mapping{1: byURL("https://one.example")}
		keys, stop := run(t, &http.Client{Transport: source}, mappings)
		defer stop()
		keys.AwaitFirst(t.Context()) // does not hang
		if _, err := keys.Verify(1, mappings[1], ours.sign(t, good())); !errors.Is(err, gateway.ErrNoKeys) {
			t.Errorf("after a panic: %v", err)
		}
		source.publish("https://one.example", ours.set)
		<-time.After(2 * time.Second)
		if _, err := keys.Verify(1, mappings[1], ours.sign(t, good())); err != nil {
			t.Error(err)
		}
	})
}
