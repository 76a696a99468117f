package oidc

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/sluicegate/sluice/internal/auth"
)

type found struct {
	provider    *oidc.Provider
	endpoint    oauth2.Endpoint
	verifier    *oidc.IDTokenVerifier
	endSession  *url.URL
	namesItself bool // every answer contains the parameter iss
	at          time.Time
}

func (p *provider) discover(ctx context.Context) (*found, error) {
	now := p.options.Now()
	p.mu.Lock()
	known, failed, triedAt := p.found, p.failed, p.triedAt
	p.mu.Unlock()
	isRecent := failed != nil && now.Sub(triedAt) < retryAfter
	switch {
	case known != nil && (now.Sub(known.at) < refreshAfter || isRecent):
		return known, nil
	case isRecent:
		return nil, failed
	}
	// The first caller's cancellation must not fail the others.
	result := p.discovery.DoChan("", func() (any, error) { return p.ask(context.WithoutCancel(ctx)) })
	if known != nil {
		return known, nil
	}
	select {
	case r := <-result:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*found), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the discovery document: %w", ctx.Err())
	}
}

func (p *provider) ask(ctx context.Context) (*found, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	f, err := p.read(oidc.ClientContext(ctx, p.options.Client))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed, p.triedAt = nil, p.options.Now()
	if err != nil {
		p.failed = errors.New(words(err))
		return nil, p.failed
	}
	p.found = f
	return f, nil
}

func (p *provider) read(ctx context.Context) (*found, error) {
	provider, err := oidc.NewProvider(ctx, p.Issuer)
	if err != nil {
		return nil, err
	}
	var more struct {
		EndSession  string   `json:"end_session_endpoint"`
		NamesItself bool     `json:"authorization_response_iss_parameter_supported"`
		JWKS        string   `json:"jwks_uri"`
		Challenges  []string `json:"code_challenge_methods_supported"`
		AuthMethods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := provider.Claims(&more); err != nil {
		return nil, fmt.Errorf("read the discovery document: %w", err)
	}
	if len(more.Challenges) > 0 && !slices.Contains(more.Challenges, "S256") {
		return nil, errors.New("the provider does not support PKCE with S256")
	}
	f := &found{provider: provider, endpoint: provider.Endpoint(), namesItself: more.NamesItself, at: p.options.Now()}
	// The library would find out by sending the code twice.
	f.endpoint.AuthStyle = oauth2.AuthStyleInHeader
	if len(more.AuthMethods) > 0 && !slices.Contains(more.AuthMethods, "client_secret_basic") {
		f.endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	for name, address := range map[string]string{
		"authorization_endpoint": provider.Endpoint().AuthURL, "token_endpoint": provider.Endpoint().TokenURL,
		"jwks_uri": more.JWKS,
	} {
		if err := p.checkEndpoint(address); err != nil {
			return nil, fmt.Errorf("the discovery document's %s %w", name, err)
		}
	}
	if more.EndSession != "" {
		if err := p.checkEndpoint(more.EndSession); err != nil {
			return nil, fmt.Errorf("the discovery document's end_session_endpoint %w", err)
		}
		f.endSession, _ = url.Parse(more.EndSession) // checked above
	}
	f.verifier = provider.Verifier(&oidc.Config{ClientID: p.ClientID, Now: p.options.Now})
	return f, nil
}

func (p *provider) checkEndpoint(address string) error {
	u, err := url.Parse(address)
	isPlain := err == nil && u.Scheme == "http" && strings.HasPrefix(p.Issuer, "http://")
	if err != nil || u.Host == "" || u.Scheme != "https" && !isPlain {
		return fmt.Errorf("is %.200q, which is no https:// address", address)
	}
	return nil
}

func (p *provider) oauth(f *found) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.ClientID, ClientSecret: p.ClientSecret, Endpoint: f.endpoint, Scopes: p.scopes(),
		RedirectURL: p.options.URL() + CallbackPath(p.Slug),
	}
}

