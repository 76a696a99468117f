package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/sluicegate/sluice/internal/app"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/replay"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
)

func replayFile(ctx context.Context, store *pgstore.Store, args config.Arguments, in io.Reader, out io.Writer) error {
	now := time.Now()
	since, err := timeOrAgo("from", args.From, now)
	if err != nil {
		return err
	}
	until, err := timeOrAgo("to", args.To, now)
	if err != nil {
		return err
	}
	if wrong := (&replay.Request{Since: since, Until: until}).Validate(now); len(wrong) > 0 {
		return fmt.Errorf("%w: --from and --to: %w", app.ErrUsage, wrong)
	}
	var condition replay.Condition
	if args.FailIf != "" {
		if condition, err = replay.ParseCondition(args.FailIf); err != nil {
			return fmt.Errorf("%w: --fail-if: %w", app.ErrUsage, err)
		}
	}
	tenant, err := tenantBySlug(ctx, store, args.Tenant)
	if err != nil {
		return err
	}
	current, err := store.Config(ctx, tenant.ID)
	if err != nil {
		return err
	}
	files, err := readFiles(args.Files, in)
	if err != nil {
		return err
	}
	desired, _, err := decodeRules(files, current)
	if err != nil {
		return err
	}
	input, err := replay.Load(ctx, store, tenant.ID, since, until,
		&replay.Candidate{Config: desired, Prune: args.Prune}, traffic.Draw{})
	if errors.Is(err, replay.ErrNothing) && tenant.Settings.RecordDays == 0 {
		return fmt.Errorf("%w: set record_days of the tenant to record them", err)
	}
	if err != nil {
		return err
	}
	result, err := replay.Run(ctx, input, replay.Options{Parallel: true})
	if err != nil {
		return err
	}
	if err := writeReplay(out, result); err != nil {
		return err
	}
	if text, met := condition.Met(result); met {
		return fmt.Errorf("%w: %s", app.ErrConditionMet, text)
	}
	return nil
}

func timeOrAgo(option, text string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("%w: --%s: %q is neither a time such as 2026-11-20T09:00:00Z nor a time ago such as 24h",
			app.ErrUsage, option, text)
	}
	return at, nil
}

func writeReplay(out io.Writer, r *replay.Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s to %s: %s checks", r.Since.Format(time.RFC3339), r.Until.Format(time.RFC3339),
		figureText(r.Checks))
	if r.Share < 1 {
		fmt.Fprintf(w, ", from a sample of %g %% of users and addresses", 100*r.Share)
	}
	fmt.Fprintf(w, "\n%.2f %% are decided by the rules in force as they were.\n\n",
		100*float64(r.Agreeing)/float64(max(1, r.Read)))
	fmt.Fprintln(w, "\tdenied then\tnewly denied\tno longer denied\tfrom other rules\tdenied with the change")
	row := func(name string, c *replay.Counts, fromOthers string) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", name,
			figureText(c.DeniedThen), figureText(c.NewlyDenied), figureText(c.NoLongerDenied), fromOthers,
			figureText(c.DeniedNow))
	}
	row("all", &r.Counts, "")
	for i := range r.Plans {
		name := "plan " + r.Plans[i].Plan
		if r.Plans[i].Plan == "" {
			name = "no plan"
		}
		row(name, &r.Plans[i].Counts, "")
	}
	for i := range r.Rules {
		name := r.Rules[i].Rule
		if r.Rules[i].Mode == "shadow" {
			name += " (shadow)"
		}
		row(name, &r.Rules[i].Counts, signedText(r.Rules[i].FromOtherRules))
	}
	shown := 0
	for i := range r.Users {
		u := &r.Users[i]
		if u.NewlyDenied+u.NoLongerDenied == 0 || shown == 10 {
			break
		}
		if shown == 0 {
			fmt.Fprintln(w, "\nThose who are decided otherwise most often:\tdenied then\tnewly denied\tno longer "+
				"denied\t\tdenied with the change")
		}
		shown++
		name := "user " + u.UserID
		if u.UserID == "" {
			name = "address " + u.IP
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t\t%d\n", rules.Visible(name), u.DeniedThen, u.NewlyDenied, u.NoLongerDenied,
			u.DeniedNow)
	}
	for _, l := range r.LeftOut {
		fmt.Fprintf(w, "Left out: %s: %s.\n", l.Rule, l.Why)
	}
	if !r.RecordedSince.IsZero() {
		fmt.Fprintf(w, "Checks are recorded since %s; what came before is missing.\n",
			r.RecordedSince.Format(time.RFC3339))
	}
	if !r.RulesKnownSince.IsZero() {
		fmt.Fprintf(w, "The audit log knows the rules since %s; before, the rules of that time stand for them.\n",
			r.RulesKnownSince.Format(time.RFC3339))
	}
	for _, note := range r.Notes {
		fmt.Fprintln(w, note)
	}
	return w.Flush()
}

func figureText(f replay.Figure) string { return fmt.Sprintf("%.0f", f.Value) + errorText(f) }

func signedText(f replay.Figure) string { return fmt.Sprintf("%+.0f", f.Value) + errorText(f) }

func errorText(f replay.Figure) string {
	if f.Error == 0 {
		return ""
	}
	return fmt.Sprintf(" ± %.0f", f.Error)
}
