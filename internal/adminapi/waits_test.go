package adminapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicegate/sluice/internal/meter"
	"github.com/sluicegate/sluice/internal/oidc"
	"github.com/sluicegate/sluice/internal/oidc/oidctest"
)

// oneProcessor is a processor that works for nobody else.
func oneProcessor() *meter.Processors {
	began := time.Now()
	return meter.NewProcessors(func() time.Duration { return time.Since(began) })
}

// slowly takes a while for each request to a handler.
type slowly struct {
	handler http.Handler
	asked   int
}

func (s *slowly) RoundTrip(r *http.Request) (*http.Response, error) {
	<-time.After(time.Second)
	s.asked++
	if r.Body == nil {
		r.Body = http.NoBody
	}
	answer := httptest.NewRecorder()
	s.handler.ServeHTTP(answer, r)
	return answer.Result(), nil
}

func TestCallersOfASlowProviderPayForNoWork(t *testing.T) {
	t.Parallel()
	provider := oidctest.Start(t)
	synctest.Test(t, func(t *testing.T) {
		wire := &slowly{handler: provider.Config.Handler}
		settings := provider.Settings("idp")
		settings.SignOut = true
		fresh := func() distant { // that knows nothing of its provider
			made, err := oidc.New([]oidc.Settings{settings}, oidc.Options{URL: func() string { return "http://localhost" }, Client: &http.Client{Transport: wire}})
			if err != nil {
				t.Fatal(err)
			}
			return distant{made}
		}
		pays := func(what string, call func(ctx context.Context) error) {
			t.Helper()
			before := wire.asked
			ctx, work := meter.With(t.Context(), oneProcessor())
			if err := call(ctx); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if worked := work.Worked(); worked != 0 || wire.asked == before {
				t.Errorf("%s asks the provider %d times, and its caller pays for %v of work", what, wire.asked-before, worked)
			}
			work.End()
		}
		providers := fresh()
		var address, cookie string
		pays("beginning", func(ctx context.Context) (err error) {
			address, cookie, err = providers.Start(ctx, "idp", oidc.Purpose{Next: "/"})
			return err
		})
		back := httptest.NewRecorder()
		provider.Config.Handler.ServeHTTP(back, httptest.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody))
		returned, err := url.Parse(back.Header().Get("Location"))
		if err != nil {
			t.Fatal(err)
		}
		pays("coming back", func(ctx context.Context) error {
			_, err := providers.Finish(ctx, "idp", cookie, returned.Query(), netip.MustParseAddr("192.0.2.1"))
			return err
		})
		pays("its status", func(ctx context.Context) error {
			fresh().Status(ctx)
			return nil
		})
		pays("signing out", func(ctx context.Context) error {
			_, err := fresh().SignOutURL(ctx, "idp")
			return err
		})
	})
}

// readSlowly takes a second for each write.
type readSlowly struct{ http.ResponseWriter }

func (w readSlowly) Write(b []byte) (int, error) {
	<-time.After(time.Second)
	return w.ResponseWriter.Write(b)
}

func TestWhoReadsAnAnswerSlowlyPaysForNoWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, work := meter.With(t.Context(), oneProcessor())
		defer work.End()
		answer := httptest.NewRecorder()
		w := paced{readSlowly{answer}, ctx}
		for range 3 {
			if n, err := w.Write([]byte("part,")); n != 5 || err != nil {
				t.Errorf("%d bytes are written, %v", n, err)
			}
		}
		if worked := work.Worked(); worked != 0 || answer.Body.String() != "part,part,part," {
			t.Errorf("writing %q for three seconds is %v of work", answer.Body, worked)
		}
		if err := http.NewResponseController(paced{answer, ctx}).Flush(); err != nil || !answer.Flushed {
			t.Errorf("the answer is not flushed: %v", err)
		}
	})
}
