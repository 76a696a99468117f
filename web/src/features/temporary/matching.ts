import ipaddr from 'ipaddr.js';
import type { Rule } from '~/api/types';
import { type Group, groupPattern } from '~/domain/group';
import { parsePattern, type Segment } from '~/domain/pattern';
import { isPartly } from './naming';

export interface Match {
  rule: Rule;
  /** The rule matches only some of the group’s checks, such as those of one plan. */
  partly: boolean;
  /** The rule is of this group alone, so ending it changes nothing for others. */
  own: boolean;
}

/** Rules that match all of the group's checks come first. */
export function matching(rules: Rule[], group: Group, action: 'block' | 'bypass'): Match[] {
  const pattern = groupPattern(group);
  const [wanted] = parsePattern(pattern).segments ?? [];
  if (!wanted) return [];
  return rules
    .filter((rule) => isInForce(rule, action))
    .flatMap((rule) => {
      const shares = (parsePattern(rule.key_pattern).segments ?? []).map((one) => shareOf(one, wanted));
      const share = shares.find((one) => one !== 'none');
      if (!share) return [];
      return [{ rule, partly: share === 'some' || isPartly(rule), own: rule.key_pattern === pattern }];
    })
    .toSorted((a, b) => Number(a.partly) - Number(b.partly));
}

export function opened(rules: Rule[], group: Group): Rule[] {
  const [wanted] = parsePattern(groupPattern(group)).segments ?? [];
  if (!wanted) return [];
  return rules.filter((rule) => {
    if (!isInForce(rule, 'block')) return false;
    const same = (parsePattern(rule.key_pattern).segments ?? []).find(({ field }) => field === wanted.field);
    return !same || shareOf(same, wanted) !== 'none';
  });
}

function isInForce({ action, mode, is_active }: Rule, wanted: Rule['action']): boolean {
  return action === wanted && mode === 'enforce' && is_active;
}

function shareOf(one: Segment, wanted: Segment): 'all' | 'some' | 'none' {
  if (one.field === 'global') return 'all';
  if (one.field !== wanted.field) return 'none';
  if (one.each) return 'all';
  if (one.field === 'ip') return shareOfAddresses(one.value, wanted.value);
  const matches = one.below ? wanted.value.startsWith(one.value) : wanted.value === one.value;
  if (!matches) return 'none';
  return one.method ? 'some' : 'all';
}

function shareOfAddresses(one: string, wanted: string): 'all' | 'some' | 'none' {
  const [address, bits] = networkOf(one);
  const [wantedAddress, wantedBits] = networkOf(wanted);
  if (address.kind() !== wantedAddress.kind()) return 'none';
  if (wantedAddress.match(address, Math.min(bits, wantedBits))) return bits <= wantedBits ? 'all' : 'some';
  return 'none';
}

function networkOf(text: string): [ipaddr.IPv4 | ipaddr.IPv6, number] {
  if (text.includes('/')) return ipaddr.parseCIDR(text);
  const address = ipaddr.parse(text);
  return [address, address.kind() === 'ipv6' ? 128 : 32];
}