func (p *provider) identify(ctx context.Context, f flow, query url.Values) (auth.Identity, error) {
	for _, name := range []string{"state", "code", "iss", "error"} {
		if len(query[name]) > 1 {
			return auth.Identity{}, fmt.Errorf("the answer has the parameter %s twice", name)
		}
	}
	found, err := p.discover(ctx)
	if err != nil {
		return auth.Identity{}, auth.ProviderError{Reason: auth.ProviderAway, Detail: err.Error()}
	}
	if iss := query.Get("iss"); iss != p.Issuer && (query.Has("iss") || found.namesItself) {
		return auth.Identity{}, fmt.Errorf("the answer is of another provider: its issuer is %.200q", iss)
	}
	if query.Has("error") {
		return auth.Identity{}, answeredError(query)
	}
	if query.Get("code") == "" {
		return auth.Identity{}, errors.New("the answer has no code")
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.options.Client), 2*callTimeout)
	defer cancel()
	token, err := p.oauth(found).Exchange(ctx, query.Get("code"), oauth2.VerifierOption(f.Verifier))
	if err != nil {
		return auth.Identity{}, exchangeError(err)
	}
	raw, _ := token.Extra("id_token").(string)
	if raw == "" {
		return auth.Identity{}, errors.New("the provider gave no ID token; is openid among its scopes?")
	}
	id, err := found.verifier.Verify(ctx, raw)
	if err != nil {
		return auth.Identity{}, err
	}
	var claims map[string]any
	if err := id.Claims(&claims); err != nil {
		return auth.Identity{}, fmt.Errorf("read the ID token: %w", err)
	}
	if err := p.checkToken(f, id, claims, token.AccessToken); err != nil {
		return auth.Identity{}, err
	}
	// The user information describes the person, not this sign-in.
	twoFactors := p.Rule.CountsAsTwoFactors && (p.SecondFactorClaim == "" || hasClaim(claims, p.SecondFactorClaim))
	if err := p.addUserInfo(ctx, found, token, id.Subject, claims); err != nil {
		return auth.Identity{}, err
	}
	if isElsewhere(claims, p.GroupsClaim) {
		return auth.Identity{}, fmt.Errorf(
			"the provider does not tell %s itself (_claim_names), because this person is in too many groups; "+
				"have it tell only those that are assigned to the application", p.GroupsClaim)
	}
	identity := p.identity(id.Subject, claims)
	identity.TwoFactors = twoFactors
	return identity, nil
}

func (p *provider) checkToken(f flow, id *oidc.IDToken, claims map[string]any, accessToken string) error {
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(f.Nonce)) != 1 {
		return errors.New("the ID token was made for another sign-in: its nonce is another one")
	}
	if azp, has := claims["azp"]; has && azp != p.ClientID || !has && len(id.Audience) > 1 {
		return errors.New("the ID token was made for another client: see its azp")
	}
	if id.Subject == "" || len(id.Subject) > maxSubject || !isText(id.Subject) {
		return errors.New("the ID token's sub is no text of 1 to 255 characters")
	}
	if f.Confirm != 0 || f.Session != 0 {
		if err := p.checkAuthTime(f, claims["auth_time"]); err != nil {
			return err
		}
	}
	if id.AccessTokenHash != "" {
		return id.VerifyAccessToken(accessToken)
	}
	return nil
}

const clockDrift = time.Minute // between the provider and us

// checkAuthTime refuses a person who was not asked to authenticate again. Linking needs no auth_time, because many
// providers omit it and the person has just proven the account here.
func (p *provider) checkAuthTime(f flow, claim any) error {
	began := f.began()
	switch {
	case claim == nil && (p.TrustWithoutAuthTime || f.Confirm == 0):
		return nil
	case claim == nil:
		return auth.ProviderError{
			Reason: auth.ProviderTellsNoTime,
			Detail: "the ID token has no auth_time, so nothing shows that the provider asked for the sign-in again; " +
				"have it send that claim, or set trust_without_auth_time",
		}
	}
	seconds, ok := claim.(float64)
	if !ok || seconds < 0 || seconds > 1<<40 {
		return errors.New("the ID token's auth_time is no time in seconds")
	}
	at := time.Unix(int64(seconds), 0)
	if at.After(p.options.Now().Add(clockDrift)) {
		return errors.New("the ID token's auth_time is in the future")
	}
	if at.Before(began.Add(-clockDrift)) {
		return auth.ProviderError{Reason: auth.ProviderNotAsked, Detail: fmt.Sprintf(
			"the provider did not ask for the sign-in again: its auth_time is %s, %s before the request",
			at.UTC().Format(time.RFC3339), began.Sub(at).Round(time.Second))}
	}
	return nil
}

const maxSubject = 255 // OpenID Connect Core, section 2

