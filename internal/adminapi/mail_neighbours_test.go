package adminapi_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/notify/mailer/smtptest"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestATenantWithMuchMailHoldsNobodysMailBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := smtptest.New(t, smtptest.Options{})
	open := make(chan struct{})
	greedy, others := make(chan string, 4000), make(chan string, 10)
	server.Refuse(func(to string) error {
		if strings.HasPrefix(to, "greedy") {
			greedy <- to
			<-open
		} else {
			others <- to
		}
		return nil
	})
	office := w.postOffice(server)
	queue := func(tenant rules.TenantID, to string) {
		message := auth.Mail{Tenant: tenant, Kind: auth.MailTest, To: to, GiveUpAt: time.Now().Add(time.Hour)}
		must(w.store.QueueMail(w.ctx(), message, auth.MailLimits{}))(t)
	}
	for i := range 2000 {
		queue(w.acme.ID, fmt.Sprintf("greedy-%d@example.com", i))
	}
	ctx, stop := context.WithCancel(w.ctx())
	var running sync.WaitGroup
	running.Go(func() {
		jobs.New(w.store, []jobs.Kind{office.Jobs()}, slog.New(slog.DiscardHandler)).Run(ctx)
	})
	for range 2 { // its share
		<-greedy
	}
	queue(w.other.ID, "neighbour@example.com")
	queue(0, "reset@example.com")
	for range 2 {
		select {
		case <-others:
		case <-time.After(time.Minute):
			t.Fatal("mail waits for another tenant's")
		}
	}
	if more := len(greedy); more > 0 {
		t.Errorf("the greedy tenant has %d more messages under way than its share", more)
	}
	close(open)
	<-greedy // goes on
	stop()
	running.Wait()
}

func TestATenantCanQueueSoManyInvitations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner := w.person(w.acme, auth.Owner)
	invite := func(by caller, slug, email string) answer {
		return w.send(by, "POST", "/api/v1/tenants/"+slug+"/invitations",
			map[string]string{"email": email, "role": "editor"})
	}
	for i := range auth.TenantMail.Queued {
		w.want(invite(owner, "acme", fmt.Sprintf("guest-%d@example.com", i)), http.StatusCreated)
	}
	w.want(invite(owner, "acme", "one-more@example.com"), http.StatusTooManyRequests)
	w.want(invite(w.person(w.other, auth.Owner), "other", "guest@example.com"), http.StatusCreated)
}
