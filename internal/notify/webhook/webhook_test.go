package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluicegate/sluice/internal/notify/webhook"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

func noticeTo(url string) *violations.Notice {
	return &violations.Notice{
		Delivery: violations.Delivery{
			ID: 71, Alert: 5,
			Firing: violations.Firing{
				Rule: 12, Subject: "42", Denied: 1200,
				Since: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
			},
			RaisedAt: time.Date(2026, 11, 21, 12, 3, 20, 0, time.UTC),
		},
		Of: violations.Alert{
			ID: 5, Name: "one customer is hammering", Kind: violations.AlertDenials, Rule: 12, PerSubject: true,
			Threshold: 1000, Window: 5 * time.Minute,
			Format: violations.FormatWebhook, URL: url, Secret: "hush",
		},
		TenantSlug: "acme", Meter: "usd", Mode: rules.ModeEnforce,
	}
}

func TestAPostIsSignedAndSaysWhatHappened(t *testing.T) {
	t.Parallel()
	var got struct {
		body      string
		signature string
		delivery  string
	}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got.body, got.signature, got.delivery = string(body), r.Header.Get("Sluice-Signature"),
			r.Header.Get("Sluice-Delivery")
		w.WriteHeader(http.StatusAccepted)
	}))
	defer receiver.Close()
	before := time.Now().Unix()
	status, err := webhook.New(webhook.Options{Allow: loopback}).Send(t.Context(), noticeTo(receiver.URL))
	if err != nil || status != http.StatusAccepted {
		t.Fatalf("status %d, error %v", status, err)
	}
	const want = `{"type":"denials_reached_threshold","delivery_id":"71","tenant":"acme",` +
		`"alert":{"id":"5","name":"one customer is hammering","threshold":1000,"window_seconds":300},` +
		`"kind":"denials","rule_id":"12","meter":"usd","mode":"enforce","subject":"42","count":1200,"denied":1200,` +
		`"since":"2026-11-21T12:00:00Z","raised_at":"2026-11-21T12:03:20Z"}`
	if got.body != want || got.delivery != "71" {
		t.Errorf("delivery %s is\n%s, want\n%s", got.delivery, got.body, want)
	}
	var stamp int64
	if _, err := fmt.Sscanf(got.signature, "t=%d,v1=", &stamp); err != nil || stamp < before ||
		stamp > time.Now().Unix() {
		t.Errorf("the signature %s is not of now", got.signature)
	}
	if want := webhook.Signature("hush", time.Unix(stamp, 0), []byte(got.body)); got.signature != want {
		t.Errorf("the signature is %s, want %s", got.signature, want)
	}
}

// recipe.test.ts runs the program that the documentation and the UI show.
func TestAReceivedWebhookIsSignedAsDescribed(t *testing.T) {
	t.Parallel()
	for _, file := range []string{
		"docs/violations.md", "api/openapi.yaml", "web/src/features/alerts/recipe.ts",
		"web/src/features/alerts/AlertSecret.tsx",
	} {
		text := string(must(os.ReadFile("../../../" + file))(t))
		if !strings.Contains(text, "Sluice-Signature: t=") || strings.Contains(text, "X-Sluice-Signature") {
			t.Errorf("%s describes another signature", file)
		}
	}
	var signature string
	var body []byte
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		signature = r.Header.Get("Sluice-Signature")
	}))
	defer receiver.Close()
	if _, err := webhook.New(webhook.Options{Allow: loopback}).Send(t.Context(), noticeTo(receiver.URL)); err != nil {
		t.Fatal(err)
	}
	stamp, sum, _ := strings.Cut(strings.TrimPrefix(signature, "t="), ",v1=")
	mac := hmac.New(sha256.New, []byte("hush"))
	mac.Write([]byte(stamp + "." + string(body)))
	if want := hex.EncodeToString(mac.Sum(nil)); sum != want {
		t.Errorf("the signature is %s, want t=%s,v1=%s", signature, stamp, want)
	}
}

func TestTheSignatureIsThatOfTheDocumentation(t *testing.T) {
	t.Parallel()
	// printf '%s' '1795243200.{}' | openssl dgst -sha256 -hmac hush
	const want = "t=1795243200,v1=c81f162066c7f5f89b21fdce410e07cad4d90907b0c5507a9135cb04b3a13d28"
	if got := webhook.Signature("hush", time.Unix(1795243200, 0), []byte("{}")); got != want {
		t.Errorf("the signature is %s, want %s", got, want)
	}
}

func TestAlertsOfAWholeRuleNameNoSubject(t *testing.T) {
	t.Parallel()
	var body map[string]any
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
	}))
	defer receiver.Close()
	notice := noticeTo(receiver.URL)
	notice.Of.PerSubject, notice.Subject = false, ""
	if _, err := webhook.New(webhook.Options{Allow: loopback}).Send(t.Context(), notice); err != nil {
		t.Fatal(err)
	}
	if subject, ok := body["subject"]; !ok || subject != nil {
		t.Errorf("the subject is %v, want null", subject)
	}
}

