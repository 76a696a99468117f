package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	clusterMasters = 3
	// spreadServers is how many api processes share the load of a tenant that needs several masters. Renewals come by process, so with one
	// the masters do less for a check than they do by themselves.
	spreadServers = 4
)

// cluster is a Redis Cluster under measurement.
type cluster struct {
	*devdb.RedisCluster
	clients []*redis.Client // of its masters
	idle    float64         // how much of a processor a master takes that nobody asks
}

func (s *stage) startCluster(ctx context.Context) (*cluster, error) {
	started, err := devdb.StartRedisCluster(ctx, filepath.Join(s.dir, "cluster"), clusterMasters, false)
	if err != nil {
		return nil, err
	}
	s.stops = append(s.stops, started.Kill)
	c := &cluster{RedisCluster: started}
	for _, master := range started.Masters {
		client := redis.NewClient(&redis.Options{Addr: master.Addr()})
		s.stops = append(s.stops, func() { _ = client.Close() })
		c.clients = append(c.clients, client)
	}
	return c, nil
}

// scripts returns how many scripts all masters have run, and for how many microseconds.
func (c *cluster) scripts(ctx context.Context) (calls, micros float64, err error) {
	for _, client := range c.clients {
		text, err := client.Info(ctx, "commandstats").Result()
		if err != nil {
			return 0, 0, fmt.Errorf("read a master's command figures: %w", err)
		}
		for figure := range strings.Lines(text) {
			var n, took float64
			if read, _ := fmt.Sscanf(figure, "cmdstat_evalsha:calls=%g,usec=%g,", &n, &took); read == 2 {
				calls += n
				micros += took
			}
		}
	}
	return calls, micros, nil
}

// processors returns how long each master has kept a processor busy, in seconds.
func (c *cluster) processors(ctx context.Context) (seconds []float64, err error) {
	for _, client := range c.clients {
		s, err := processorSeconds(ctx, client)
		if err != nil {
			return nil, err
		}
		seconds = append(seconds, s)
	}
	return seconds, nil
}

