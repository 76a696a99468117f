package config

import "testing"

func TestBucketsAreInRedisIfThereIsOneUnlessTheOptionSaysOtherwise(t *testing.T) {
	t.Parallel()
	const redis = "SLUICE_REDIS_URL=redis://localhost:6379"
	for name, test := range map[string]struct {
		env  []string
		want string
	}{
		"neither":            {nil, "memory"},
		"Redis":              {[]string{redis}, "redis"},
		"PostgreSQL":         {[]string{"SLUICE_BUCKETS=postgres"}, "postgres"},
		"memory beside both": {[]string{redis, "SLUICE_BUCKETS=memory"}, "memory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := mustParse(t, "api", nil, append(test.env, database)...).BucketStore(); got != test.want {
				t.Errorf("buckets are in %s, want %s", got, test.want)
			}
		})
	}
}
