import { serverNow } from '~/api/clock';
import type { Override, OverrideLimit, Rule } from '~/api/types';
import { exactTime } from '~/domain/format';
import { hasExpired } from '~/domain/group';
import { hasRate, type Limit, limitSentence, shapeOf, times } from '~/domain/rate';
import { type Expiry, expiresAt, expiryOf } from './expiry';

export interface OverrideDraft {
  limit: Limit;
  reason: string;
  expiry: Expiry;
}

const aDay: Expiry = { length: '1d', until: null };

/** A new override lasts a day, and so does one that replaces an expired one. */
export function beginOverride(rule: Rule, saved: Override | undefined): OverrideDraft {
  if (!saved) return { limit: times(rule, 2), reason: '', expiry: aDay };
  const expiry = hasExpired(saved, serverNow()) ? aDay : expiryOf(saved.expires_at);
  return { limit: overridden(rule, saved), reason: saved.reason, expiry };
}

export function overridden(rule: Rule, override: Override): Limit {
  // An override that is older than the rule's algorithm has a rate too many or too few.
  const { rate_per_second, rate_unit } = hasRate(rule.algorithm) && override.rate_per_second > 0 ? override : rule;
  return { ...shapeOf(rule), rate_per_second, rate_unit, burst_capacity: override.burst_capacity };
}

export function amounts({ rate_per_second, burst_capacity, algorithm }: Limit) {
  return { ...(hasRate(algorithm) && { rate_per_second }), burst_capacity };
}

export function isOwnLimit(rule: Rule, limit: Limit): boolean {
  return JSON.stringify(amounts(limit)) === JSON.stringify(amounts(rule));
}

export function overrideBody({ limit, reason, expiry }: OverrideDraft): OverrideLimit {
  const { rate_per_second, rate_unit, burst_capacity, algorithm } = limit;
  const expires_at = expiresAt(expiry, serverNow()) ?? null;
  const rate = hasRate(algorithm) ? { rate_per_second, rate_unit } : {};
  return { ...rate, burst_capacity, reason: reason.trim(), expires_at };
}

export function endInWords(expires_at: string | null | undefined): string {
  return expires_at ? exactTime(Date.parse(expires_at)) : 'Never';
}

export function sayField(
  field: keyof OverrideDraft,
  { limit, reason, expiry }: OverrideDraft,
  rule: Rule,
  theirs?: Override | null,
): [string, string] {
  switch (field) {
    case 'limit':
      return ['Limit', theirs === null ? `No override: ${limitSentence(rule)}` : limitSentence(limit)];
    case 'reason':
      return ['Reason', theirs === null ? '–' : reason.trim()];
    default:
      return ['Ends', theirs === null ? '–' : endInWords(expiresAt(expiry, serverNow()))];
  }
}

export interface Subject {
  user_id: string;
  plan?: string | null;
}

export function withoutEffect(rule: Rule, user?: Subject): string | null {
  if (hasExpired(rule, serverNow())) return 'The rule has ended. The override has no effect.';
  if (!rule.is_active) return 'The rule is off. The override has no effect until the rule is on.';
  if (rule.mode === 'shadow') return 'The rule is in shadow mode: it denies nothing, with or without an override.';
  if (user?.plan !== undefined && rule.plan !== null && rule.plan !== user.plan) {
    const on = user.plan === null ? 'on no plan' : `on ${user.plan}`;
    return `User ${user.user_id} is ${on}, so the override applies only to checks on the plan ${rule.plan}.`;
  }
  return null;
}