// measureIdle measures what a master takes that nobody asks: timers, and messages of the cluster.
func (c *cluster) measureIdle(ctx context.Context) error {
	before, err := c.processors(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	select {
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
		return ctx.Err()
	}
	after, err := c.processors(ctx)
	if err != nil {
		return err
	}
	for i := range after {
		c.idle += (after[i] - before[i]) / time.Since(began).Seconds() / float64(len(after))
	}
	return nil
}

// spread compares what a check costs the busiest of three masters, where the buckets of its tenant are spread over all and where they
// are together on one. Both lease.
func spread(ctx context.Context, rounds int, round time.Duration) ([]line, error) {
	s, err := setStage(ctx)
	if err != nil {
		return nil, err
	}
	defer s.clear()
	database, err := s.database(ctx, "spread")
	if err != nil {
		return nil, err
	}
	c, err := s.startCluster(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.measureIdle(ctx); err != nil {
		return nil, err
	}
	servers := make([]*process, spreadServers)
	for i := range servers {
		if servers[i], err = s.startAPI(ctx, database, c.URL()); err != nil {
			return nil, err
		}
	}
	var tokens [2]string
	for i, isSpread := range []bool{false, true} {
		wanted := rules.Tenant{Slug: fmt.Sprint("spread-", i), Name: "Bench", Spread: isSpread, Settings: rules.DefaultSettings()}
		if tokens[i], err = createTenantAs(ctx, database, wanted, hotTiers, auth.PermissionCheck); err != nil {
			return nil, err
		}
		for _, server := range servers {
			if err := server.awaitCheck(ctx, singleCheck(tokens[i], 0)); err != nil {
				return nil, err
			}
		}
	}
	var lines []line
	for _, crowd := range []struct {
		name    string
		servers []*process
		draw    func(token string) [][]byte
		atMost  float64
	}{
		{fmt.Sprintf("%d hot users, %d processes", hotUsers, spreadServers), servers, hotCrowd, 0.45},
		{fmt.Sprintf("%d hot users, 1 process", hotUsers), servers[:1], hotCrowd, 0},
		{fmt.Sprintf("%d users, Zipf 1, 1 process", manyUsers), servers[:1], zipfCrowd, 0},
	} {
		together, apart := figures{}, figures{}
		for i := range rounds + 1 {
			for j, side := range []figures{together, apart} {
				if err := c.lap(ctx, crowd.servers, crowd.draw(tokens[j]), leaseRounds*round, side, i > 0); err != nil {
					return nil, err
				}
			}
		}
		lines = append(lines,
			lineOf("spread, "+crowd.name+": the busiest of 3 masters, µs of CPU per check ÷ together", "%.2f",
				together.median("busiest"), apart.median("busiest"), apart.over(together, "busiest"), -crowd.atMost),
			note("  less what an idle master takes", "%.2f", together.median("busy"), apart.median("busy")),
			note("  all masters, µs of CPU per check", "%.2f", together.median("all"), apart.median("all")),
			note("  scripts per check", "%.4f", together.median("scripts"), apart.median("scripts")),
			note("  Redis's own time for a script, µs", "%.1f", together.median("script"), apart.median("script")),
			note("  buckets renewed, per script", "%.1f", together.median("asks"), apart.median("asks")),
			note("  checks that lots did not serve alone, ‰", "%.2f", together.median("missed"), apart.median("missed")),
			note("  checks/s", "%.0f", together.median("checks/s"), apart.median("checks/s")),
			note("  share of checks decided from lots alone", "%.3f", together.median("leased"), apart.median("leased")))
	}
	return lines, nil
}

// showAll returns what processes show, together.
func showAll(ctx context.Context, servers []*process) (map[string]float64, error) {
	sums := map[string]float64{}
	for _, server := range servers {
		shown, err := server.shown(ctx)
		if err != nil {
			return nil, err
		}
		for name, value := range shown {
			sums[name] += value
		}
	}
	return sums, nil
}

// lap is one round of one side. The first of each side only warms up, and so does the second before each, in which the process learns
// what is busy.
func (c *cluster) lap(ctx context.Context, servers []*process, requests [][]byte, length time.Duration, side figures, counts bool) error {
	asked := load{requests: requests}
	for _, server := range servers {
		asked.addrs = append(asked.addrs, server.addr)
	}
	if _, err := asked.closed(ctx, connections, time.Second); err != nil {
		return err
	}
	shownBefore, err := showAll(ctx, servers)
	if err != nil {
		return err
	}
	scriptsBefore, microsBefore, err := c.scripts(ctx)
	if err != nil {
		return err
	}
	before, err := c.processors(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	found, err := asked.closed(ctx, connections, length)
	if err != nil {
		return err
	}
	took := time.Since(began)
	after, err := c.processors(ctx)
	if err != nil {
		return err
	}
	scripts, micros, err := c.scripts(ctx)
	if err != nil {
		return err
	}
	shown, err := showAll(ctx, servers)
	if err != nil || !counts {
		return err
	}
	if n := shown["sluice_degraded_decisions_total"] - shownBefore["sluice_degraded_decisions_total"]; n > 0 {
		return fmt.Errorf("%.0f checks were decided without Redis", n)
	}
	var each []float64
	all := 0.0
	for i := range after {
		each = append(each, (after[i]-before[i])*1e6/float64(found.answers))
		all += each[i]
	}
	side.add("busiest", slices.Max(each))
	side.add("busy", slices.Max(each)-c.idle*took.Seconds()*1e6/float64(found.answers))
	side.add("all", all)
	side.add("scripts", (scripts-scriptsBefore)/float64(found.answers))
	side.add("script", (micros-microsBefore)/max(1, scripts-scriptsBefore))
	side.add("checks/s", found.perSecond)
	leased := (shown["sluice_leased_checks_total"] - shownBefore["sluice_leased_checks_total"]) / float64(found.answers)
	side.add("leased", leased)
	side.add("missed", 1000*max(0, 1-leased))
	side.add("asks", (shown["sluice_lease_asks_total"]-shownBefore["sluice_lease_asks_total"])/max(1, scripts-scriptsBefore))
	return nil
}
