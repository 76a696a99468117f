package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const (
	exportedRows = 1_000_000
	// mostGrowth is of an admin process while it exports, in bytes: twice what every process may allocate
	// between two garbage collections.
	mostGrowth = 64 << 20
)

var adminListens = regexp.MustCompile(`"admin_addr":"([^"]+)","metrics_addr":"([^"]+)"`)

// exportViolations exports many violations over HTTP, in each format from a process that has just started, and
// looks how much the process's memory grows meanwhile.
func exportViolations(ctx context.Context, _ int, _ time.Duration) (lines []line, err error) {
	s, err := setStage(ctx)
	if err != nil {
		return nil, err
	}
	defer s.clear()
	now := time.Now().UTC().Truncate(time.Minute)
	rows := min(exportedRows, *violationRows)
	store, err := loadViolations(ctx, s.postgres, "exported", now, rows, 1)
	if err != nil {
		return nil, err
	}
	store.Close()
	database := s.postgres.URL("exported")
	createKey := exec.CommandContext(ctx, filepath.Join(s.dir, "admin"), "create-key", "--tenant", "ours", "--name", "bench", "--permissions", "manage")
	createKey.Env = []string{"SLUICE_DATABASE_URL=" + database}
	key, err := createKey.Output()
	if err != nil {
		return nil, fmt.Errorf("create a key: %w", err)
	}
	for _, format := range []string{"csv", "jsonl"} {
		p, err := s.startAdmin(ctx, database, "SLUICE_ADMIN_TENANT_WORK=0", "SLUICE_ADMIN_ACCOUNT_WORK=0") // it measures the export
		if err != nil {
			return nil, err
		}
		query := url.Values{"format": {format}, "from": {now.AddDate(0, 0, -31).Format(time.RFC3339)}, "until": {now.Format(time.RFC3339)}}
		e, err := p.export(ctx, "/api/v1/tenants/ours/violations/export?"+query.Encode(), strings.TrimSpace(string(key)))
		p.stop()
		if err != nil {
			return nil, fmt.Errorf("export as %s: %w", format, err)
		}
		if format == "csv" {
			e.lines-- // its header
		}
		if e.lines != int64(rows) {
			return nil, fmt.Errorf("the export as %s has %d rows, want %d", format, e.lines, rows)
		}
		lines = append(lines,
			note("rows exported as "+format, "%.0f", 0, float64(e.lines)),
			note("  MiB", "%.0f", 0, float64(e.bytes)/(1<<20)),
			note("  rows a second", "%.0f", 0, float64(e.lines)/e.took.Seconds()),
			line{
				what: "  resident memory of the admin process before and at most, MiB", baseline: fmt.Sprint(e.before >> 20), ours: fmt.Sprint(e.most >> 20),
				target: fmt.Sprintf("at most %d more", mostGrowth>>20), met: yesNo(e.most-e.before <= mostGrowth),
			})
	}
	return lines, nil
}

// startAdmin starts a control plane and waits until it knows the API keys. Options are environment variables.
func (s *stage) startAdmin(ctx context.Context, database string, options ...string) (*process, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.dir, "admin"), "serve")
	cmd.Env = []string{
		"SLUICE_DATABASE_URL=" + database, "SLUICE_ADMIN_ADDR=127.0.0.1:0", "SLUICE_METRICS_ADDR=127.0.0.1:0", "SLUICE_LOG_FORMAT=json",
	}
	cmd.Env = append(cmd.Env, options...)
	p, err := s.start(cmd, adminListens)
	if err != nil {
		return nil, err
	}
	if err := s.name("admin", p); err != nil {
		return nil, err
	}
	return p, p.awaitReady(ctx)
}

// exported is what came of an export.
type exported struct {
	lines, bytes int64
	before, most int64 // of the process's resident memory, in bytes
	took         time.Duration
}

// export reads a file from a process to its end, and looks at the process's memory meanwhile.
func (p *process) export(ctx context.Context, path, key string) (e exported, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+path, nil)
	if err != nil {
		return e, fmt.Errorf("ask for a file: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	if e.before, err = p.resident(); err != nil {
		return e, err
	}
	began := time.Now()
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return e, fmt.Errorf("ask for a file: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return e, fmt.Errorf("ask for a file: status %d", answer.StatusCode)
	}
	ended := make(chan error, 1)
	var read counter // not looked at before the copy has ended
	go func() {
		_, err := io.Copy(&read, answer.Body)
		ended <- err
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		present, failure := p.resident()
		if failure != nil {
			return e, failure
		}
		e.most = max(e.most, present)
		select {
		case err := <-ended:
			if err != nil {
				return e, fmt.Errorf("read a file: %w", err)
			}
			e.lines, e.bytes, e.took = read.lines, read.bytes, time.Since(began)
			return e, nil
		case <-tick.C:
		}
	}
}

// counter counts what is written to it.
type counter struct{ lines, bytes int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.lines += int64(bytes.Count(p, []byte{'\n'}))
	c.bytes += int64(len(p))
	return len(p), nil
}
