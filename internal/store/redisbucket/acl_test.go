package redisbucket

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
)

type documentedUser struct {
	login    string   // name:password
	commands []string // that it may use
}

var documentedACL = regexp.MustCompile(`(?m)^redis-cli .* ACL SETUSER (\S+) on '>(\S+)' '~\*' (.+)$`)

func createDocumentedUser(t *testing.T, servers ...redis.UniversalClient) documentedUser {
	t.Helper()
	page, err := os.ReadFile("../../../docs/production.md")
	if err != nil {
		t.Fatal(err)
	}
	match := documentedACL.FindStringSubmatch(string(page))
	if match == nil {
		t.Fatal("docs/production.md has no ACL SETUSER")
	}
	user := documentedUser{login: match[1] + ":" + match[2]}
	words := []any{"acl", "setuser", match[1], "on", ">" + match[2], "~*"}
	for rule := range strings.FieldsSeq(match[3]) {
		rule = strings.Trim(rule, "'")
		words = append(words, rule)
		user.commands = append(user.commands, strings.TrimPrefix(rule, "+"))
	}
	for _, server := range servers {
		if err := server.Do(t.Context(), words...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return user
}

func noteCommands(t *testing.T, used map[string]bool, server redis.UniversalClient) {
	t.Helper()
	stats, err := server.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	if refused, err := server.ACLLog(t.Context(), 10).Result(); err != nil || len(refused) > 0 {
		t.Errorf("%v: refused were %+v", err, refused)
	}
	for _, match := range regexp.MustCompile(`cmdstat_([a-z|]+):`).FindAllStringSubmatch(stats, -1) {
		used[match[1]] = true
		command, _, _ := strings.Cut(match[1], "|")
		used[command] = true
	}
}

// The user of docs/production.md does all that a store does, on a server and on a cluster while a slot moves.
func TestTheUserOfTheDocsMayDoWhatStoresDo(t *testing.T) {
	t.Parallel()
	server := devdbtest.Redis(t)
	admin := client(t, server.URL(), testTimeout)
	user := createDocumentedUser(t, admin)
	used := map[string]bool{}
	s := New(client(t, "redis://"+user.login+"@"+server.Addr()+"/1", testTimeout), testTimeout)
	doWhatStoresDo(t, s)
	noteCommands(t, used, admin)

	nodes := startCluster(t, 3)
	for _, node := range nodes {
		createDocumentedUser(t, node.direct)
	}
	s = New(client(t, "redis://"+user.login+"@"+nodes[0].proxy.addr()+"?cluster=true", testTimeout), testTimeout)
	doWhatStoresDo(t, s)
	tier := userOf(77)
	slot := nodes[0].slotOfKey(t, keyText(tier.Key))
	from := slot * 3 / 16384
	to := (from + 1) % 3
	ids := make([]string, len(nodes))
	for i, node := range nodes {
		ids[i] = node.direct.ClusterMyID(t.Context()).Val()
	}
	nodes[to].mustDo(t, "cluster", "setslot", slot, "importing", ids[from])
	nodes[from].mustDo(t, "cluster", "setslot", slot, "migrating", ids[to])
	mustTake(t, s, one(tier)) // its bucket is new, so it is made where the slot goes
	for _, node := range nodes {
		noteCommands(t, used, node.direct)
	}

	for _, command := range user.commands {
		if !used[command] {
			t.Errorf("the user of docs/production.md may %s, which no store does; used are %v", command,
				slices.Sorted(maps.Keys(used)))
		}
	}
}

func doWhatStoresDo(t *testing.T, s *Store) {
	t.Helper()
	for _, node := range s.Ping(t.Context()) {
		if node.Err != nil {
			t.Errorf("ping: %v", node.Err)
		}
	}
	if _, err := s.CheckSettings(t.Context()); err != nil {
		t.Errorf("check the settings: %v", err)
	}
	bucket := userOf(5)
	for range 2 { // by its source, and by its digest
		mustTake(t, s, one(bucket))
	}
	lease := []enforce.Lease{{
		Key: bucket.Key, Limit: bucket.Limit,
		Ask: enforce.Ask{Need: enforce.Token, Want: enforce.Token},
	}}
	if err := s.Lease(t.Context(), lease); err != nil {
		t.Errorf("lease: %v", err)
	}
	if _, _, err := s.Credit(t.Context(), bucket.Key, bucket.Limit, enforce.Token); err != nil {
		t.Errorf("credit: %v", err)
	}
	if _, _, _, err := s.CreditOnce(t.Context(), "once", bucket.Key, bucket.Limit, enforce.Token); err != nil {
		t.Errorf("credit once: %v", err)
	}
	settle := func(id byte, with enforce.Settlement) {
		if _, err := s.SettleReservation(t.Context(), bucket.Key.Tenant, enforce.ReservationID{id}, with); err != nil {
			t.Errorf("settle reservation %d: %v", id, err)
		}
	}
	for id := range byte(3) {
		check := one(bucket)
		check[0].Reserve = &enforce.Reservation{ID: enforce.ReservationID{id}, Life: time.Millisecond}
		if id < 2 {
			check[0].Reserve.Life = time.Minute
		}
		mustTake(t, s, check)
	}
	settle(0, enforce.Settlement{HasCost: true, Cost: enforce.Token})
	settle(1, enforce.Settlement{Extend: true})
	eventually(t, "an ended reservation to be forgotten", testTimeout, func() bool {
		check := one(bucket)
		check[0].Reserve = &enforce.Reservation{ID: enforce.ReservationID{9}, Life: time.Millisecond}
		mustTake(t, s, check)
		return s.ForgottenReservations() > 0
	})
	edit := editOf(5)
	if err := s.ApplyEdits(t.Context(), []enforce.Edit{edit}); err != nil {
		t.Errorf("settle an edit: %v", err)
	}
	if walked, err := s.rdb.SetNX(t.Context(), "walk", "holder", time.Minute).Result(); err != nil || !walked {
		t.Errorf("begin a walk: %v", err)
	}
	for _, script := range []*redis.Script{renewLock, freeLock} {
		if err := script.Run(t.Context(), s.rdb, []string{"walk"}, "holder", 1000).Err(); err != nil {
			t.Errorf("the lease of a walk: %v", err)
		}
	}
}
