package rules

import (
	"fmt"
	"testing"
)

func TestWhatASpreadBucketIsPlacedBy(t *testing.T) {
	t.Parallel()
	match := func(pattern, subject string) *Match {
		return &Match{Rule: &Rule{ID: 21, Pattern: must(ParsePattern(pattern))(t)}, Subject: subject}
	}
	byRule, ofUser := uint8(21%Shards)+1, ShardOf("42")
	for name, test := range map[string]struct {
		match *Match
		want  uint8
	}{
		"a user":                    {match("user:{user_id}", "42"), ofUser},
		"a user on an endpoint":     {match("user:{user_id}:endpoint:{endpoint}", "2:42,4:/a,b"), ofUser},
		"a user behind an address":  {match("ip:{ip}:user:{user_id}", "9:192.0.2.1,2:42"), ofUser},
		"a user of one endpoint":    {match("user:{user_id}:endpoint:/a", "42"), ofUser},
		"an address":                {match("ip:{ip}", "192.0.2.1"), ShardOf("192.0.2.1")},
		"an address on an endpoint": {match("ip:{ip}:endpoint:{endpoint}", "9:192.0.2.1,2:/a"), ShardOf("9:192.0.2.1,2:/a")},
		"everything":                {match("global", ""), byRule},
		"one user by name":          {match("user:42", ""), byRule},
		"each endpoint":             {match("endpoint:{endpoint}", "/a"), byRule},
	} {
		if got := test.match.Shard(); got != test.want {
			t.Errorf("%s: shard %d, want %d", name, got, test.want)
		}
	}
}

// TestShardsAreEvenAndStay: subjects as people make them spread evenly, and a shard is where buckets are, so that it never changes.
func TestShardsAreEvenAndStay(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"%d", "user-%d", "10.0.%d.7", "%08x"} {
		var in [Shards + 1]int
		for n := range 1600 {
			in[ShardOf(fmt.Sprintf(form, n))]++
		}
		for shard, n := range in[1:] {
			if n < 60 || n > 140 {
				t.Errorf("%s: shard %d has %d of 1600", form, shard+1, n)
			}
		}
		if in[0] > 0 {
			t.Errorf("%s: %d in shard 0", form, in[0])
		}
	}
	for subject, want := range map[string]uint8{"": 12, "42": 14, "user-1": 13} {
		if got := ShardOf(subject); got != want {
			t.Errorf("%q is in shard %d, and was in %d", subject, got, want)
		}
	}
}
