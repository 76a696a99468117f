package enforce

// Answer answers the ask at a time, as Buckets.Take promises, out of the buckets that a store in this
// process holds: held[i] is that of Tiers[i], or nil if nobody used it. What is to be remembered is
// written into held. If it says that tokens were taken, the store must remember too, of the tiers
// that had no bucket, each that Holds: Tier.Bucket is the new one.
func (a *Ask) Answer(held []*Bucket, now int64) (taken bool) {
	a.Allowed = true
	for i := range a.Tiers {
		tier := &a.Tiers[i]
		if held[i] == nil {
			tier.Bucket = NewBucket(tier.Limit, now)
		} else {
			tier.Bucket = *held[i]
			if tier.Bucket.Settle(tier.Limit, a.ReadAt, now) {
				*held[i] = tier.Bucket
			}
		}
		tier.Holds = tier.Bucket.Level.Holds(a.Cost)
		if !tier.Holds && !tier.Shadow {
			a.Allowed = false
		}
	}
	if !a.Allowed || a.Cost == 0 {
		return false
	}
	for i := range a.Tiers {
		if tier := &a.Tiers[i]; tier.Holds {
			tier.Bucket.Level.Micros -= a.Cost
			if held[i] != nil {
				*held[i] = tier.Bucket
			}
		}
	}
	return true
}