func TestPostsGoToPublicAddressesOnly(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer receiver.Close()
	port := receiver.URL[strings.LastIndex(receiver.URL, ":"):]
	sender := webhook.New(webhook.Options{Timeout: 5 * time.Second})
	for _, host := range []string{
		"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "0.0.0.0", "[::]", "127.1.2.3",
		"10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "[fd00::1]", "[fe80::1]",
		"[::ffff:10.0.0.1]", "[64:ff9b::a00:1]", "[2002:a00:1::]", "224.0.0.1", "255.255.255.255", "2130706433",
		"0x7f.1",
	} {
		status, err := sender.Send(t.Context(), noticeTo("http://"+host+port))
		if err == nil || status != 0 {
			t.Errorf("a post to %s was answered with %d", host, status)
		}
		isName := host == "2130706433" || host == "0x7f.1"
		isUnknown := isName && (strings.Contains(err.Error(), "does not resolve") ||
			strings.Contains(err.Error(), "in time"))
		if !errors.Is(err, webhook.ErrForbidden) && !isUnknown {
			t.Errorf("a post to %s: %v, want ErrForbidden", host, err)
		}
	}
	if asked.Load() > 0 {
		t.Errorf("%d posts reached a private address", asked.Load())
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var followed atomic.Bool
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Store(true) }))
	defer target.Close()
	receiver := httptest.NewServer(http.RedirectHandler(target.URL, http.StatusTemporaryRedirect))
	defer receiver.Close()
	status, err := webhook.New(webhook.Options{Allow: loopback}).Send(t.Context(), noticeTo(receiver.URL))
	if err != nil || status != http.StatusTemporaryRedirect || followed.Load() {
		t.Errorf("status %d, error %v, followed: %v; want 307 and no more", status, err, followed.Load())
	}
}

func TestAReceiverThatDoesNotEndIsLeft(t *testing.T) {
	t.Parallel()
	tests := map[string]http.HandlerFunc{
		"one that does not answer": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then the server notices that the caller goes
			<-r.Context().Done()
		},
		"one that answers without end": func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		},
	}
	for name, handler := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			receiver := httptest.NewServer(handler)
			defer receiver.Close()
			began := time.Now()
			_, err := webhook.New(webhook.Options{Allow: loopback, Timeout: 300 * time.Millisecond}).Send(
				context.Background(), noticeTo(receiver.URL))
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it took %s (%v)", took, err)
			}
		})
	}
}

func TestAnErrorDoesNotShowTheURL(t *testing.T) {
	t.Parallel()
	_, err := webhook.New(webhook.Options{}).Send(t.Context(), noticeTo("http://127.0.0.1:1/?token=hunter2"))
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error is %v", err)
	}
}

func TestAnErrorDoesNotShowTheNetworkInside(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	hangsUp := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter,
		*http.Request,
	) {
		panic(http.ErrAbortHandler)
	}))
	defer hangsUp.Close()
	resets := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = resets.Close() }()
	go func() {
		for {
			connection, err := resets.Accept()
			if err != nil {
				return
			}
			_ = connection.(*net.TCPConn).SetLinger(0)
			_ = connection.Close()
		}
	}()
	for target, want := range map[string]string{
		"http://no-such-host.invalid/":           "the name of the host does not resolve",
		closed.URL:                               "the connection failed: connect: connection refused",
		hangsUp.URL:                              "without an answer",
		"http://" + resets.Addr().String() + "/": "connection reset",
	} {
		sender := webhook.New(webhook.Options{Allow: loopback, Timeout: time.Minute}) // resolvers give up earlier
		_, err := sender.Send(t.Context(), noticeTo(target))
		if err == nil || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "0123456789") {
			t.Errorf("a post to %s: %v, want %q without addresses", target, err, want)
		}
	}
}

func TestATargetThatIsNotPublicIsRefusedBeforehand(t *testing.T) {
	t.Parallel()
	names := map[string][]string{
		"public.example": {"93.184.216.34"}, "internal.example": {"10.0.0.7"}, "loop.example": {"127.0.0.1", "::1"},
		"both.example": {"10.0.0.7", "93.184.216.34"},
	}
	sender := webhook.New(webhook.Options{
		Allow: []netip.Prefix{netip.MustParsePrefix("192.168.7.0/24")},
		Lookup: func(_ context.Context, _, host string) (addresses []netip.Addr, err error) {
			for _, text := range names[host] {
				addresses = append(addresses, netip.MustParseAddr(text))
			}
			if addresses == nil {
				err = errors.New("lookup on 10.0.0.2:53: no such host")
			}
			return addresses, err
		},
	})
	for host, isForbidden := range map[string]bool{
		"127.0.0.1": true, "10.1.2.3:8443": true, "[::1]:80": true, "[::ffff:10.0.0.1]": true, "169.254.169.254": true,
		"93.184.216.34": false,
		"192.168.7.9":   false, "192.168.8.9": true,
		"public.example": false, "internal.example:8443": true, "loop.example": true, "both.example": false,
		"not-yet.example": false,
	} {
		err := sender.CheckTarget(t.Context(), "https://"+host+"/hook?token=x")
		if errors.Is(err, webhook.ErrForbidden) != isForbidden {
			t.Errorf("a post to %s beforehand: %v, want forbidden: %v", host, err, isForbidden)
		}
	}
}

func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