func (p *provider) addUserInfo(ctx context.Context, f *found, token *oauth2.Token, subject string,
	claims map[string]any,
) error {
	claim, _, _ := strings.Cut(p.RequiredClaim, "=")
	isComplete := claims["email"] != nil && (p.GroupsClaim == "" || lookUp(claims, p.GroupsClaim) != nil) &&
		(claim == "" || lookUp(claims, claim) != nil)
	if isComplete || f.provider.UserInfoEndpoint() == "" {
		return nil
	}
	if err := p.checkEndpoint(f.provider.UserInfoEndpoint()); err != nil {
		return fmt.Errorf("the discovery document's userinfo_endpoint %w", err)
	}
	info, err := f.provider.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return fmt.Errorf("ask for the user's information: %w", err)
	}
	if info.Subject != subject {
		return errors.New("the provider told another user's information: its sub is another one")
	}
	var more map[string]any
	if err := info.Claims(&more); err != nil {
		return fmt.Errorf("read the user's information: %w", err)
	}
	// email and email_verified must come from the same document.
	if claims["email"] == nil {
		delete(claims, "email_verified")
	} else {
		delete(more, "email_verified")
	}
	maps.DeleteFunc(more, func(name string, _ any) bool { return claims[name] != nil })
	maps.Copy(claims, more)
	return nil
}

func (p *provider) identity(subject string, claims map[string]any) auth.Identity {
	identity := auth.Identity{Provider: p.Rule, Subject: subject, HasClaim: true}
	identity.Email, _ = claims["email"].(string)
	identity.Name, _ = claims["name"].(string)
	identity.EmailVerified = claims["email_verified"] == true || claims["email_verified"] == "true"
	if p.RequiredClaim != "" {
		identity.HasClaim = hasClaim(claims, p.RequiredClaim)
	}
	if p.GroupsClaim != "" {
		identity.Groups = texts(lookUp(claims, p.GroupsClaim))
	}
	return identity
}

func hasClaim(claims map[string]any, want string) bool {
	name, value, _ := strings.Cut(want, "=")
	return slices.Contains(texts(lookUp(claims, name)), value)
}

func lookUp(claims map[string]any, name string) any {
	if value, ok := claims[name]; ok {
		return value
	}
	first, rest, isPath := strings.Cut(name, ".")
	if inner, ok := claims[first].(map[string]any); ok && isPath {
		return lookUp(inner, rest)
	}
	return nil
}

// isElsewhere reports whether a claim must be fetched from another address, as at Microsoft Entra ID for people in more
// than 200 groups. Taking it for no groups would end their roles.
func isElsewhere(claims map[string]any, name string) bool {
	names, _ := claims["_claim_names"].(map[string]any)
	return name != "" && names[name] != nil && lookUp(claims, name) == nil
}

func texts(value any) (all []string) {
	switch value := value.(type) {
	case nil:
	case []any:
		for _, one := range value {
			all = append(all, texts(one)...)
		}
	case map[string]any: // not comparable
	default:
		all = append(all, fmt.Sprint(value))
	}
	return all
}

func answeredError(query url.Values) error {
	code := query.Get("error")
	refused := auth.ProviderError{
		Reason: auth.ProviderWrong,
		Detail: line("the provider answered " + code + " " + query.Get("error_description")),
	}
	switch code {
	case "access_denied", "login_required", "consent_required", "interaction_required", "account_selection_required":
		refused.Reason = auth.ProviderDenied
	case "temporarily_unavailable", "server_error":
		refused.Reason = auth.ProviderAway
	}
	return refused
}

// exchangeError keeps secrets of the token endpoint's answer out of the detail.
func exchangeError(err error) error {
	var answered *oauth2.RetrieveError
	if !errors.As(err, &answered) {
		return auth.ProviderError{Reason: auth.ProviderAway, Detail: words(err)}
	}
	refused := auth.ProviderError{
		Reason: auth.ProviderWrong,
		Detail: line(fmt.Sprintf("the token endpoint answered %d %s %s",
			answered.Response.StatusCode, answered.ErrorCode, answered.ErrorDescription)),
	}
	if answered.Response.StatusCode >= http.StatusInternalServerError {
		refused.Reason = auth.ProviderAway
	}
	return refused
}

// words leaves the query of an address out, which may hold a secret.
func words(err error) string {
	var request *url.Error
	if errors.As(err, &request) {
		address, _, _ := strings.Cut(request.URL, "?")
		return line(fmt.Sprintf("%s %s: %v", request.Op, address, request.Err))
	}
	return line(err.Error())
}

const maxWords = 300 // in characters

func line(text string) string {
	text = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, ""))), " ")
	if runes := []rune(text); len(runes) > maxWords {
		text = string(runes[:maxWords]) + " …"
	}
	return text
}

func isText(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar })
}

// newClient follows no redirects, because they would forward the client secret.
func newClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxResponseHeaderBytes = 64 << 10
	return &http.Client{
		Transport: bounded{transport}, Timeout: callTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

const maxAnswer = 1 << 20

type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.next.RoundTrip(r)
	if err == nil {
		answer.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(answer.Body, maxAnswer), answer.Body}
	}
	return answer, err
}
