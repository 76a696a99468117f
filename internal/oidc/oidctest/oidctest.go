// Package oidctest is an OpenID Connect provider for tests, which can be made to answer wrongly.
package oidctest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/sluicegate/sluice/internal/oidc"
)

// The credentials of the client.
const (
	ClientID     = "sluice"
	ClientSecret = "a secret of sixteen characters and more"
)

// Claims are the claims of an ID token.
type Claims = map[string]any

// Provider is a running provider, which tests configure before a request.
type Provider struct {
	*httptest.Server
	t testing.TB

	mu     sync.Mutex
	person Claims

	spoil    func(Claims)
	document func(Claims)
	lastID   string
	replayed string
	lax      bool // ignores the code verifier
	silent   bool // omits its issuer from answers
	unsigned bool
	down     bool
	refusal  string
	hidden   []string
	key      *ecdsa.PrivateKey
	codes    map[string]url.Values // requests, by code
}

// Start starts a provider until the test's end.
func Start(t testing.TB) *Provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &Provider{t: t, key: key, codes: map[string]url.Values{}, person: Person("ada", "ada@example.com")}
	router := http.NewServeMux()
	router.HandleFunc("GET /.well-known/openid-configuration", p.discovery)
	router.HandleFunc("GET /authorize", p.authorize)
	router.HandleFunc("POST /token", p.token)
	router.HandleFunc("GET /keys", p.keys)
	router.HandleFunc("GET /userinfo", p.info)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.isDown() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		router.ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

// Person returns the claims of a person with a verified address.
func Person(subject, email string) Claims {
	return Claims{"sub": subject, "email": email, "email_verified": true, "name": subject}
}

// Settings returns the settings of a client.
func (p *Provider) Settings(slug string) oidc.Settings {
	return oidc.Settings{Slug: slug, Name: "The " + slug, Issuer: p.URL, ClientID: ClientID, ClientSecret: ClientSecret}
}

// SignedIn sets the signed-in person, with further claims.
func (p *Provider) SignedIn(person Claims, more ...Claims) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.person = maps.Clone(person)
	for _, claims := range more {
		maps.Copy(p.person, claims)
	}
}

// Spoil changes the claims of later ID tokens; nil ends that.
func (p *Provider) Spoil(spoil func(Claims)) { p.set(func() { p.spoil = spoil }) }

// Unsign makes later ID tokens use the algorithm none.
func (p *Provider) Unsign(unsigned bool) { p.set(func() { p.unsigned = unsigned }) }

// Replay makes the provider repeat its last ID token.
func (p *Provider) Replay() { p.set(func() { p.replayed = p.lastID }) }

// IgnorePKCE makes the provider accept any code verifier.
func (p *Provider) IgnorePKCE() { p.set(func() { p.lax = true }) }

// NameNobody makes the provider omit its issuer from answers, like one without RFC 9207.
func (p *Provider) NameNobody() { p.set(func() { p.silent = true }) }

// SpoilDocument changes the discovery document; nil ends that.
func (p *Provider) SpoilDocument(spoil func(Claims)) { p.set(func() { p.document = spoil }) }

// GoDown makes the provider answer 503.
func (p *Provider) GoDown(down bool) { p.set(func() { p.down = down }) }

// Refuse makes the authorization endpoint return an error; "" ends that.
func (p *Provider) Refuse(refusal string) { p.set(func() { p.refusal = refusal }) }

// Hide moves claims from the ID token to the user information.
func (p *Provider) Hide(claims ...string) { p.set(func() { p.hidden = claims }) }

func (p *Provider) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *Provider) isDown() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down
}

// Visit plays the browser at the provider, and returns the query of the callback.
func (p *Provider) Visit(address string) url.Values {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	answer, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		p.t.Fatal(err)
	}
	_ = answer.Body.Close()
	back, err := url.Parse(answer.Header.Get("Location"))
	if err != nil || answer.StatusCode != http.StatusFound {
		p.t.Fatalf("the provider answered %d, %v", answer.StatusCode, err)
	}
	return back.Query()
}

func (p *Provider) discovery(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	document := Claims{
		"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
		"jwks_uri":          p.URL + "/keys",
		"userinfo_endpoint": p.URL + "/userinfo", "end_session_endpoint": p.URL + "/end",
		"id_token_signing_alg_values_supported": []string{"ES256"}, "response_types_supported": []string{"code"},
		"subject_types_supported": []string{"public"}, "code_challenge_methods_supported": []string{"S256"},
		"authorization_response_iss_parameter_supported": !p.silent,
	}
	if p.document != nil {
		p.document(document)
	}
	reply(w, http.StatusOK, document)
}

func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("client_id") != ClientID || q.Get("response_type") != "code" ||
		q.Get("code_challenge_method") != "S256" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	answer := url.Values{"state": {q.Get("state")}}
	p.mu.Lock()
	if !p.silent {
		answer.Set("iss", p.URL)
	}
	if p.refusal != "" {
		answer.Set("error", p.refusal)
	} else {
		code := rand.Text()
		p.codes[code] = q
		answer.Set("code", code)
	}
	p.mu.Unlock()
	back.RawQuery = answer.Encode()
	w.Header().Set("Location", back.String())
	w.WriteHeader(http.StatusFound)
}

func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	id, secret, _ := r.BasicAuth()
	id, _ = url.QueryUnescape(id)
	secret, _ = url.QueryUnescape(secret)
	if id != ClientID || secret != ClientSecret {
		reply(w, http.StatusUnauthorized, Claims{"error": "invalid_client"})
		return
	}
	p.mu.Lock()
	asked, isOpen := p.codes[r.PostFormValue("code")]
	delete(p.codes, r.PostFormValue("code"))
	isLax := p.lax
	p.mu.Unlock()
	challenge := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !isOpen || !isLax && asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(challenge[:]) ||
		asked.Get("redirect_uri") != r.PostFormValue("redirect_uri") {
		reply(w, http.StatusBadRequest, Claims{"error": "invalid_grant", "error_description": "no such code"})
		return
	}
	reply(w, http.StatusOK, Claims{
		"access_token": "an access token", "token_type": "Bearer", "expires_in": 60,
		"id_token": p.idToken(asked),
	})
}

func (p *Provider) idToken(asked url.Values) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.replayed != "" {
		return p.replayed
	}
	claims := Claims{
		"iss": p.URL, "aud": ClientID, "nonce": asked.Get("nonce"), "iat": time.Now().Unix(),
		"exp": time.Now().Add(time.Minute).Unix(),
	}
	if asked.Has("max_age") {
		claims["auth_time"] = time.Now().Unix()
	}
	maps.Copy(claims, p.person)
	for _, name := range p.hidden {
		delete(claims, name)
	}
	if p.spoil != nil {
		p.spoil(claims)
	}
	payload, _ := json.Marshal(claims) // always valid JSON
	if p.unsigned {
		encode := base64.RawURLEncoding.EncodeToString
		return encode([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + encode(payload) + "."
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: p.key}, nil)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	p.lastID, err = signed.CompactSerialize()
	if err != nil {
		p.t.Error(err)
	}
	return p.lastID
}

func (p *Provider) keys(w http.ResponseWriter, _ *http.Request) {
	key := jose.JSONWebKey{Key: p.key.Public(), Algorithm: string(jose.ES256)}
	reply(w, http.StatusOK, Claims{"keys": []any{key}})
}

func (p *Provider) info(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer an access token" {
		reply(w, http.StatusUnauthorized, Claims{"error": "invalid_token"})
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	reply(w, http.StatusOK, p.person)
}

func reply(w http.ResponseWriter, status int, body Claims) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
